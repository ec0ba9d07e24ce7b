package coordinator

import (
	"context"

	"github.com/go-leasehold/leasehold/lease"
)

// Inspect asks the store who holds a key, since when and for how long, and who
// waits. A holder that retains an idle lease is shown as holding it.
func (c *Coordinator) Inspect(ctx context.Context, key string) (lease.Info, error) {
	if err := validKey(key); err != nil {
		return lease.Info{}, err
	}
	if ctx == nil {
		return lease.Info{}, invalid("the context is nil")
	}
	return c.store.Inspect(ctx, key)
}

// ForceUnlock takes a key from whoever holds it, in any process, and passes it
// on to who waits. It is for operators: the holder learns of it, its hold ends
// with [ErrLeaseLost], and what it writes after that only the fencing token can
// stop.
func (c *Coordinator) ForceUnlock(ctx context.Context, key string) error {
	if err := validKey(key); err != nil {
		return err
	}
	if ctx == nil {
		return invalid("the context is nil")
	}
	return c.store.Force(ctx, key)
}

// Check looks for what is wrong with the server for locks: a policy that evicts
// keys, a version, missing rights, and so on. An empty list is good news. The
// error says that the server could not be asked.
func (c *Coordinator) Check(ctx context.Context) ([]lease.Problem, error) {
	if ctx == nil {
		return nil, invalid("the context is nil")
	}
	return c.store.Check(ctx)
}
