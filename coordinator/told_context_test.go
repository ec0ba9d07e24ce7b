package coordinator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/trace"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

type contextKey struct{}

// TestContextOfATracedHoldIsWhatItWas, and has the span besides.
func TestContextOfATracedHoldIsWhatItWas(t *testing.T) {
	heard(t, telemetry.Config{}, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		s.obey()
		for name, traced := range map[string]bool{"a caller's span": true, "a root": false} {
			parent := context.WithValue(t.Context(), contextKey{}, name)
			var request trace.SpanContext
			if traced {
				var span trace.Span
				parent, span = r.request(parent, "request")
				request = span.SpanContext()
			}
			parent, cancel := context.WithCancelCause(parent)
			h, err := c.Mutex("k").Lock(parent)
			require.NoError(t, err)
			ctx := h.Context()
			require.Equal(t, name, ctx.Value(contextKey{}), "the caller's values")
			require.Same(t, h, HoldFrom(ctx))
			is := trace.SpanContextFromContext(ctx)
			require.True(t, is.IsSampled())
			require.NotEqual(t, request.SpanID(), is.SpanID())
			if traced {
				require.Equal(t, request.TraceID(), is.TraceID())
			}
			_, work := r.provider.Tracer("test").Start(ctx, "work")
			work.End()
			h2, err := c.Mutex("k").Lock(ctx) // it is inside
			require.NoError(t, err)
			require.Same(t, h2, HoldFrom(h2.Context()))
			require.NoError(t, h2.Unlock())
			why := errors.New("why")
			cancel(why)
			require.Equal(t, why, context.Cause(ctx), "the caller's cancellation")
			require.NoError(t, h.Unlock())
			hold := r.of(c, telemetry.SpanHold)[0]
			require.Equal(t, is.SpanID(), hold.SpanContext.SpanID())
			for _, other := range r.spans.GetSpans() {
				if other.Name == "work" {
					require.Equal(t, is.SpanID(), other.Parent.SpanID(), "the work is below the hold")
				}
			}
			r.reset(c)
		}
		h, err := c.Mutex("k").Lock(t.Context())
		require.NoError(t, err)
		ctx := h.Context()
		require.NoError(t, h.Unlock())
		require.ErrorIs(t, context.Cause(ctx), ErrReleased)
	}, WithRetention(time.Minute))
}

// TestWorkOfDoIsBelowItsHold.
func TestWorkOfDoIsBelowItsHold(t *testing.T) {
	heard(t, quietly, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		s.obey()
		ctx, span := r.request(t.Context(), "request")
		var is trace.SpanContext
		require.NoError(t, c.Mutex("k").Do(ctx, func(ctx context.Context) error {
			is = trace.SpanContextFromContext(ctx)
			require.NotZero(t, HoldFrom(ctx).Token())
			return nil
		}))
		require.Equal(t, is.SpanID(), r.under(c, span.SpanContext(), telemetry.SpanHold).SpanContext.SpanID())
	})
}

// everything writes down all that an SDK and a logger were told.
func everything(r *listener, c *Coordinator, log *lines) string {
	r.t.Helper()
	var b bytes.Buffer
	for _, s := range r.all(c) {
		for _, part := range []any{s.Name, s.Attributes, s.Events, s.Links, s.Status, s.Resource.String(), s.SpanContext.TraceState().String()} {
			text, err := json.Marshal(part)
			require.NoError(r.t, err)
			b.Write(text)
		}
	}
	var rm metricdata.ResourceMetrics
	require.NoError(r.t, r.reader.Collect(context.Background(), &rm))
	text, err := json.Marshal(rm.ScopeMetrics)
	require.NoError(r.t, err)
	b.Write(text)
	if log != nil {
		b.WriteString(log.String())
	}
	return b.String()
}

// TestKeysAndTokensAreToldOnlyWhereThatIsAsked: in whatever becomes of a call.
func TestKeysAndTokensAreToldOnlyWhereThatIsAsked(t *testing.T) {
	const key, token = "secret-of-a-user", 7700077007700
	for _, told := range []bool{false, true} {
		conf := telemetry.Config{KeyAttribute: told, AllAcquires: true, LeaseSpans: true, HoldAlarm: -1}
		heard(t, conf, func(t *testing.T, s *script, c *Coordinator, r *listener) {
			first := lockOf(t, c.Mutex(key))
			s.next(lease.Acquire).held(token, token+100)
			second := lockOf(t, c.Mutex(key))
			ctx, cancel := context.WithCancel(t.Context())
			third := lockWith(t, ctx, c.Mutex(key))
			tryOf(t, c.Mutex(key)).fails(ErrNotAcquired)
			s.sink(lease.Event{Type: lease.Wanted, Key: key, Ticket: 1})
			s.next(lease.Annotate).end()
			s.within(time.Second, lease.Renew).fail(errors.New("gone: " + key))
			s.within(time.Second, lease.Renew).reply(lease.Reply{Status: lease.Held, Waiters: 1})
			cancel()
			third.fails(context.Canceled)
			unlock(t, lockWith(t, first.holds().Context(), c.Mutex(key)).holds())
			unlock(t, first.holds())
			release := s.next(lease.Release)
			release.reply(lease.Reply{Status: lease.Held, First: token + 1000, Last: token + 1100})
			h := second.holds()
			s.after(checkHoldAfter, lease.Annotate).end()
			s.within(time.Second, lease.Renew).reply(lease.Reply{Status: lease.Lost})
			require.ErrorIs(t, h.Unlock(), ErrLeaseLost)

			text := everything(r, c, nil)
			require.Equal(t, told, strings.Contains(text, key), text)
			require.Equal(t, told, strings.Contains(text, "77000770"), text)
			require.NotEmpty(t, r.of(c, telemetry.SpanLease))
			for _, x := range r.all(c) {
				got, ok := attrs(x.Attributes)[telemetry.AttrKey]
				require.Equal(t, told, ok)
				if told {
					require.Equal(t, key, got)
				}
				if x.Name == telemetry.SpanHold && told {
					require.Contains(t, []any{int64(token), int64(token + 1000)}, attrs(x.Attributes)[telemetry.AttrToken])
				}
			}
			var rm metricdata.ResourceMetrics
			require.NoError(t, r.reader.Collect(context.Background(), &rm))
			metrics, err := json.Marshal(rm.ScopeMetrics)
			require.NoError(t, err)
			require.NotContains(t, string(metrics), key, "never in metrics")
		})
	}
}

// TestHoldThatIsOverIsToldWhenItsContextEnds: who hears of the end and flushes, as a program that gives up, misses nothing.
func TestHoldThatIsOverIsToldWhenItsContextEnds(t *testing.T) {
	r := listen(t)
	c := untold(t, r.config(telemetry.Config{}))
	for n := range 200 {
		ctx, span := r.request(t.Context(), "request")
		h, err := c.Mutex(fmt.Sprint(n), MaxHold(5*time.Millisecond)).Lock(ctx)
		require.NoError(t, err)
		work := h.Context()
		if work.Err() == nil { // else its time was up before the key's actor saw to it
			<-work.Done()
			r.under(c, span.SpanContext(), telemetry.SpanHold)
		}
		require.ErrorIs(t, h.Unlock(), ErrHoldExpired)
	}
}
