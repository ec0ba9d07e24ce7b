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
	manyRuns(t, "150")
	rapid.Check(t, func(r *rapid.T) {
		var wrong error
		n := &nonsense{drawn: rapid.SliceOfN(rapid.IntRange(0, 1<<20), 200, 600).Draw(r, "drawn")}
		caps := lease.Capabilities{Notices: true, Receipts: true, Tracking: n.yes()}
		opts := []Option{
			WithLogger(quiet), WithHandoff(1+n.upTo(2), 5*time.Millisecond),
			WithRetention(oneOf(n, 50*time.Millisecond, 0, 2*time.Second)),
		}
		scriptedWith(t, caps, func(t *testing.T, s *script, c *Coordinator) {
			n.t, n.s, n.c = t, s, c
			for len(n.drawn) > 0 {
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
	drawn  []int // what is left of the run's chances
	t      *testing.T
	s      *script
	c      *Coordinator
	calls  []*attempt
	modes  []lease.Mode
	cancel []context.CancelFunc
	open   []*sent // not answered
	newest uint64
}

// upTo draws a number from 0 to most. All is drawn before the run, so that rapid
// can make a run that fails smaller.
func (n *nonsense) upTo(most int) int {
	if len(n.drawn) == 0 {
		return 0
	}
	i := n.drawn[0] % (most + 1)
	n.drawn = n.drawn[1:]
	return i
}

func (n *nonsense) yes() bool { return n.upTo(1) == 1 }

// oneOf draws one of the values.
func oneOf[T any](n *nonsense, values ...T) T { return values[n.upTo(len(values)-1)] }

// step does one thing.
func (n *nonsense) step() {
	for q := n.s.take(); q != nil; q = n.s.take() {
		if q.Op != lease.Busy {
			n.open = append(n.open, q)
		}
	}
	switch n.upTo(9) {
	case 0, 1:
		n.lock()
	case 2:
		if i := n.pick(); i >= 0 {
			n.cancel[i]()
		}
	case 3, 4:
		if i := n.pick(); i >= 0 && n.calls[i].done.Load() && n.calls[i].err == nil {
			_ = n.calls[i].hold.Unlock() // whatever it says
		}
	case 5, 6:
		n.answer()
	case 7:
		n.s.tell(lease.Event{
			Type:   lease.EventType(1 + n.upTo(6)),
			Key:    "k",
			Ticket: n.ticket(), First: n.token(), Last: n.token(),
			Contended: n.yes(),
			Asker:     oneOf(n, "", "other:1"),
		})
	default:
		time.Sleep(time.Duration(n.upTo(1500)) * time.Millisecond)
	}
	synctest.Wait()
}

func (n *nonsense) pick() int {
	return n.upTo(len(n.calls)) - 1
}

// lock begins a call of any kind.
func (n *nonsense) lock() {
	kind := oneOf(n, lease.ReadWrite, lease.Mutex)
	mode := lease.Exclusive
	if kind == lease.ReadWrite && n.yes() {
		mode = lease.Shared
	}
	conf := &mutexConfig{
		ttl: n.c.conf.ttl, fair: n.yes(), cached: n.yes(),
		maxHold: oneOf(n, 0, 100*time.Millisecond),
	}
	how := call{wait: -1, try: n.yes()}
	ctx, cancel := context.WithCancel(n.t.Context())
	n.calls = append(n.calls, begin(n.t, func() (*Hold, error) { return acquire(ctx, n.c, "k", kind, mode, conf, how) }))
	n.modes, n.cancel = append(n.modes, mode), append(n.cancel, cancel)
}

// answer answers what is on its way, somehow.
func (n *nonsense) answer() {
	if len(n.open) == 0 {
		return
	}
	q := n.open[0]
	n.open = n.open[1:]
	if n.upTo(3) == 0 {
		q.fail(oneOf(n, errStore, lease.ErrKind))
		return
	}
	q.reply(lease.Reply{
		Status: lease.Status(n.upTo(5)),
		First:  n.token(), Last: n.token(), Token: n.token(),
		Contended: n.yes(),
		Waiters:   n.upTo(1),
		Remaining: time.Duration(n.upTo(3001)-1) * time.Millisecond,
		Rank:      n.upTo(3),
		Holder:    oneOf(n, "other:1", "", lease.Owner(n.c.ID(), n.ticket())),
		Told:      n.upTo(2) - 1,
		Watched:   n.yes(),
		Present:   n.yes(),
		Resent:    n.yes(),
		Sent:      q.at.Add(time.Since(q.at) / 100 * time.Duration(n.upTo(100))),
	})
}

// ticket returns one that is, was, or may come to be in use.
func (n *nonsense) ticket() lease.Ticket {
	now := n.c.tickets.Load()
	return lease.Ticket(now + 2 - min(now+2, uint64(n.upTo(5))))
}

// token returns one that is mostly newer than all before it.
func (n *nonsense) token() uint64 {
	n.newest += uint64(n.upTo(4))
	if n.upTo(5) == 0 {
		return uint64(n.upTo(int(n.newest)))
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
