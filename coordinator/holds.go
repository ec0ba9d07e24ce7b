package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Holds are the holds of several keys, taken by [Coordinator.LockAll].
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
	for _, k := range keys {
		if err := validKey(k); err != nil {
			return nil, err
		}
	}
	sorted := slices.Clone(keys)
	slices.Sort(sorted)
	all := &Holds{}
	for _, k := range slices.Compact(sorted) {
		h, err := c.Mutex(k).Lock(ctx)
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
