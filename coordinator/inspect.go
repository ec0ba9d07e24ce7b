package coordinator

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-leasehold/leasehold/lease"
)

// Inspect asks the store who holds a key, since when and for how long, and who
// waits. A holder that retains an idle lease is shown as holding it. The error is
// [ErrUnavailable], [ErrKind] or [ErrClosed].
func (c *Coordinator) Inspect(ctx context.Context, key string) (lease.Info, error) {
	if err := validKey(key); err != nil {
		return lease.Info{}, err
	}
	if ctx == nil {
		return lease.Info{}, invalid("the context is nil")
	}
	info, err := c.store.Inspect(ctx, key)
	return info, asked(err)
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
	return asked(c.store.Force(ctx, key))
}

// Check looks for what is wrong with the server for locks: a policy that evicts
// keys, a version, missing rights, and so on. An empty list is good news. The
// error says that the server could not be asked: [ErrUnavailable].
func (c *Coordinator) Check(ctx context.Context) ([]lease.Problem, error) {
	if ctx == nil {
		return nil, invalid("the context is nil")
	}
	problems, err := c.store.Check(ctx)
	return problems, asked(err)
}

// asked returns the error of a question to the store: ErrClosed, ErrKind, or
// ErrUnavailable with the store's own.
func asked(err error) error {
	switch {
	case err == nil || errors.Is(err, ErrKind):
		return err
	case errors.Is(err, lease.ErrStoreClosed):
		return ErrClosed
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
