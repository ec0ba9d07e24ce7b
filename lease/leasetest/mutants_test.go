package leasetest

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/lease/memlease"
)

// mutant is a store with a fault, which the suite must find.
type mutant struct {
	lease.Store

	request func(*lease.Request)
	reply   func(lease.Request, *lease.Reply)
	failure func(error) error
	event   func(*lease.Event) (times int)
	send    func(m *mutant, r lease.Request, done func(lease.Reply, error))
	id      string
}

func (m *mutant) Open(ctx context.Context, id string, sink lease.Sink) (lease.Capabilities, error) {
	m.id = id
	return m.Store.Open(ctx, id, func(e lease.Event) {
		times := 1
		if m.event != nil {
			times = m.event(&e)
		}
		for range times {
			sink(e)
		}
	})
}

func (m *mutant) Send(r lease.Request, done func(lease.Reply, error)) {
	if m.send != nil {
		m.send(m, r, done)
		return
	}
	m.pass(r, done)
}

func (m *mutant) pass(r lease.Request, done func(lease.Reply, error)) {
	if r.Next != nil {
		n := *r.Next
		r.Next = &n
	}
	sent := r
	if m.request != nil {
		m.request(&sent)
	}
	m.Store.Send(sent, func(reply lease.Reply, err error) {
		if err == nil && m.reply != nil {
			m.reply(r, &reply)
		}
		if err != nil && m.failure != nil {
			err = m.failure(err)
		}
		done(reply, err)
	})
}

// no loses events of a type; twice tells them twice.
func no(t lease.EventType) *mutant    { return times(t, 0) }
func twice(t lease.EventType) *mutant { return times(t, 2) }

func times(t lease.EventType, n int) *mutant {
	return &mutant{event: func(e *lease.Event) int {
		if e.Type == t {
			return n
		}
		return 1
	}}
}

func asks(f func(*lease.Request)) *mutant { return &mutant{request: f} }

func answers(f func(lease.Request, *lease.Reply)) *mutant { return &mutant{reply: f} }

func tells(f func(*lease.Event)) *mutant {
	return &mutant{event: func(e *lease.Event) int { f(e); return 1 }}
}

