package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
)

// Holds are the holds of several keys, taken by [Coordinator.LockAll] or [LockEach].
type Holds struct {
	holds []*Hold // in the order of their keys
}

// LockAll locks several keys, all or none. It takes them one by one in their
// sorted order, duplicates once, so that two calls can't wait for each other;
// it holds those it has while it waits for the next.
func (c *Coordinator) LockAll(ctx context.Context, keys ...string) (*Holds, error) {
	if len(keys) == 0 {
		return nil, invalid("LockAll without a key")
	}
	mutexes := make([]*Mutex, len(keys))
	for i, k := range keys {
		mutexes[i] = c.Mutex(k)
	}
	return LockEach(ctx, mutexes...)
}

// LockEach is [Coordinator.LockAll] for mutexes of one coordinator, with their
// options; of several with the same key the first counts.
func LockEach(ctx context.Context, mutexes ...*Mutex) (*Holds, error) {
	if len(mutexes) == 0 {
		return nil, invalid("LockEach without a mutex")
	}
	for i, m := range mutexes {
		switch {
		case m == nil:
			return nil, invalid("mutex %d of LockEach is nil", i)
		case m.c != mutexes[0].c:
			return nil, invalid("the mutexes of LockEach have different coordinators")
		case m.err != nil:
			return nil, m.err
		}
	}
	all := &Holds{}
	for _, m := range inOrder(mutexes) {
		h, err := m.Lock(ctx)
		if err != nil {
			if len(all.holds) > 0 {
				_ = all.Unlock() // the error to tell is that of the wait
			}
			return nil, err
		}
		all.holds = append(all.holds, h)
		// The next wait ends when this hold is lost, and so does its context.
		ctx = h.Context()
	}
	return all, nil
}

// inOrder returns mutexes in the order of their keys, each key once.
func inOrder(mutexes []*Mutex) []*Mutex {
	sorted := slices.Clone(mutexes)
	slices.SortStableFunc(sorted, func(a, b *Mutex) int { return cmp.Compare(a.key, b.key) })
	return slices.CompactFunc(sorted, func(a, b *Mutex) bool { return a.key == b.key })
}

// Unlock ends all the holds, the last one first. It joins what their Unlocks
// say, each with its key.
func (h *Holds) Unlock() error {
	if h == nil {
		return ErrNotHeld
	}
	var errs []error
	for _, x := range slices.Backward(h.holds) {
		if err := x.Unlock(); err != nil {
			errs = append(errs, fmt.Errorf("key %s: %w", shown(x.Key()), err))
		}
	}
	return errors.Join(errs...)
}

// Context returns a context that ends when any of the holds is no longer safe.
// Locking any of the keys again with it enters at once.
func (h *Holds) Context() context.Context { return h.holds[len(h.holds)-1].Context() }

// All returns the holds in the order of their keys.
func (h *Holds) All() []*Hold { return slices.Clone(h.holds) }
