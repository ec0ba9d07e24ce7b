package faults

import (
	"strings"
	"sync"
	"time"
)

// Action is what a hook wants done with a command, or with the reply to it. The zero Action passes it on.
type Action struct {
	kind  actionKind
	text  string
	delay time.Duration
}

type actionKind int

const (
	pass actionKind = iota
	cut
	dropReply
	silence
	answer
	delayReply
)

var (
	// Pass forwards the command, or the reply.
	Pass = Action{}
	// Cut cuts the connection; the server never sees the command, and replies still under way are lost with
	// it. Said of a reply, it is DropReply.
	Cut = Action{kind: cut}
	// DropReply lets the server run the command, swallows the reply (an error too), and then closes the
	// connection. Replies before it are delivered.
	DropReply = Action{kind: dropReply}
	// Silence lets the server run the command and swallows the reply and whatever else would pass over this
	// connection, which stays open.
	Silence = Action{kind: silence}
)

// Fail answers the command with an error in the server's place, which never sees the command:
// Fail("READONLY You can't write against a read only replica.").
func Fail(text string) Action { return Action{kind: answer, text: text} }

// DelayReply lets the server run the command at once and delivers its reply, and so everything after it on
// this connection, later by d.
func DelayReply(d time.Duration) Action { return Action{kind: delayReply, delay: d} }

// Hook decides on a command, named by its words ("EVALSHA", hash, "1", key, …). It may do anything else at that
// moment too, such as killing a process. It is called by several connections at once.
type Hook func(cmd []string) Action

// Is returns a match for commands whose first words are these, upper or lower case: Is("client", "tracking").
func Is(words ...string) func(cmd []string) bool {
	return func(cmd []string) bool {
		if len(cmd) < len(words) {
			return false
		}
		for i, word := range words {
			if !strings.EqualFold(cmd[i], word) {
				return false
			}
		}
		return true
	}
}

// Has returns a match for commands called name that have arg among their words.
func Has(name, arg string) func(cmd []string) bool {
	return func(cmd []string) bool {
		if !Is(name)(cmd) {
			return false
		}
		for _, word := range cmd[1:] {
			if word == arg {
				return true
			}
		}
		return false
	}
}

// Drop is one reply that is to be lost.
type Drop struct {
	match  func(cmd []string) bool
	action Action
	once   sync.Once
	done   chan struct{}
}

// Done is closed once the server has run the command and its reply is lost.
func (d *Drop) Done() <-chan struct{} { return d.done }

// fire tells whether this very reply is the one to lose.
func (d *Drop) fire() bool {
	won := false
	d.once.Do(func() {
		won = true
		close(d.done)
	})
	return won
}

// entry is a command the server has not answered yet.
type entry struct {
	cmd    []string
	name   string // lower case
	left   int    // confirmations still to come, of a (un)subscribe; -1 before they are counted
	action Action
	drops  []*Drop
}

func newEntry(cmd []string, action Action, drops []*Drop) *entry {
	e := &entry{cmd: cmd, action: action, drops: drops}
	if len(cmd) > 0 {
		e.name = strings.ToLower(cmd[0])
	}
	if strings.HasSuffix(e.name, "subscribe") {
		e.left = len(cmd) - 1
		if e.left == 0 {
			e.left = -1
		}
	}
	return e
}

// confirms tells whether the command is answered by one message a channel instead of a reply.
func (e *entry) confirms() bool { return strings.HasSuffix(e.name, "subscribe") }

// decide says what becomes of a reply: the command's own action, or that of a [Drop] that matched it.
func (e *entry) decide(f *frame) Action {
	if e.action.kind != pass {
		return e.action
	}
	if f.isError() {
		return Pass // the server did not run it (NOSCRIPT): the drop waits for one that it ran
	}
	for _, d := range e.drops {
		if d.fire() {
			return d.action
		}
	}
	return Pass
}
