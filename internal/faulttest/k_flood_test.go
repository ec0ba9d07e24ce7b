package faulttest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/telemetry"
)

// K3: a thousand locks are held for ten renewals while everything is traced, and others wait for some of them and look
// again and again. There is one span for each wait and one for each hold, and nothing in them that nobody asked for.
func TestRenewalsAndLooksMakeNoSpans(t *testing.T) {
	t.Parallel()
	for _, a := range []struct {
		keys       bool
		held, goOn int
	}{{false, 1000, 10}, {true, 50, 2}} {
		t.Run(fmt.Sprintf("KeyAttribute=%t", a.keys), func(t *testing.T) {
			t.Parallel()
			const ttl, waiting = 5 * time.Second, 20
			held, keys := a.held, a.keys
			s := redistest.Start(t)
			spans, m := &spanList{}, newMeter()
			traces := coordinator.WithTelemetry(telemetry.Config{
				TracerProvider: spans.provider(), MeterProvider: m.provider, KeyAttribute: keys, LeaseSpans: true, Roots: 1_000_000, HoldAlarm: -1,
			})
			c, other := steady(t, s.Addr(), coordinator.WithTTL(ttl), traces), steady(t, s.Addr(), coordinator.WithTTL(ttl), traces)
			name := func(n int) string { return fmt.Sprintf("order:of-Ada-%d", n) }
			holds := make([]*coordinator.Hold, held)
			for n := range holds {
				holds[n] = take(t, c.Mutex(name(n)))
			}
			var waits []<-chan outcome
			for n := range waiting {
				waits = append(waits, lockLater(t.Context(), other.Mutex(name(n))))
			}
			renewed := func(times int) func() bool {
				return func() bool { return stats(c).Renewals >= uint64(times*held) }
			}
			eventually(t, hangs, "one renewal", renewed(1))
			require.Equal(t, map[string]int{telemetry.SpanAcquire: held, telemetry.SpanHold: held}, spans.begunSoFar())
			eventually(t, time.Minute, "many renewals", renewed(a.goOn))
			require.Equal(t, map[string]int{telemetry.SpanAcquire: held, telemetry.SpanHold: held}, spans.begunSoFar())
			require.Zero(t, stats(c).Lost)
			require.Greater(t, stats(other).Commands, uint64(a.goOn*waiting), "they looked again and again")

			tokens := freeAll(t, holds)
			for _, wait := range waits {
				got := await(t, wait, hangs, "the lock")
				require.NoError(t, got.err)
				tokens = append(tokens, freeAll(t, []*coordinator.Hold{got.hold})...)
			}
			require.NoError(t, shut(c))
			require.NoError(t, shut(other))
			all := held + waiting
			want := map[string]int{telemetry.SpanAcquire: all, telemetry.SpanHold: all, telemetry.SpanLease: all}
			require.Equal(t, want, spans.begunSoFar())
			require.Len(t, spans.all(), 3*all, "all have ended")
			requireNothingUnasked(t, spans.all(), keys, tokens)
			hidesAll(t, m.collect(t, other), append(tokens, "of-Ada", "redis.call", "KEYS[1]")...)
		})
	}
}

func freeAll(t *testing.T, holds []*coordinator.Hold) (tokens []string) {
	t.Helper()
	for _, hold := range holds {
		require.NoError(t, hold.Unlock())
		tokens = append(tokens, strconv.FormatUint(hold.Token(), 10))
	}
	return tokens
}

// requireNothingUnasked wants no text of scripts in what was exported, and keys and tokens only in their attributes, if
// they were asked for.
func requireNothingUnasked(t *testing.T, spans []exported, keys bool, tokens []string) {
	t.Helper()
	hidesAll(t, spans, "redis.call", "KEYS[1]", "EVALSHA", "evalsha")
	if !keys {
		hidesAll(t, spans, append(tokens, "of-Ada")...)
		return
	}
	for _, e := range spans {
		require.Contains(t, e.Attributes[string(telemetry.AttrKey)], "of-Ada")
		if e.Name == telemetry.SpanHold {
			require.Contains(t, tokens, e.Attributes[string(telemetry.AttrToken)])
		}
		delete(e.Attributes, string(telemetry.AttrKey))
		delete(e.Attributes, string(telemetry.AttrToken))
	}
	hidesAll(t, spans, append(tokens, "of-Ada")...)
}

// K3: a wait in vain that looks again and again is one span, and what it found is said once.
func TestLongWaitIsOneSpan(t *testing.T) {
	t.Parallel()
	const ttl, looks = 600 * time.Millisecond, 12
	s := redistest.Start(t)
	spans := &spanList{}
	traces := coordinator.WithTelemetry(telemetry.Config{TracerProvider: spans.provider()})
	holder, c := untraced(t, s), steady(t, s.Addr(), coordinator.WithTTL(ttl), traces)
	hold := take(t, holder.Mutex("k"))
	defer func() { require.NoError(t, hold.Unlock()) }()
	_, err := c.Mutex("k").TryLockFor(context.Background(), looks*ttl/3)
	require.ErrorIs(t, err, coordinator.ErrNotAcquired)
	require.Greater(t, stats(c).Commands, uint64(looks/2), "it looked again and again")
	require.NoError(t, c.FlushTelemetry(t.Context()))
	require.Equal(t, map[string]int{telemetry.SpanAcquire: 1}, spans.begunSoFar())
	events := spans.all()[0].eventNames()
	failed := func(name string) bool { return name == telemetry.EventStoreFailed } // a machine that stalls
	require.Equal(t, []string{telemetry.EventLeaseAsked, telemetry.EventDenied}, slices.DeleteFunc(events, failed))
}
