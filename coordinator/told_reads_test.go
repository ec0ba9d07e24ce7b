package coordinator

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// TestReadBesideOthersEntersAtOnce, also with the context of a hold of another key: it waits for nobody.
func TestReadBesideOthersEntersAtOnce(t *testing.T) {
	r := listen(t)
	c := untold(t, r.config(telemetry.Config{AllAcquires: true}))
	l := c.ReadWrite("r")
	request, _ := r.request(t.Context(), "first")
	first, err := l.Lock(request, lease.Shared)
	require.NoError(t, err)
	request, _ = r.request(t.Context(), "second")
	outer, err := c.Mutex("m").Lock(request)
	require.NoError(t, err)
	before := r.some(telemetry.MetricWaits)
	second, err := l.Lock(outer.Context(), lease.Shared)
	require.NoError(t, err)
	require.Equal(t, before, r.some(telemetry.MetricWaits))
	require.Empty(t, r.some(telemetry.MetricHandoffs))
	require.Equal(t, int64(1), r.some(telemetry.MetricGrants)["retained"])
	unlockAll(t, second, outer, first)
	for _, wait := range r.of(c, telemetry.SpanAcquire) {
		require.Empty(t, wait.Links)
	}
}

func unlockAll(t *testing.T, holds ...*Hold) {
	t.Helper()
	for _, h := range holds {
		require.NoError(t, h.Unlock())
	}
}

// TestHoldsThatAreSampledAreFoundAmongOthers: of those in a writer's way, some calls are not sampled, which is not known
// before anybody needs to know.
func TestHoldsThatAreSampledAreFoundAmongOthers(t *testing.T) {
	r := listen(t, sdktrace.WithSampler(sdktrace.ParentBased(samplerFunc(func(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
		if p.Name == "request" {
			return sdktrace.SamplingResult{Decision: sdktrace.RecordAndSample}
		}
		return sdktrace.SamplingResult{Decision: sdktrace.Drop} // calls without a request
	}))))
	c := untold(t, r.config(telemetry.Config{}))
	l := c.ReadWrite("r")
	var holds []*Hold
	for i := range maxCandidates {
		ctx := context.Background()
		if i == maxCandidates-1 {
			ctx, _ = r.request(ctx, "request")
		}
		h, err := l.Lock(ctx, lease.Shared)
		require.NoError(t, err)
		holds = append([]*Hold{h}, holds...)
	}
	request, span := r.request(t.Context(), "request")
	done := make(chan *Hold)
	go func() {
		h, err := l.Lock(request, lease.Exclusive)
		if err != nil {
			t.Error(err)
		}
		done <- h
	}()
	require.Eventually(t, func() bool { return len(waitersOf(c)) == 1 }, time.Minute, time.Millisecond)
	unlockAll(t, holds...) // the sampled one first: it is no predecessor either
	unlockAll(t, <-done)
	require.Len(t, r.under(c, span.SpanContext(), telemetry.SpanAcquire).Links, 1)
}

// TestCountOfReadsDoesNotGoBack while one is sent back at the gate.
func TestCountOfReadsDoesNotGoBack(t *testing.T) {
	r := listen(t)
	c := untold(t, telemetry.Config{MeterProvider: r.meters, Roots: -1})
	l := c.ReadWrite("r")
	read := func() *Hold {
		h, err := l.Lock(t.Context(), lease.Shared)
		require.NoError(t, err)
		return h
	}
	for range 10 {
		unlockAll(t, read())
	}
	a, _ := c.actors.Load("r")
	long := read()
	require.True(t, a.gate.open.Load())
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() {
		_, err := l.Lock(ctx, lease.Exclusive)
		failed <- err
	}()
	require.Eventually(t, func() bool { return !a.gate.open.Load() }, time.Minute, time.Millisecond)
	b := a.gate.enter() // as pass does between its two looks
	first := r.some(telemetry.MetricGrants)["passed"]
	a.gate.goBack(b)
	require.GreaterOrEqual(t, r.some(telemetry.MetricGrants)["passed"], first)
	cancel()
	require.ErrorIs(t, <-failed, context.Canceled)
	unlockAll(t, long)
}
