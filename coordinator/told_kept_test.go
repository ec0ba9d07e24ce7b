package coordinator

import (
	"context"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/go-leasehold/leasehold/telemetry"
)

// TestCallsThatFollowEachOtherAreNotKept: each is linked to the one before, which must not keep it, and its request,
// for as long as the key is never free.
func TestCallsThatFollowEachOtherAreNotKept(t *testing.T) {
	type request struct{ context.Context }
	for _, roots := range []bool{false, true} {
		p := sdktrace.NewTracerProvider()
		c := untold(t, telemetry.Config{TracerProvider: p, Roots: 1000})
		m := c.Mutex("k")
		var all []weak.Pointer[request]
		arrive := func() context.Context {
			ctx, cancel := context.WithCancel(context.Background())
			t.Cleanup(cancel)
			if !roots {
				ctx, _ = p.Tracer("test").Start(ctx, "request")
			}
			r := &request{ctx}
			all = append(all, weak.Make(r))
			return r
		}
		h, err := m.Lock(arrive())
		require.NoError(t, err)
		const calls = 50
		for range calls {
			next, ctx := make(chan *Hold), arrive()
			go func() {
				h, err := m.Lock(ctx)
				if err != nil {
					t.Error(err)
				}
				next <- h
			}()
			require.Eventually(t, func() bool { return len(waitersOf(c)) == 1 }, time.Minute, 100*time.Microsecond)
			require.NoError(t, h.Unlock())
			h = <-next
		}
		require.NoError(t, c.FlushTelemetry(t.Context()))
		require.Eventually(t, func() bool {
			runtime.GC()
			kept := 0
			for _, r := range all {
				if r.Value() != nil {
					kept++
				}
			}
			return kept <= 4
		}, 20*time.Second, 10*time.Millisecond, "they are kept")
		require.NoError(t, h.Unlock())
	}
}

// waitersOf are those of the only key.
func waitersOf(c *Coordinator) []WaiterSnapshot {
	s := c.Snapshot()
	if len(s.Keys) == 0 {
		return nil
	}
	return s.Keys[0].Waiters
}
