package coordinator

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/go-leasehold/leasehold/lease"
)

// TestWhateverTheStoreSays has a store answer and tell anything at all, also
// what no store would. The actor may lose leases by that, or refuse waits, but
// it keeps its own rules: one command of a key at a time, tokens that are not
// dealt out twice by one lease, no two holds that exclude each other here, and
// once the store comes to reason every wait ends and nothing is left.
func TestWhateverTheStoreSays(t *testing.T) {
	manyRuns(t, "40")
	rapid.Check(t, func(r *rapid.T) {
		var wrong error
		tracking := rapid.Bool().Draw(r, "tracking")
		caps := lease.Capabilities{Notices: true, Receipts: true, Tracking: tracking}
		opts := []Option{
			WithLogger(quiet), WithHandoff(rapid.IntRange(1, 3).Draw(r, "budget"), 5*time.Millisecond),
			WithRetention(rapid.SampledFrom([]time.Duration{50 * time.Millisecond, 0, 2 * time.Second}).Draw(r, "retention")),
		}
		scriptedWith(t, caps, func(t *testing.T, s *script, c *Coordinator) {
			n := &nonsense{t: t, r: r, s: s, c: c}
			for range rapid.IntRange(1, 60).Draw(r, "steps") {
				n.step()
				if wrong = n.check(); wrong != nil {
					return
				}
			}
			wrong = n.comeToReason()
		}, opts...)
		if wrong != nil {
			r.Fatal(wrong)
		}
	})
}

// nonsense is one run.
type nonsense struct {
	t      *testing.T
	r      *rapid.T
	s      *script
	c      *Coordinator
	calls  []*attempt
	modes  []lease.Mode
	cancel []context.CancelFunc
	open   []*sent // not answered
	newest uint64
}

// step does one thing.
func (n *nonsense) step() {
	for q := n.s.take(); q != nil; q = n.s.take() {
		if q.Op != lease.Busy {
			n.open = append(n.open, q)
		}
	}
	r := n.r
	switch rapid.IntRange(0, 9).Draw(r, "what") {
	case 0, 1:
		n.lock()
	case 2:
		if i := n.pick("cancelled"); i >= 0 {
			n.cancel[i]()
		}
	case 3, 4:
		if i := n.pick("unlocked"); i >= 0 && n.calls[i].done.Load() && n.calls[i].err == nil {
			_ = n.calls[i].hold.Unlock() // whatever it says
		}
	case 5, 6:
		n.answer()
	case 7:
		n.s.tell(lease.Event{
			Type:   lease.EventType(rapid.IntRange(1, 7).Draw(r, "event")),
			Key:    "k",
			Ticket: n.ticket(), First: n.token(), Last: n.token(),
			Contended: rapid.Bool().Draw(r, "contended"),
			Asker:     rapid.SampledFrom([]string{"", "other:1"}).Draw(r, "asker"),
		})
	default:
		time.Sleep(time.Duration(rapid.IntRange(0, 1500).Draw(r, "ms")) * time.Millisecond)
	}
	synctest.Wait()
}

func (n *nonsense) pick(label string) int {
	return rapid.IntRange(0, len(n.calls)).Draw(n.r, label) - 1
}

// lock begins a call of any kind.
func (n *nonsense) lock() {
	r := n.r
	kind := rapid.SampledFrom([]lease.Kind{lease.ReadWrite, lease.Mutex}).Draw(r, "kind")
	mode := lease.Exclusive
	if kind == lease.ReadWrite && rapid.Bool().Draw(r, "shared") {
		mode = lease.Shared
	}
	conf := &mutexConfig{
		ttl: n.c.conf.ttl, fair: rapid.Bool().Draw(r, "fair"), cached: rapid.Bool().Draw(r, "cached"),
		maxHold: rapid.SampledFrom([]time.Duration{0, 100 * time.Millisecond}).Draw(r, "maxHold"),
	}
	how := call{wait: -1, try: rapid.Bool().Draw(r, "try")}
	ctx, cancel := context.WithCancel(n.t.Context())
	n.calls = append(n.calls, begin(n.t, func() (*Hold, error) { return n.c.acquire(ctx, "k", kind, mode, conf, how) }))
	n.modes, n.cancel = append(n.modes, mode), append(n.cancel, cancel)
}

