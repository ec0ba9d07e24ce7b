package leasetest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
)

// recorder keeps the events of a store until a test asks for them.
type recorder struct {
	suite *suite
	news  chan struct{} // has room for one

	mu struct {
		sync.Mutex

		events []lease.Event
		inside map[string]bool // keys whose event is being told
	}
}

func (r *recorder) init(s *suite) {
	r.suite = s
	r.news = make(chan struct{}, 1)
	r.mu.inside = make(map[string]bool)
}

// record is the sink.
func (r *recorder) record(e lease.Event) {
	r.mu.Lock()
	if r.mu.inside[e.Key] {
		r.suite.Errorf("two events at a time for key %q", e.Key)
	}
	r.mu.inside[e.Key] = true
	r.mu.Unlock()

	if e.Type == lease.Granted {
		r.suite.ledger.add(r.suite, e.Key, e.First, e.Last, -1)
	}

	r.mu.Lock()
	r.mu.inside[e.Key] = false
	r.mu.events = append(r.mu.events, e)
	r.mu.Unlock()
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// event waits for an event that matches and takes it away.
func (r *recorder) event(what string, match func(lease.Event) bool) lease.Event {
	r.suite.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		if e, ok := r.takeOne(match); ok {
			return e
		}
		select {
		case <-r.news:
		case <-timer.C:
			r.mu.Lock()
			events := fmt.Sprintf("%+v", r.mu.events)
			r.mu.Unlock()
			require.Fail(r.suite, "was not told: "+what, "told: %s", events)
		}
	}
}

func (r *recorder) takeOne(match func(lease.Event) bool) (lease.Event, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.mu.events, match)
	if i < 0 {
		return lease.Event{}, false
	}
	e := r.mu.events[i]
	r.mu.events = slices.Delete(r.mu.events, i, i+1)
	return e, true
}

// take takes all events that match.
func (r *recorder) take(match func(lease.Event) bool) []lease.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	var taken []lease.Event
	r.mu.events = slices.DeleteFunc(r.mu.events, func(e lease.Event) bool {
		if !match(e) {
			return false
		}
		taken = append(taken, e)
		return true
	})
	return taken
}

// ledger has every block of tokens that was seen.
type ledger struct {
	mu struct {
		sync.Mutex

		blocks map[string][]block
	}
}

type block struct{ first, last uint64 }

// add checks a block: its size (unless n is negative), and that none of its
// tokens was given out before, by whatever way.
func (l *ledger) add(s *suite, key string, first, last uint64, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n == 0 {
		if first != 0 || last != 0 {
			s.Errorf("tokens %d to %d, though none were asked for", first, last)
		}
		return
	}
	if first == 0 || last < first || n > 0 && last-first+1 != uint64(n) {
		s.Errorf("tokens %d to %d, though %d were asked for", first, last, n)
		return
	}
	if l.mu.blocks == nil {
		l.mu.blocks = make(map[string][]block)
	}
	for _, b := range l.mu.blocks[key] {
		if first <= b.last && b.first <= last {
			s.Errorf("tokens %d to %d, of which some were given out in %d to %d", first, last, b.first, b.last)
		}
	}
	l.mu.blocks[key] = append(l.mu.blocks[key], block{first, last})
}
