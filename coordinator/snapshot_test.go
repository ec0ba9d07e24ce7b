package coordinator

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/lease/memlease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// Keys leave the table all the time; no counter goes back, and none is short in the end.
func TestSnapshotCountsKeysThatLeaveMeanwhile(t *testing.T) {
	server := memlease.NewServer()
	defer server.Close()
	c, err := NewWithStore(server.Store(), WithRetention(0))
	require.NoError(t, err)
	const workers, locks = 4, 500
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range locks {
				h, err := c.Mutex(fmt.Sprintf("k-%d-%d", w, i)).Lock(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				_ = h.Unlock()
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	var newest uint64
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		grants := c.Snapshot().Stats.Grants
		require.GreaterOrEqual(t, grants, newest)
		newest = grants
	}
	require.EqualValues(t, workers*locks, newest)
	require.NoError(t, c.Close(context.Background()))
}

// inBubble runs a test with a coordinator in virtual time.
func inBubble(t *testing.T, test func(t *testing.T, c *Coordinator), opts ...Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := memlease.NewServer()
		c, err := NewWithStore(server.Store(), opts...)
		require.NoError(t, err)
		test(t, c)
		require.NoError(t, c.Close(t.Context()))
		server.Close()
	})
}

// lockBehind has a call wait for a key until it has it, and returns once it waits.
// The hold ends at once.
func lockBehind(t *testing.T, m *Mutex, ctx context.Context) {
	t.Helper()
	go func() {
		if h, err := m.Lock(ctx); err == nil {
			_ = h.Unlock()
		}
	}()
	synctest.Wait()
}

// keyOf returns what a snapshot says of a key.
func keyOf(t *testing.T, s Snapshot, key string) KeySnapshot {
	t.Helper()
	for _, k := range s.Keys {
		if k.Key == key {
			return k
		}
	}
	require.Fail(t, "the snapshot has no such key", key)
	return KeySnapshot{}
}

// A caller that has one key and waits for another is seen as one and the same at
// both, also where its contexts lie within each other.
func TestSnapshotNumbersOwners(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Coordinator) {
		ctx := context.Background()
		a, err := c.Mutex("a").Lock(ctx)
		require.NoError(t, err)
		b, err := c.Mutex("b").Lock(a.Context())
		require.NoError(t, err)
		other, err := c.Mutex("c").Lock(ctx)
		require.NoError(t, err)
		waits, cancel := context.WithCancel(b.Context())
		lockBehind(t, c.Mutex("c"), waits)
		lockBehind(t, c.Mutex("a"), ctx)

		s := c.Snapshot()
		holds := map[string]int{}
		for _, k := range s.Keys {
			require.Len(t, k.Holds, 1)
			holds[k.Key] = k.Holds[0].Owner
		}
		require.NotEqual(t, holds["a"], holds["b"])
		require.Zero(t, holds["c"], "its context was not asked for")
		require.Equal(t, []int{holds["b"], holds["a"]}, keyOf(t, s, "c").Waiters[0].Owners, "the innermost first")
		require.Empty(t, keyOf(t, s, "a").Waiters[0].Owners, "it has nothing")
		cancel()
		require.NoError(t, b.Unlock())
		require.NoError(t, a.Unlock())
		require.NoError(t, other.Unlock())
	})
}

// With an identity fixed beforehand all holds are of one owner, which waits, too.
func TestSnapshotNumbersFixedOwners(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Coordinator) {
		outer, err := c.Mutex("outer").Lock(t.Context())
		require.NoError(t, err)
		fixed := WithOwner(outer.Context())
		a, err := c.Mutex("a").Lock(fixed)
		require.NoError(t, err)
		b, err := c.ReadWrite("b").Lock(a.Context(), lease.Shared)
		require.NoError(t, err)
		other, err := c.Mutex("c").Lock(t.Context())
		require.NoError(t, err)
		waits, cancel := context.WithCancel(b.Context())
		lockBehind(t, c.Mutex("c"), waits)

		s := c.Snapshot()
		owner := keyOf(t, s, "a").Holds[0].Owner
		require.Equal(t, owner, keyOf(t, s, "b").Holds[0].Owner)
		require.Equal(t, []int{owner, keyOf(t, s, "outer").Holds[0].Owner}, keyOf(t, s, "c").Waiters[0].Owners)
		cancel()
		for _, h := range []*Hold{b, a, outer, other} {
			require.NoError(t, h.Unlock())
		}
	})
}

