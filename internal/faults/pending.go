package faults

import (
	"strings"
	"sync"
)

// pending matches a connection's replies to its commands. Push messages are nobody's reply; a subscribe has no
// reply but one message a channel.
type pending struct {
	mu      sync.Mutex
	entries []*entry
	resp3   bool
	// subscribed counts channels by the command that leaves them ("unsubscribe", …).
	subscribed map[string]map[string]bool
	emit       func(canned string) // puts an answer of our own among the server's; called with mu held
}

func newPending(emit func(string)) *pending {
	return &pending{subscribed: map[string]map[string]bool{}, emit: emit}
}

// add notes a command that is about to be sent, or, with a canned answer, not to be sent at all.
func (p *pending) add(e *entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.entries = append(p.entries, e)
	p.flushCanned()
}

// flushCanned gives the answers that are due: those with no unanswered command before them.
func (p *pending) flushCanned() {
	for len(p.entries) > 0 && p.entries[0].action.kind == answer {
		p.emit("-" + p.entries[0].action.text + "\r\n")
		p.entries = p.entries[1:]
	}
}

// take returns the command that f answers, and nil for a message that answers none. More may follow for a
// command with several confirmations; forward is called before the next canned answer goes out.
func (p *pending) take(f *frame, forward func(*entry)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, whole := p.match(f)
	if whole {
		p.entries = p.entries[1:]
	}
	forward(e)
	if whole {
		p.flushCanned()
	}
}

// match finds f's command at the head of the queue; whole says that it is answered entirely.
func (p *pending) match(f *frame) (e *entry, whole bool) {
	if len(p.entries) > 0 {
		e = p.entries[0]
	}
	aggregate := f.kind == '>' || f.kind == '*'
	if e != nil && e.confirms() && aggregate && f.first() == e.name {
		return e, p.confirm(e, f)
	}
	if f.kind == '>' {
		p.forget(f)
		return nil, false
	}
	if f.kind == '*' && !p.resp3 && strings.HasSuffix(f.first(), "message") && p.listening() {
		return nil, false // RESP2 has no push messages: a subscriber's connection carries nothing else
	}
	if e == nil {
		return nil, false
	}
	if e.name == "hello" && !f.isError() && len(e.cmd) > 1 {
		p.resp3 = e.cmd[1] == "3"
	}
	return e, true
}

// confirm counts one confirmation of e and tells whether it was the last.
func (p *pending) confirm(e *entry, f *frame) bool {
	leave := e.name
	joining := !strings.HasSuffix(e.name, "unsubscribe")
	if joining {
		leave = strings.TrimSuffix(e.name, "subscribe") + "unsubscribe"
	}
	if p.subscribed[leave] == nil {
		p.subscribed[leave] = map[string]bool{}
	}
	channels := p.subscribed[leave]
	if e.left < 0 { // "unsubscribe" from all: one message for each, one if there is none
		e.left = max(len(channels), 1)
	}
	if len(f.head) == headSize {
		if joining {
			channels[f.head[1]] = true
		} else {
			delete(channels, f.head[1])
		}
	}
	e.left--
	return e.left <= 0
}

// forget notes a subscription that the server ended by itself, as it does with a slot that moves.
func (p *pending) forget(f *frame) {
	if len(f.head) == headSize {
		delete(p.subscribed[f.first()], f.head[1])
	}
}

func (p *pending) listening() bool {
	for _, channels := range p.subscribed {
		if len(channels) > 0 {
			return true
		}
	}
	return false
}
