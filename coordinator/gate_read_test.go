package coordinator

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
)

// slowCause is a context that takes its time to say why it ended.
type slowCause struct {
	context.Context
	ended chan struct{} // closed when it has
	tell  chan struct{}
}

func (c *slowCause) Value(key any) any {
	select {
	case <-c.ended:
		<-c.tell
	default:
	}
	return c.Context.Value(key)
}

func TestReadThatHasReturnedEndsNobodyElsesHold(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		l := c.ReadWrite("k")
		opened(t, s, l, lease.Shared)
		parent, cancel := context.WithCancel(t.Context())
		ctx := &slowCause{Context: parent, ended: make(chan struct{}), tell: make(chan struct{})}
		returns := make(chan struct{})
		read := begin2(func() error {
			return l.Do(ctx, lease.Shared, func(context.Context) error { <-returns; return nil })
		})
		synctest.Wait()
		close(ctx.ended)
		cancel()
		synctest.Wait() // it wants to end the hold, and is asking for the cause
		close(returns)
		require.NoError(t, <-read) // it was safe when it returned
		var others []*Hold
		for range 3 { // the claim of the read is not to be one of theirs
			others = append(others, asks(t, c.ReadWrite("k", MaxHold(time.Hour))))
		}
		close(ctx.tell)
		synctest.Wait()
		for _, h := range others {
			require.NoError(t, h.Err())
		}
		require.Equal(t, 1, s.commands())
	}, WithRetention(time.Minute))
}
