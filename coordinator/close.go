package coordinator

import (
	"context"
	"fmt"
	"time"
)

// closeGrace is how long Close goes on after its context has ended, to hand
// over what it has just taken from its holders.
const closeGrace = 250 * time.Millisecond

// Close ends the coordinator. Waiting calls get [ErrClosed] at once, and so
// does every later one. Holds may finish until ctx ends; what is left of them
// then ends with [ErrClosed]. Every lease is handed over, at the latest a
// quarter of a second after the end of ctx. The error says how many keys could
// not be: those expire by themselves, at their TTL. After Close no goroutine is
// left. Closing again waits for the first to be through, and says the same.
func (c *Coordinator) Close(ctx context.Context) error {
	if ctx == nil {
		return invalid("the context is nil")
	}
	c.close.Do(func() {
		c.tasks.Go(func() {
			c.err = c.shutDown(ctx)
		})
		go func() { // ends with the tasks, which shutDown ends
			c.tasks.Wait()
			c.tel.Close(closeGrace)
			c.journal.end()
			close(c.closed)
		}()
	})
	select {
	case <-c.closed:
		return c.err
	case <-ctx.Done():
	}
	// The first call's own grace is short, and its end worth knowing; another's
	// context may have ended long before.
	select {
	case <-c.closed:
		return c.err
	case <-time.After(2 * closeGrace):
		return fmt.Errorf("leasehold: close goes on: %w", context.Cause(ctx))
	}
}

func (c *Coordinator) shutDown(ctx context.Context) error {
	c.closing.Store(true)
	c.closeActors(nil)
	late, cancel := afterwards(ctx, closeGrace)
	defer cancel()
	if !c.awaitEmpty(ctx) {
		c.closeActors(ErrClosed)
		c.awaitEmpty(late)
	}
	left := c.live.Load()
	err := c.store.Close(late) // also where there was nothing to wait for: the store has to say good-bye
	close(c.stop)
	c.actors.Range(func(_ string, a *actor) bool {
		now := a.enter()
		a.endEverything(now)
		a.leave(now)
		return true
	})
	switch {
	case left > 0:
		return fmt.Errorf("leasehold: close: %d keys could not be handed over and expire by themselves: %w", left, ErrUnavailable)
	case err != nil:
		return fmt.Errorf("leasehold: close: %w", err)
	}
	return nil
}

// afterwards returns a context that ends some time after ctx does.
func afterwards(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(d, cancel) })
	return late, func() { stop(); cancel() }
}

// closeActors refuses all waiting claims, and ends the holds as well if it is
// given a cause.
func (c *Coordinator) closeActors(cause error) {
	c.actors.Range(func(_ string, a *actor) bool {
		now := a.enter()
		a.closing = true
		a.refuseAll(ErrClosed)
		if cause != nil {
			a.endAll(cause, now)
		}
		a.unlearn()
		a.leave(now)
		return true
	})
}

// awaitEmpty waits until every key is handed over, and says whether that is so.
func (c *Coordinator) awaitEmpty(ctx context.Context) bool {
	for c.live.Load() > 0 {
		select {
		case <-c.emptied:
		case <-ctx.Done():
			return c.live.Load() == 0
		}
	}
	return true
}
