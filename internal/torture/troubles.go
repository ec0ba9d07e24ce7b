package torture

import (
	"fmt"
	"slices"
	"time"

	"github.com/go-leasehold/leasehold/internal/history"
)

// troubles are the faults that are in force.
type troubles struct {
	now    []trouble
	counts map[string]int
	log    []string // what happened when, by history.Now in ms
}

// trouble is one, and what ends it.
type trouble struct {
	until time.Time
	end   func()
}

// begin notes a fault that lasts.
func (t *troubles) begin(name string, lasting time.Duration, end func()) {
	t.count(name, "for %v", lasting.Round(time.Millisecond))
	t.now = append(t.now, trouble{time.Now().Add(lasting), func() {
		end()
		t.note("end of %s", name)
	}})
}

// count counts a fault, and notes what more there is to say of it.
func (t *troubles) count(name, format string, args ...any) {
	t.counts[name]++
	t.note(name+": "+format, args...)
}

// note writes a line for whoever looks for the cause of a failure.
func (t *troubles) note(format string, args ...any) {
	t.log = append(t.log, fmt.Sprintf("%.3f ms: ", float64(history.Now())/1e6)+fmt.Sprintf(format, args...))
}

// endTroubles waits until then, and ends each fault when its time is up.
func (t *troubles) endTroubles(then time.Time) {
	for {
		slices.SortStableFunc(t.now, func(a, b trouble) int { return a.until.Compare(b.until) })
		if len(t.now) == 0 || t.now[0].until.After(then) {
			break
		}
		time.Sleep(time.Until(t.now[0].until))
		first := t.now[0]
		t.now = t.now[1:]
		first.end()
	}
	time.Sleep(time.Until(then))
}

// endAll ends all of them now.
func (t *troubles) endAll() {
	for _, one := range t.now {
		one.end()
	}
	t.now = nil
}
