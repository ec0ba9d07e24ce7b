package faults

import (
	"bufio"
	"net"
	"sync"
	"time"
)

// link is one connection through the proxy: four goroutines, a reader and a writer for each direction.
type link struct {
	proxy          *Proxy
	client, server *net.TCPConn
	boxes          [2]*outbox // by direction
	pending        *pending
	done           chan struct{}
	closing        sync.Once

	mu     sync.Mutex
	silent bool // nothing passes any more
	holed  bool // bytes were swallowed: the stream can't go on
}

func newLink(p *Proxy, client, server *net.TCPConn) *link {
	l := &link{
		proxy: p, client: client, server: server,
		boxes: [2]*outbox{newOutbox(), newOutbox()},
		done:  make(chan struct{}),
	}
	l.pending = newPending(func(canned string) { l.put(Down, item{raw: []byte(canned)}, 0) })
	return l
}

// run forwards until the connection ends.
func (l *link) run() {
	var wg sync.WaitGroup
	wg.Go(l.readCommands)
	wg.Go(l.readReplies)
	wg.Go(func() { l.write(Up, l.forwardCommand) })
	wg.Go(func() { l.write(Down, l.forwardReply) })
	wg.Wait()
}

// put queues a message for a direction, due after the direction's delay and extra.
func (l *link) put(d Direction, it item, extra time.Duration) {
	state, _ := l.proxy.look(d)
	it.due = time.Now().Add(state.latency() + extra)
	l.boxes[d].put(it)
}

// readCommands reads what the client sends. What a dead client sent before still reaches the server, late
// perhaps, as on a real network.
func (l *link) readCommands() {
	r := bufio.NewReader(l.client)
	for {
		c, err := readCommand(r)
		if err != nil {
			l.proxy.failed(err)
			l.put(Up, item{end: true}, 0)
			return
		}
		l.put(Up, item{raw: c.raw, cmd: c.args}, 0)
	}
}

// readReplies reads what the server sends, and applies what was decided for the command it answers.
func (l *link) readReplies() {
	r := bufio.NewReader(l.server)
	for {
		f, err := readFrame(r)
		if err != nil {
			l.proxy.failed(err)
			l.put(Down, item{end: true}, 0)
			return
		}
		l.pending.take(&f, func(e *entry) { l.replyTo(e, &f) })
	}
}

// replyTo queues a reply, or loses it.
func (l *link) replyTo(e *entry, f *frame) {
	action := Pass
	if e != nil {
		action = e.decide(f)
		if action.kind == pass {
			action = l.proxy.replyHook(e.cmd)
		}
	}
	switch action.kind {
	case cut, dropReply:
		l.put(Down, item{end: true}, 0)
	case silence:
		l.mute()
	case answer:
		l.put(Down, item{raw: []byte("-" + action.text + "\r\n")}, 0)
	default:
		l.put(Down, item{raw: f.raw}, action.delay)
	}
}

func (l *link) mute() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silent = true
}

// write forwards one direction: each message when it is due and the direction is open.
func (l *link) write(d Direction, forward func(item) bool) {
	for {
		it, ok := l.boxes[d].next(l.done)
		if !ok {
			return
		}
		state, ok := l.await(d, it.due)
		if !ok {
			return
		}
		if took := state.transmission(len(it.raw)); took > 0 {
			if state, ok = l.await(d, time.Now().Add(took)); !ok {
				return
			}
		}
		if l.lost(state) {
			continue
		}
		if !forward(it) {
			return
		}
	}
}

// await waits until due and until the direction is not held; false means that the link was closed.
func (l *link) await(d Direction, due time.Time) (directionState, bool) {
	for {
		state, changed := l.proxy.look(d)
		wait := time.Until(due)
		if !state.hold && wait <= 0 {
			return state, true
		}
		var timer <-chan time.Time
		if !state.hold {
			timer = time.After(wait)
		}
		select {
		case <-timer:
		case <-changed:
		case <-l.done:
			return state, false
		}
	}
}

// lost tells whether a message is to vanish, and remembers the hole it leaves.
func (l *link) lost(state directionState) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if state.swallow {
		l.holed = true
	}
	return l.silent || state.swallow
}

// forwardCommand sends a command on, as the hooks want it.
func (l *link) forwardCommand(it item) bool {
	if it.end {
		_ = l.server.CloseWrite() // fails only if the server is gone, which the reader notices
		return false
	}
	action := l.proxy.commandHook(it.cmd)
	switch action.kind {
	case cut:
		l.close(false)
		return false
	case answer:
		l.pending.add(newEntry(it.cmd, action, nil))
		return true
	}
	if len(it.cmd) > 0 { // Redis answers an empty line with nothing
		l.pending.add(newEntry(it.cmd, action, l.proxy.dropsFor(it.cmd)))
	}
	if _, err := l.server.Write(it.raw); err != nil {
		l.close(false)
		return false
	}
	return true
}

// forwardReply sends a message on to the client.
func (l *link) forwardReply(it item) bool {
	if it.end {
		l.close(false)
		return false
	}
	// A client that has gone ends the link through its reader, after its last commands are delivered.
	_, _ = l.client.Write(it.raw)
	return true
}

// close ends both sides; with reset the client sees RST, and what was under way is lost.
func (l *link) close(reset bool) {
	l.closing.Do(func() {
		if reset {
			_ = l.client.SetLinger(0) // on failure the client sees a plain close
		}
		_ = l.client.Close()
		_ = l.server.Close()
		close(l.done)
	})
}

// closeIfHoled ends a connection whose stream has a hole: no TCP connection would go on after that.
func (l *link) closeIfHoled() {
	l.mu.Lock()
	holed := l.holed
	l.mu.Unlock()
	if holed {
		l.close(true)
	}
}

// closeIfSpoilt is closeIfHoled, and also ends a connection that is silent for good.
func (l *link) closeIfSpoilt() {
	l.mu.Lock()
	spoilt := l.holed || l.silent
	l.mu.Unlock()
	if spoilt {
		l.close(true)
	}
}