func mutants() map[string]*mutant {
	return map[string]*mutant{
		"no grants": no(lease.Granted), "no wants": no(lease.Wanted), "no busy answers": no(lease.InUse),
		"no changes": no(lease.Changed), "no flushes": no(lease.ChangedAll),
		"grants twice": twice(lease.Granted), "wants twice": twice(lease.Wanted),
		"grant without tokens":  tells(func(e *lease.Event) { e.First, e.Last = 0, 0 }),
		"grant of another":      tells(func(e *lease.Event) { e.Ticket++ }),
		"grant without waiters": tells(func(e *lease.Event) { e.Contended = false }),
		"grant with waiters":    tells(func(e *lease.Event) { e.Contended = true }),
		"want without asker":    tells(func(e *lease.Event) { e.Asker = "" }),

		"age ignored": asks(func(r *lease.Request) { r.Age = -1 }),
		"age of next ignored": asks(func(r *lease.Request) {
			if r.Next != nil {
				r.Next.Age = -1
			}
		}),
		"next does not ask": asks(func(r *lease.Request) {
			if r.Next != nil {
				r.Next.Ask = false
			}
		}),
		"no next":         {send: releaseOnly},
		"never asks":      asks(func(r *lease.Request) { r.Ask = false }),
		"always queues":   asks(func(r *lease.Request) { r.Queue = true }),
		"never queues":    asks(func(r *lease.Request) { r.Queue = false }),
		"one TTL for all": asks(func(r *lease.Request) { r.TTL = min(r.TTL, time.Minute) }),
		"never watches":   asks(func(r *lease.Request) { r.Watch = "" }),
		"one block for a ticket": answers(func(r lease.Request, p *lease.Reply) {
			if p.First > 0 {
				p.First, p.Last = 1, uint64(max(r.Tokens, 1))
			}
		}),
		"more tokens than asked": answers(func(_ lease.Request, p *lease.Reply) { p.Last++ }),
		"readers exclude": asks(func(r *lease.Request) {
			if r.Op == lease.Acquire {
				r.Mode = lease.Exclusive
			}
		}),
		"kinds are one":         asks(func(r *lease.Request) { r.Kind = lease.ReadWrite }),
		"downgrade only renews": asks(func(r *lease.Request) { r.Op = instead(r.Op, lease.Downgrade, lease.Renew) }),
		"renew only asks":       asks(func(r *lease.Request) { r.TTL = ifOp(r, lease.Renew, time.Millisecond) }),
		"release is forgotten":  asks(func(r *lease.Request) { r.Ticket += lease.Ticket(ifRelease(r, 1000)) }),

		"lost is held":       answers(func(_ lease.Request, p *lease.Reply) { p.Status = swap(p.Status, lease.Lost, lease.Held) }),
		"denied is waiting":  answers(func(_ lease.Request, p *lease.Reply) { p.Status = swap(p.Status, lease.Denied, lease.Waiting) }),
		"nobody waits":       answers(func(_ lease.Request, p *lease.Reply) { p.Contended = false }),
		"somebody waits":     answers(func(_ lease.Request, p *lease.Reply) { p.Contended = true }),
		"none wait":          answers(func(_ lease.Request, p *lease.Reply) { p.Waiters = 0 }),
		"always the head":    answers(func(_ lease.Request, p *lease.Reply) { p.Rank = 0 }),
		"no remaining":       answers(func(_ lease.Request, p *lease.Reply) { p.Remaining = 0 }),
		"no newest token":    answers(func(_ lease.Request, p *lease.Reply) { p.Token = 0 }),
		"no holder":          answers(func(_ lease.Request, p *lease.Reply) { p.Holder = "" }),
		"all told":           answers(func(_ lease.Request, p *lease.Reply) { p.Told++ }),
		"always present":     answers(func(_ lease.Request, p *lease.Reply) { p.Present = true }),
		"never present":      answers(func(_ lease.Request, p *lease.Reply) { p.Present = false }),
		"sent when answered": answers(func(_ lease.Request, p *lease.Reply) { p.Sent = time.Now().Add(time.Second) }),
		"sent long ago":      answers(func(_ lease.Request, p *lease.Reply) { p.Sent = time.Now().Add(-time.Hour) }),

		"no traces": no(lease.Traced), "traces twice": twice(lease.Traced),
		"trace of another's":   tells(func(e *lease.Event) { e.Trace = strings.Replace(e.Trace, "a", "b", 1) }),
		"trace that is passed": tells(func(e *lease.Event) { e.Passing = e.Type == lease.Traced }),
		"trace that stays":     tells(func(e *lease.Event) { e.Passing = false }),
		"never traced":         asks(func(r *lease.Request) { r.Traced = false }),
		"next never traced": asks(func(r *lease.Request) {
			if r.Next != nil {
				r.Next.Traced = false
			}
		}),
		"always traced": asks(func(r *lease.Request) { r.Traced = true }),
		"passes nothing": asks(func(r *lease.Request) {
			if r.Op == lease.Release {
				r.Trace = ""
			}
		}),
		"always passes": asks(func(r *lease.Request) {
			if r.Op == lease.Release {
				r.Trace = traceparent(0)
			}
		}),
		"annotates another":   asks(func(r *lease.Request) { r.Ticket += lease.Ticket(ifAnnotate(r, 1)) }),
		"never already":       answers(func(_ lease.Request, p *lease.Reply) { p.Already = false }),
		"already if held":     answers(func(_ lease.Request, p *lease.Reply) { p.Already = p.Status == lease.Held }),
		"already if acquired": answers(func(r lease.Request, p *lease.Reply) { p.Already = r.Op == lease.Acquire && p.Status == lease.Held }),
		"any trace will do": {request: func(r *lease.Request) {
			if (r.Op == lease.Annotate || r.Op == lease.Release) && !lease.ValidTrace(r.Trace) {
				r.Trace = ""
			}
		}},
		"nothing is taken back": asks(func(r *lease.Request) {
			if r.Op == lease.Annotate && r.Trace == "" {
				r.Ticket, r.Trace = 1000, traceparent(0)
			}
		}),

		"nobody is asked":  no(lease.Asked),
		"asked twice":      twice(lease.Asked),
		"asks for another": asks(func(r *lease.Request) { r.Ticket += lease.Ticket(ifAsk(r, 1)) }),
		"asks itself": asks(func(r *lease.Request) {
			if r.Op == lease.Ask {
				r.Holder, r.Ticket = "b:1", 5
			}
		}),
		"asks the holder by way of the queue": {send: func(m *mutant, r lease.Request, done func(lease.Reply, error)) {
			if r.Op == lease.Ask {
				m.pass(lease.Request{
					Op: lease.Acquire, Key: r.Key, Kind: r.Kind, Ticket: r.Ticket, Mode: lease.Exclusive, TTL: time.Minute, Queue: true, Ask: true, Tokens: 1,
				}, func(lease.Reply, error) {})
			}
			m.pass(r, done)
		}},
		"idle is busy": asks(func(r *lease.Request) { r.Idle = false }),
		"busy is idle": asks(func(r *lease.Request) { r.Idle = r.Op == lease.Busy }),
		"who is gone is told": answers(func(r lease.Request, p *lease.Reply) {
			if r.Op == lease.Ask && p.Told == 0 {
				p.Told = 1
			}
		}),

		"another error": {failure: func(err error) error { return fmt.Errorf("failed: %s", err.Error()) }},
		"answers twice": {send: func(m *mutant, r lease.Request, done func(lease.Reply, error)) {
			m.pass(r, func(p lease.Reply, err error) { done(p, err); done(p, err) })
		}},
		"answers from within Send": {send: func(_ *mutant, _ lease.Request, done func(lease.Reply, error)) {
			done(lease.Reply{}, lease.ErrStoreClosed)
		}},
		"never answers": {send: func(*mutant, lease.Request, func(lease.Reply, error)) {}},
	}
}

