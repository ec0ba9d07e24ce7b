package torture

import (
	"slices"
	"time"
)

// troubles are the faults that are in force.
type troubles struct {
	now    []trouble
	counts map[string]int
}

// trouble is one, and what ends it.
type trouble struct {
	until time.Time
	end   func()
}

// begin notes a fault that lasts.
func (t *troubles) begin(name string, lasting time.Duration, end func()) {
	t.counts[name]++
	t.now = append(t.now, trouble{time.Now().Add(lasting), end})
}

// once notes one that is over.
func (t *troubles) once(name string) { t.counts[name]++ }

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
