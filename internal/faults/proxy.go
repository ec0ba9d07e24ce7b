// Package faults makes the faults that lock users reported happen on purpose: a proxy that understands Redis's
// protocol and can delay, hold, swallow, cut, or lose exactly one reply after the server ran the command; and
// real child processes that can be stopped and killed.
//
// A test's TestMain is [Main] where it has roles for children, and redistest.Main otherwise.
package faults

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

const (
	dialLimit   = 10 * time.Second
	listenLimit = 10 * time.Second
)

// Direction is one way through the proxy.
type Direction int

// Up leads from the client to the server, Down back.
const (
	Up Direction = iota
	Down
)

// directionState is what a writer of one direction looks at before each message.
type directionState struct {
	delay, jitter time.Duration
	rate          int // bytes a second; 0: no limit
	hold, swallow bool
}

// latency is the delay of one message.
func (s directionState) latency() time.Duration {
	if s.jitter > 0 {
		return s.delay + rand.N(s.jitter)
	}
	return s.delay
}

// transmission is how long a message of that size takes by itself.
func (s directionState) transmission(size int) time.Duration {
	if s.rate <= 0 {
		return 0
	}
	return time.Duration(size) * time.Second / time.Duration(s.rate)
}

// Proxy stands between clients and one server. Its methods may be called from any goroutine.
type Proxy struct {
	upstream string
	addr     string
	wg       sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener // nil while connections are refused
	closed   bool
	ways     [2]directionState
	changed  chan struct{} // closed and replaced at every change of ways
	halfOpen bool
	mutes    map[net.Conn]struct{} // accepted while half-open
	dialing  map[net.Conn]struct{} // accepted, the server not yet reached
	links    map[*link]struct{}
	accepted int
	command  Hook
	reply    Hook
	drops    []*Drop
	broken   []error // connections that did not speak the protocol
}

// NewProxy starts a proxy in front of upstream (host:port) on a free port of 127.0.0.1 and ends it with the test.
func NewProxy(t testing.TB, upstream string) *Proxy {
	t.Helper()
	p := &Proxy{
		upstream: upstream,
		changed:  make(chan struct{}),
		mutes:    map[net.Conn]struct{}{},
		dialing:  map[net.Conn]struct{}{},
		links:    map[*link]struct{}{},
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("faults: proxy: %v", err)
	}
	p.addr = listener.Addr().String()
	p.serve(listener)
	t.Cleanup(func() {
		p.Close()
		if err := errors.Join(p.broken...); err != nil {
			t.Errorf("faults: proxy of %s: %v", upstream, err)
		}
	})
	return p
}

// Addr returns the host:port that clients connect to.
func (p *Proxy) Addr() string { return p.addr }

// Close cuts everything and waits until all is ended.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.stopListening()
	p.mu.Unlock()
	p.Reset()
	p.wg.Wait()
}

// SetDelay makes every message from now on take that long on its way up and down, beside each other: a delay
// is latency, not a limit on throughput.
func (p *Proxy) SetDelay(up, down time.Duration) {
	p.change(func() { p.ways[Up].delay, p.ways[Down].delay = up, down })
}

// SetJitter adds to the delay of each message a part of d, by chance. Messages of one connection and direction keep
// their order, so one that is late holds up those behind it, as on a network that loses packets.
func (p *Proxy) SetJitter(up, down time.Duration) {
	p.change(func() { p.ways[Up].jitter, p.ways[Down].jitter = up, down })
}

// Throttle lets no more than so many bytes a second through on each connection, one direction beside the other; 0 ends
// that. A message arrives when the last of its bytes does.
func (p *Proxy) Throttle(up, down int) {
	p.change(func() { p.ways[Up].rate, p.ways[Down].rate = up, down })
}

// Heal ends what SetDelay, SetJitter, Throttle, BlackHole, Hold, Swallow, HalfOpen and Refuse have begun, and drops that have not
// happened yet; connections that can't go on are cut. Hooks stay.
func (p *Proxy) Heal() {
	p.change(func() { p.ways, p.drops = [2]directionState{}, nil })
	for _, l := range p.snapshot() {
		l.closeIfSpoilt()
	}
	p.HalfOpen(false)
	p.Refuse(false)
}

// BlackHole holds everything in both directions while on. Connections stay, new ones too; what was sent
// arrives when the network is back, as TCP sends it again.
func (p *Proxy) BlackHole(on bool) {
	p.change(func() { p.ways[Up].hold, p.ways[Down].hold = on, on })
}

// Hold is BlackHole for one direction.
func (p *Proxy) Hold(d Direction, on bool) {
	p.change(func() { p.ways[d].hold = on })
}