// A context may have been handed down through any number of holds.
func TestSnapshotBoundsTheOwnersOfAWait(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Coordinator) {
		ctx := t.Context()
		var all []*Hold
		for i := range maxOwners + 10 {
			h, err := c.Mutex(fmt.Sprint("k-", i)).Lock(ctx)
			require.NoError(t, err)
			all = append(all, h)
			ctx = h.Context()
		}
		other, err := c.Mutex("c").Lock(t.Context())
		require.NoError(t, err)
		waits, cancel := context.WithCancel(ctx)
		lockBehind(t, c.Mutex("c"), waits)
		s := c.Snapshot()
		owners := keyOf(t, s, "c").Waiters[0].Owners
		require.Len(t, owners, maxOwners)
		require.Equal(t, keyOf(t, s, fmt.Sprint("k-", maxOwners+9)).Holds[0].Owner, owners[0])
		cancel()
		for _, h := range append(all, other) {
			require.NoError(t, h.Unlock())
		}
	})
}

// A TryLock that asks the store waits for its answer, and says so.
func TestSnapshotTellsATryLockFromAWait(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		try := begin(t, func() (*Hold, error) { return c.Mutex("k").TryLock(t.Context()) })
		try.waits()
		k := keyOf(t, c.Snapshot(), "k")
		require.True(t, k.Waiters[0].Try)
		s.next(lease.Acquire).held(1, 100)
		unlock(t, try.holds())
		held := lockOf(t, c.Mutex("k"))
		h := held.holds()
		wait := lockOf(t, c.Mutex("k"))
		wait.waits()
		require.False(t, keyOf(t, c.Snapshot(), "k").Waiters[0].Try)
		unlock(t, h)
		unlock(t, wait.holds())
	})
}

// How a hold was granted, its trace, and the class of its key, where keys have any.
func TestSnapshotTellsPathTraceAndClass(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	provider := trace.NewTracerProvider(trace.WithSpanProcessor(recorder))
	inBubble(t, func(t *testing.T, c *Coordinator) {
		ctx, work := provider.Tracer("test").Start(context.Background(), "work")
		defer work.End()
		first, err := c.Mutex("order:1").Lock(ctx)
		require.NoError(t, err)
		k := keyOf(t, c.Snapshot(), "order:1")
		require.Equal(t, "order", k.Class)
		require.Equal(t, telemetry.PathRedis, k.Holds[0].Path)
		require.False(t, k.Holds[0].Trace.IsValid(), "nothing has asked for it yet")
		synctest.Wait()
		k = keyOf(t, c.Snapshot(), "order:1")
		require.Equal(t, work.SpanContext().TraceID(), k.Holds[0].Trace.TraceID())
		require.NotEqual(t, work.SpanContext().SpanID(), k.Holds[0].Trace.SpanID(), "the hold's span is below")
		require.NoError(t, first.Unlock())

		second, err := c.Mutex("order:1").Lock(context.Background())
		require.NoError(t, err)
		k = keyOf(t, c.Snapshot(), "order:1")
		require.Equal(t, telemetry.PathRetained, k.Holds[0].Path)
		require.False(t, k.Holds[0].Trace.IsValid())
		require.NoError(t, second.Unlock())
		require.NoError(t, c.FlushTelemetry(ctx))
	}, WithTelemetry(telemetry.Config{
		TracerProvider: provider, Roots: -1, KeyClass: func(key string) string { return strings.Split(key, ":")[0] },
	}))
	inBubble(t, func(t *testing.T, c *Coordinator) {
		h, err := c.Mutex("order:1").Lock(t.Context())
		require.NoError(t, err)
		require.Empty(t, keyOf(t, c.Snapshot(), "order:1").Class)
		require.NoError(t, h.Unlock())
	})
}

// A sampler that hangs is the user's, and holds up nobody who looks.
func TestSnapshotDoesNotWaitForASampler(t *testing.T) {
	forever := make(chan struct{})
	provider := trace.NewTracerProvider(scopedSampler(func(p trace.SamplingParameters) trace.SamplingResult {
		<-forever
		return trace.AlwaysSample().ShouldSample(p)
	}))
	server := memlease.NewServer()
	defer server.Close()
	c, err := NewWithStore(server.Store(), WithTelemetry(telemetry.Config{TracerProvider: provider, Roots: -1}))
	require.NoError(t, err)
	h, err := c.Mutex("k").Lock(telemetry.Traced(t.Context()))
	require.NoError(t, err)
	for range 2 {
		require.False(t, keyOf(t, c.Snapshot(), "k").Holds[0].Trace.IsValid())
	}
	close(forever)
	require.Eventually(t, func() bool { return keyOf(t, c.Snapshot(), "k").Holds[0].Trace.IsValid() }, time.Minute, time.Millisecond)
	require.NoError(t, h.Unlock())
	require.NoError(t, c.Close(context.Background()))
}

