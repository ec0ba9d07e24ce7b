package coordinator

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
)

// script is a store with no server behind it: a test sees each request as it is
// sent, decides what is answered and when, and tells events at any moment. It
// fails the test where two commands of a key are on their way at once (rule 5).
type script struct {
	t    *testing.T
	caps lease.Capabilities
	sink lease.Sink

	mu      sync.Mutex
	unseen  []*sent // not yet taken by the test, in the order of sending
	flying  map[string]*sent
	total   int  // commands, hints not counted
	obeying bool // answers everything by itself
	closed  bool
	mute    bool // Close answers nothing
	token   uint64
	arrived chan struct{} // has room for one
}

// sent is a request that the store was given.
type sent struct {
	lease.Request
	s    *script
	at   time.Time
	done func(lease.Reply, error)
}

var _ lease.Store = (*script)(nil)

func (s *script) Open(_ context.Context, _ string, sink lease.Sink) (lease.Capabilities, error) {
	s.sink = sink
	return s.caps, nil
}

func (s *script) Send(r lease.Request, done func(lease.Reply, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := &sent{Request: r, s: s, at: time.Now(), done: done}
	if s.closed {
		go done(lease.Reply{}, lease.ErrStoreClosed)
		return
	}
	if !hint(r.Op) {
		if other := s.flying[r.Key]; other != nil {
			s.t.Errorf("rule 5: %v was sent while %v is on its way", r, other.Request)
		}
		s.flying[r.Key] = q
		s.total++
	}
	if s.obeying {
		go q.obey()
		return
	}
	s.unseen = append(s.unseen, q)
	select {
	case s.arrived <- struct{}{}:
	default:
	}
}

// hint says that a request may be sent at any time, and that nothing depends on it.
func hint(op lease.Op) bool { return op == lease.Busy || op == lease.Annotate || op == lease.Ask }

func (s *script) Inspect(context.Context, string) (lease.Info, error) { return lease.Info{}, nil }
func (s *script) Force(context.Context, string) error                 { return nil }
func (s *script) Check(context.Context) ([]lease.Problem, error)      { return nil, nil }

// emit tells an event that is about a ticket.
func (s *script) emit(typ lease.EventType, key string, ticket lease.Ticket) {
	s.tell(lease.Event{Type: typ, Key: key, Ticket: ticket})
}

// Close answers what is left with ErrStoreClosed.
func (s *script) Close(context.Context) error {
	s.mu.Lock()
	s.closed = true
	var rest []*sent
	for _, q := range s.flying {
		rest = append(rest, q)
	}
	mute := s.mute
	s.mu.Unlock()
	if mute {
		return context.DeadlineExceeded
	}
	for _, q := range rest {
		q.fail(lease.ErrStoreClosed)
	}
	return nil
}

// tell has an event come in.
func (s *script) tell(e lease.Event) {
	synctest.Wait()
	s.sink(e)
	synctest.Wait()
}

// grant tells the grant of a ticket by message.
func (s *script) grant(q lease.Ticket, first, last uint64) {
	s.tell(lease.Event{Type: lease.Granted, Key: "k", Ticket: q, First: first, Last: last})
}

// take returns the oldest request that the test has not seen, or nil.
func (s *script) take() *sent {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.unseen) == 0 {
		return nil
	}
	q := s.unseen[0]
	s.unseen = s.unseen[1:]
	return q
}

// next returns the request that was sent just now.
func (s *script) next(op lease.Op) *sent {
	s.t.Helper()
	return s.after(0, op)
}

// after returns the request that is sent in exactly d from now.
func (s *script) after(d time.Duration, op lease.Op) *sent {
	s.t.Helper()
	begin := time.Now()
	q := s.within(d, op)
	require.Equal(s.t, d, q.at.Sub(begin), "%v came at another time", q.Request)
	return q
}

// within returns the request that is sent next, in at most d from now.
func (s *script) within(d time.Duration, op lease.Op) *sent {
	s.t.Helper()
	limit := time.After(d)
	q := s.take()
	for over := false; q == nil && !over; q = s.take() {
		select {
		case <-s.arrived:
		case <-limit:
			over = true
		}
	}
	require.NotNil(s.t, q, "nothing was sent in %v; expected: %v", d, op)
	require.Equal(s.t, op, q.Op, "sent: %+v", q.Request)
	return q
}

// quiet lets d pass, in which nothing is sent.
func (s *script) quiet(d time.Duration) {
	s.t.Helper()
	time.Sleep(d)
	if q := s.take(); q != nil {
		require.Fail(s.t, "a request that is not expected", "%+v", q.Request)
	}
}