func instead(op, from, to lease.Op) lease.Op {
	if op == from {
		return to
	}
	return op
}

func ifOp(r *lease.Request, op lease.Op, ttl time.Duration) time.Duration {
	if r.Op == op {
		return ttl
	}
	return r.TTL
}

func ifRelease(r *lease.Request, n int) int {
	if r.Op == lease.Release && r.Next == nil {
		return n
	}
	return 0
}

func ifAnnotate(r *lease.Request, n int) int {
	if r.Op == lease.Annotate {
		return n
	}
	return 0
}

func ifAsk(r *lease.Request, n int) int {
	if r.Op == lease.Ask {
		return n
	}
	return 0
}

func swap(s, from, to lease.Status) lease.Status {
	if s == from {
		return to
	}
	return s
}

// releaseOnly acquires for next without having released.
func releaseOnly(m *mutant, r lease.Request, done func(lease.Reply, error)) {
	if r.Next == nil {
		m.pass(r, done)
		return
	}
	m.pass(lease.Request{
		Op: lease.Acquire, Key: r.Key, Kind: r.Kind, Ticket: r.Next.Ticket, Mode: r.Next.Mode, TTL: r.Next.TTL,
		Tokens: r.Next.Tokens, Queue: true, Age: r.Next.Age,
	}, done)
}

// witness is a test that may fail without failing the real one.
type witness struct {
	testing.TB

	mu       sync.Mutex
	failed   bool
	cleanups []func()
}

func (w *witness) fail() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = true
}

func (w *witness) Error(...any)          { w.fail() }
func (w *witness) Errorf(string, ...any) { w.fail() }
func (w *witness) Fail()                 { w.fail() }
func (w *witness) FailNow()              { w.fail(); runtime.Goexit() }
func (w *witness) Fatal(...any)          { w.FailNow() }
func (w *witness) Fatalf(string, ...any) { w.FailNow() }
func (w *witness) Skip(...any)           { runtime.Goexit() }
func (w *witness) Log(...any)            {}
func (w *witness) Logf(string, ...any)   {}
func (w *witness) Cleanup(f func())      { w.cleanups = append(w.cleanups, f) }

// finds says whether a case fails for the mutant.
func finds(t *testing.T, c testCase, m mutant) bool {
	w := &witness{TB: t}
	server := memlease.NewServer()
	defer server.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.run(newSuite(w, func(testing.TB) Env {
			return Env{
				NewStore: func(testing.TB) lease.Store {
					copied := m
					copied.Store = server.Store()
					return &copied
				},
				Delete: server.Delete, Put: server.Put, Intact: server.Foreign, Flush: server.Flush,
			}
		}))
	}()
	<-done
	for _, f := range w.cleanups {
		f()
	}
	return w.failed
}

func TestSuiteFindsFaults(t *testing.T) {
	var tests []testCase
	for _, c := range cases() {
		if c.name != modelCases[0].name && c.name != modelCases[1].name { // they write files where they fail
			tests = append(tests, c)
		}
	}
	for name, m := range mutants() {
		t.Run(name, func(t *testing.T) {
			for _, c := range tests {
				found := false
				synctest.Test(t, func(t *testing.T) { found = finds(t, c, *m) })
				if found {
					t.Logf("found by %s", c.name)
					return
				}
			}
			require.Fail(t, "no test found the fault")
		})
	}
}

func TestSuiteFindsNothingWrongWithAGoodStore(t *testing.T) {
	for _, c := range cases() {
		synctest.Test(t, func(t *testing.T) {
			require.False(t, finds(t, c, mutant{}), c.name)
		})
	}
}
