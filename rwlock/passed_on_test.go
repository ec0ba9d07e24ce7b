package rwlock_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/coordinator/coordinatortest"
	"github.com/go-leasehold/leasehold/rwlock"
)

// A hold that ends under its work has ended for that work, by its context, before anybody else is let in: in this
// process or, by the release, in another.
func TestContextEndsBeforeTheLockIsPassedOn(t *testing.T) {
	for name, way := range map[string]struct {
		opts func(ctx context.Context) []coordinator.MutexOption
		end  func(h *coordinatortest.Harness, cancel func())
	}{
		"MaxHold": {
			opts: func(context.Context) []coordinator.MutexOption {
				return []coordinator.MutexOption{coordinator.MaxHold(time.Minute)}
			},
			end: func(*coordinatortest.Harness, func()) { time.Sleep(time.Minute) },
		},
		"EndWith": {
			opts: func(ctx context.Context) []coordinator.MutexOption {
				return []coordinator.MutexOption{coordinator.EndWith(ctx)}
			},
			end: func(_ *coordinatortest.Harness, cancel func()) { cancel() },
		},
		"Close": {
			opts: func(context.Context) []coordinator.MutexOption { return nil },
			end: func(h *coordinatortest.Harness, _ func()) {
				ended, cancel := context.WithCancel(context.Background())
				cancel()
				_ = h.Coordinator.Close(ended) // how it ends is not what this is about
			},
		},
	} {
		for _, local := range []bool{true, false} {
			if local && name == "Close" {
				continue // nobody is let in here
			}
			t.Run(fmt.Sprintf("%s/local %t", name, local), func(t *testing.T) {
				for range 50 {
					bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
						request, cancel := context.WithCancel(t.Context())
						defer cancel()
						hold := write(t, rwlock.New(h.Coordinator, "k", way.opts(request)...))
						ctx := hold.Context()
						next := h.Coordinator
						if !local {
							next = h.Another()
						}
						early := make(chan bool, 1)
						waiting := begin(t, func(c context.Context) (rwlock.Hold, error) {
							r, err := rwlock.New(next, "k").RLock(c)
							early <- ctx.Err() == nil
							return r, err
						})
						synctest.Wait()
						way.end(h, cancel)
						require.False(t, <-early, "it is let in beside a hold whose work goes on")
						unlock(t, waiting.granted(t))
					})
				}
			})
		}
	}
}