// answer calls back. What was sent is what the reply says, unless it says nothing.
func (q *sent) answer(r lease.Reply, err error) {
	q.s.mu.Lock()
	if !hint(q.Op) && q.s.flying[q.Key] == q {
		delete(q.s.flying, q.Key)
	}
	q.s.mu.Unlock()
	if r.Sent.IsZero() {
		r.Sent = q.at
	}
	q.done(r, err)
}

func (q *sent) reply(r lease.Reply) {
	q.answer(r, nil)
	synctest.Wait()
}

func (q *sent) fail(err error) { q.answer(lease.Reply{}, err) }

// held answers that the lease is there, with a block of tokens.
func (q *sent) held(first, last uint64) {
	q.reply(lease.Reply{Status: lease.Held, First: first, Last: last})
}

// waits answers that another process has the lease, for an hour.
func (q *sent) waits() { q.reply(q.waiting()) }

func (q *sent) waiting() lease.Reply {
	return lease.Reply{Status: lease.Waiting, Remaining: time.Hour, Holder: "other:1", Told: 1}
}

func (q *sent) end() { q.reply(lease.Reply{Status: lease.Done}) }

// obey answers as a server would that nobody else uses.
func (q *sent) obey() {
	q.s.mu.Lock()
	n := q.Tokens
	if q.Next != nil {
		n = q.Next.Tokens
	}
	first := q.s.token + 1
	q.s.token += uint64(n)
	r := lease.Reply{Status: lease.Held}
	if n > 0 {
		r.First, r.Last = first, q.s.token
	}
	q.s.mu.Unlock()
	if hint(q.Op) || q.Op == lease.Release && q.Next == nil {
		r = lease.Reply{Status: lease.Done}
	}
	q.answer(r, nil)
}

// obey has everything answered from now on, also what is on its way.
func (s *script) obey() {
	synctest.Wait()
	s.mu.Lock()
	s.obeying = true
	s.token = max(s.token, 1<<40)
	var rest []*sent
	for _, q := range s.flying {
		rest = append(rest, q)
	}
	s.unseen = nil
	s.mu.Unlock()
	for _, q := range rest {
		q.obey()
	}
}

// commands returns how many commands were sent, hints not counted.
func (s *script) commands() int {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// scripted runs a test in virtual time, on a coordinator with a scripted store
// that has no tracking, with leases of 3 s that are believed in for 2.968 s. At
// its end everything is answered, and nothing may be left.
func scripted(t *testing.T, test func(t *testing.T, s *script, c *Coordinator), opts ...Option) {
	t.Helper()
	scriptedWith(t, lease.Capabilities{Server: "script", Notices: true, Receipts: true}, test, opts...)
}

// tracked is scripted with tracking.
func tracked(t *testing.T, test func(t *testing.T, s *script, c *Coordinator), opts ...Option) {
	t.Helper()
	caps := lease.Capabilities{Server: "script", Notices: true, Receipts: true, Tracking: true}
	scriptedWith(t, caps, test, opts...)
}

// believed is for how long a lease of the tests' 3 s counts.
const believed = 3*time.Second - 30*time.Millisecond - 2*time.Millisecond

func scriptedWith(t *testing.T, caps lease.Capabilities, test func(t *testing.T, s *script, c *Coordinator), opts ...Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &script{t: t, caps: caps, flying: make(map[string]*sent), arrived: make(chan struct{}, 1)}
		c, err := NewWithStore(s, append([]Option{WithTTL(3 * time.Second)}, opts...)...)
		require.NoError(t, err)
		defer func() {
			s.obey()
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			_ = c.Close(ctx) // the tests of Close look at its error
			synctest.Wait()
			left := c.Snapshot().Keys
			if len(left) > 0 || c.live.Load() != 0 {
				t.Errorf("left behind: %d actors, %+v", c.live.Load(), left)
			}
		}()
		test(t, s, c)
	})
}

// key returns what a coordinator has of the tests' key.
func (s *script) key(c *Coordinator) KeySnapshot {
	s.t.Helper()
	synctest.Wait()
	for _, k := range c.Snapshot().Keys {
		if k.Key == "k" {
			return k
		}
	}
	require.Fail(s.t, "the key is not in the table")
	return KeySnapshot{}
}

// String shows a request in failures.
func (q *sent) String() string { return fmt.Sprintf("%v %+v", q.Op, q.Request) }