// answer answers what is on its way, somehow.
func (n *nonsense) answer() {
	if len(n.open) == 0 {
		return
	}
	q := n.open[0]
	n.open = n.open[1:]
	r := n.r
	if rapid.IntRange(0, 3).Draw(r, "fails") == 0 {
		q.fail(rapid.SampledFrom([]error{errStore, lease.ErrKind}).Draw(r, "error"))
		return
	}
	q.reply(lease.Reply{
		Status: lease.Status(rapid.IntRange(0, 5).Draw(r, "status")),
		First:  n.token(), Last: n.token(), Token: n.token(),
		Contended: rapid.Bool().Draw(r, "contended"),
		Waiters:   rapid.IntRange(0, 1).Draw(r, "waiters"),
		Remaining: time.Duration(rapid.IntRange(-1, 3000).Draw(r, "remaining")) * time.Millisecond,
		Rank:      rapid.IntRange(0, 3).Draw(r, "rank"),
		Holder:    rapid.SampledFrom([]string{"other:1", "", lease.Owner(n.c.ID(), n.ticket())}).Draw(r, "holder"),
		Told:      rapid.IntRange(-1, 1).Draw(r, "told"),
		Watched:   rapid.Bool().Draw(r, "watched"),
		Present:   rapid.Bool().Draw(r, "present"),
		Resent:    rapid.Bool().Draw(r, "resent"),
		Sent:      q.at.Add(time.Duration(rapid.IntRange(0, int(time.Since(q.at))).Draw(r, "sent"))),
	})
}

// ticket returns one that is, was, or may come to be in use.
func (n *nonsense) ticket() lease.Ticket {
	now := n.c.tickets.Load()
	return lease.Ticket(now + 2 - min(now+2, rapid.Uint64Range(0, 5).Draw(n.r, "ticket")))
}

// token returns one that is mostly newer than all before it.
func (n *nonsense) token() uint64 {
	n.newest += rapid.Uint64Range(0, 4).Draw(n.r, "token")
	if rapid.IntRange(0, 5).Draw(n.r, "stale") == 0 {
		return rapid.Uint64Range(0, n.newest).Draw(n.r, "old")
	}
	return n.newest
}

// check looks for holds that exclude each other.
func (n *nonsense) check() error {
	var readers, writers int
	for i, a := range n.calls {
		switch {
		case !a.done.Load() || a.err != nil || !a.hold.Valid():
		case n.modes[i] == lease.Shared:
			readers++
		default:
			writers++
		}
	}
	if writers > 1 || writers == 1 && readers > 0 {
		return fmt.Errorf("%d writers beside %d readers", writers, readers)
	}
	return nil
}

// comeToReason has the store answer well, and everything end.
func (n *nonsense) comeToReason() error {
	n.s.obey()
	for range 100 { // more than there can be waiting for each other
		time.Sleep(10 * time.Second)
		synctest.Wait()
		for _, a := range n.calls {
			if a.done.Load() && a.err == nil {
				_ = a.hold.Unlock() // whatever it says
			}
		}
	}
	for i, a := range n.calls {
		if !a.done.Load() {
			return fmt.Errorf("call %d still waits: %+v", i, n.c.Snapshot())
		}
		var w *WaitError
		if a.err != nil && !errors.As(a.err, &w) {
			return fmt.Errorf("call %d: %w", i, a.err)
		}
		n.cancel[i]()
	}
	if k := n.c.Snapshot().Keys; len(k) > 0 {
		return fmt.Errorf("left: %+v", k)
	}
	return nil
}