// Swallow loses everything in one direction for good while on. Connections stay open meanwhile; those that
// lost anything are cut when it ends.
func (p *Proxy) Swallow(d Direction, on bool) {
	p.change(func() { p.ways[d].swallow = on })
	if !on {
		for _, l := range p.snapshot() {
			l.closeIfHoled()
		}
	}
}

// HalfOpen makes new connections succeed and never be answered while on; they are cut when it ends. Those
// already open are left alone: combine it with Reset or BlackHole.
func (p *Proxy) HalfOpen(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.halfOpen = on
	if !on {
		cutAll(p.mutes)
	}
}

// Refuse makes new connections be refused while on. Those already open are left alone.
func (p *Proxy) Refuse(on bool) {
	if on {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.stopListening()
		return
	}
	p.mu.Lock()
	listening := p.listener != nil
	p.mu.Unlock()
	if !listening {
		p.serve(listenAgain(p.addr))
	}
}

// Reset cuts every open connection with RST.
func (p *Proxy) Reset() {
	p.mu.Lock()
	cutAll(p.mutes)
	cutAll(p.dialing)
	p.mu.Unlock()
	for _, l := range p.snapshot() {
		l.close(true)
	}
}

// Connections returns how many connections are open through the proxy.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links) + len(p.mutes) + len(p.dialing)
}

// Accepted returns how many connections there have been.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// OnCommand sets what decides on every command just before it is sent to the server; nil removes it.
func (p *Proxy) OnCommand(hook Hook) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.command = hook
}

// OnReply sets what decides on every reply, named by its command, when the server has run it and the client
// knows nothing of it yet; nil removes it. It is not asked where OnCommand or a Drop decided already.
func (p *Proxy) OnReply(hook Hook) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reply = hook
}

// DropReply loses exactly one reply: that of the first command that match likes and that the server ran
// (an error, such as NOSCRIPT, passes). The connection is closed after it.
func (p *Proxy) DropReply(match func(cmd []string) bool) *Drop {
	return p.addDrop(match, DropReply)
}

// DropReplySilently is DropReply, but the connection stays open and mute.
func (p *Proxy) DropReplySilently(match func(cmd []string) bool) *Drop {
	return p.addDrop(match, Silence)
}

func (p *Proxy) addDrop(match func(cmd []string) bool, action Action) *Drop {
	d := &Drop{match: match, action: action, done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drops = append(p.drops, d)
	return d
}

func (p *Proxy) dropsFor(cmd []string) []*Drop {
	p.mu.Lock()
	drops := p.drops
	p.mu.Unlock()
	var matching []*Drop
	for _, d := range drops {
		if d.match(cmd) {
			matching = append(matching, d)
		}
	}
	return matching
}

func (p *Proxy) commandHook(cmd []string) Action {
	p.mu.Lock()
	hook := p.command
	p.mu.Unlock()
	return hook.call(cmd)
}

func (p *Proxy) replyHook(cmd []string) Action {
	p.mu.Lock()
	hook := p.reply
	p.mu.Unlock()
	return hook.call(cmd)
}

func (h Hook) call(cmd []string) Action {
	if h == nil || len(cmd) == 0 {
		return Pass
	}
	return h(cmd)
}

// look returns a direction's state, and a channel that is closed when it changes.
func (p *Proxy) look(d Direction) (directionState, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ways[d], p.changed
}

func (p *Proxy) change(set func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	set()
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *Proxy) snapshot() []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	links := make([]*link, 0, len(p.links))
	for l := range p.links {
		links = append(links, l)
	}
	return links
}

// cutAll ends connections that are not joined to the server; the caller holds the proxy's mu.
func cutAll(conns map[net.Conn]struct{}) {
	for conn := range conns {
		resetConn(conn)
		delete(conns, conn)
	}
}

// failed notes a stream that could not be read as Redis's protocol.
func (p *Proxy) failed(err error) {
	if !errors.Is(err, errProtocol) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = append(p.broken, err)
}

// stopListening frees the port; the caller holds mu.
func (p *Proxy) stopListening() {
	if p.listener != nil {
		_ = p.listener.Close() // ends the accept loop, which is all that is wanted of it
		p.listener = nil
	}
}

// listenAgain takes back a port that was given up a moment ago.
func listenAgain(addr string) net.Listener {
	deadline := time.Now().Add(listenLimit)
	for {
		listener, err := net.Listen("tcp", addr)
		if err == nil {
			return listener
		}
		if time.Now().After(deadline) {
			panic(fmt.Errorf("faults: somebody took the proxy's port: %w", err))
		}
		time.Sleep(time.Millisecond) // there is no notice of a port getting free
	}
}

func resetConn(conn net.Conn) {
	_ = conn.(*net.TCPConn).SetLinger(0) // on failure the client sees a plain close
	_ = conn.Close()
}