// Of a hold elsewhere what was heard last is told, and when that was, as long as the
// key is not held here.
func TestSnapshotTellsOfAHoldElsewhere(t *testing.T) {
	heard(t, quietly, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		is := func(trace oteltrace.SpanContext, age time.Duration) {
			t.Helper()
			k := keyOf(t, c.Snapshot(), "k")
			require.Equal(t, trace.TraceID(), k.HolderTrace.TraceID())
			require.Equal(t, trace.SpanID(), k.HolderTrace.SpanID())
			require.Equal(t, age, k.HolderTraceAge)
		}
		none := oteltrace.SpanContext{}
		hears := func(ticket lease.Ticket, trace string) {
			s.tell(lease.Event{Type: lease.Traced, Key: "k", Ticket: ticket, Trace: trace})
		}
		second := telemetry.FormatTrace(elsewhere(2))
		call, _ := r.tracedLock(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		is(none, 0)
		answer := q.waiting()
		answer.Trace = telemetry.FormatTrace(elsewhere(1))
		q.reply(answer)
		is(elsewhere(1), 0)
		require.Equal(t, "other:1", keyOf(t, c.Snapshot(), "k").Holder)
		time.Sleep(20 * time.Millisecond)
		hears(q.Ticket, second)
		is(elsewhere(2), 0)
		time.Sleep(30 * time.Millisecond)
		is(elsewhere(2), 30*time.Millisecond)
		hears(q.Ticket, "nonsense")
		time.Sleep(time.Millisecond)
		is(none, 0)
		hears(q.Ticket, second)
		hears(q.Ticket, "")
		is(none, 0) // who has it now is not traced
		hears(q.Ticket, second)
		s.grant(q.Ticket, 1, 100)
		h := call.holds()
		is(none, 0)
		require.NoError(t, h.Unlock())
	})
}

// A waiting call leads to the request that it is part of, where that is traced.
func TestSnapshotTellsOfWhichRequestAWaitIs(t *testing.T) {
	heard(t, quietly, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		first := lockOf(t, c.Mutex("k")).holdsAfter(s)
		traced, request := r.tracedLock(t, c.Mutex("k"))
		root := lockWith(t, telemetry.Traced(t.Context()), c.Mutex("k"))
		unsampled := request.WithTraceFlags(0)
		quiet := lockWith(t, oteltrace.ContextWithSpanContext(t.Context(), unsampled), c.Mutex("k"))
		waiters := keyOf(t, c.Snapshot(), "k").Waiters
		require.Len(t, waiters, 3)
		require.Equal(t, request, waiters[0].Trace)
		require.False(t, waiters[1].Trace.IsValid(), "it is a trace of its own, and not yet begun")
		require.False(t, waiters[2].Trace.IsValid(), "nobody would find it")
		unlock(t, first)
		for _, call := range []*attempt{traced, root, quiet} {
			unlock(t, call.holds())
		}
	})
}

// What is not sampled is not asked for again and again.
func TestSnapshotAsksForASpanOnce(t *testing.T) {
	provider := trace.NewTracerProvider(scopedSampler(trace.NeverSample().ShouldSample))
	inBubble(t, func(t *testing.T, c *Coordinator) {
		h, err := c.Mutex("k").Lock(telemetry.Traced(t.Context()))
		require.NoError(t, err)
		a, _ := c.actors.Load("k")
		seen := sight{identities: identities{}}
		a.snapshot(&seen)
		require.Len(t, seen.asleep, 1)
		c.Snapshot()
		synctest.Wait()
		seen.asleep = nil
		a.snapshot(&seen)
		require.Empty(t, seen.asleep)
		require.NoError(t, h.Unlock())
	}, WithTelemetry(telemetry.Config{TracerProvider: provider, Roots: -1}))
}

// Where calls came from is written down when the key's mutex is free, once for all
// that came from there.
func TestSnapshotTellsPlaces(t *testing.T) {
	for name, option := range map[string]Option{
		"debug": WithDebug(), "alarms": WithTelemetry(telemetry.Config{AlarmStack: true}),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *Coordinator) {
				h, err := c.Mutex("k").Lock(t.Context())
				require.NoError(t, err)
				waits, cancel := context.WithCancel(t.Context())
				for range 10 {
					lockBehind(t, c.Mutex("k"), waits)
				}
				k := keyOf(t, c.Snapshot(), "k")
				require.Contains(t, k.Holds[0].Place, "TestSnapshotTellsPlaces")
				require.Len(t, k.Waiters, 10)
				for _, w := range k.Waiters {
					require.Contains(t, w.Place, "lockBehind")
				}
				a, _ := c.actors.Load("k")
				picture, rest, _, _ := a.picture(identities{})
				require.Empty(t, picture.Holds[0].Place+picture.Waiters[0].Place)
				require.Len(t, rest.waiters, 10)
				seen := sight{identities: identities{}, places: map[[placeDepth]uintptr]string{}}
				a.snapshot(&seen)
				require.Len(t, seen.places, 2)
				cancel()
				require.NoError(t, h.Unlock())
			}, option)
		})
	}
	inBubble(t, func(t *testing.T, c *Coordinator) {
		h, err := c.Mutex("k").Lock(t.Context())
		require.NoError(t, err)
		require.Empty(t, keyOf(t, c.Snapshot(), "k").Holds[0].Place)
		require.NoError(t, h.Unlock())
	})
}
