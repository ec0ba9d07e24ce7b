package coordinator

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// hangingMeters is a provider whose histograms hang, in a method, until let go.
type hangingMeters struct {
	metric.MeterProvider

	at    string
	hangs atomic.Bool
	letGo chan struct{}
}

func (p *hangingMeters) Meter(name string, opts ...metric.MeterOption) metric.Meter {
	return &hangingMeter{p.MeterProvider.Meter(name, opts...), p}
}

func (p *hangingMeters) meet(at string) {
	if at == p.at && p.hangs.Load() {
		<-p.letGo
	}
}

type hangingMeter struct {
	metric.Meter
	p *hangingMeters
}

func (m *hangingMeter) Float64Histogram(name string, opts ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	h, err := m.Meter.Float64Histogram(name, opts...)
	return &hangingHistogram{h, m.p}, err
}

type hangingHistogram struct {
	metric.Float64Histogram
	p *hangingMeters
}

func (h *hangingHistogram) Enabled(context.Context) bool {
	h.p.meet("Enabled")
	return true
}

func (h *hangingHistogram) Record(ctx context.Context, value float64, opts ...metric.RecordOption) {
	h.p.meet("Record")
	h.Float64Histogram.Record(ctx, value, opts...)
}

// TestMetersThatHangHoldNobodyUp: neither calls that are refused, nor the coordinator's own work, nor Close.
func TestMetersThatHangHoldNobodyUp(t *testing.T) {
	for _, at := range []string{"Enabled", "Record"} {
		synctest.Test(t, func(t *testing.T) {
			r := listen(t)
			p := &hangingMeters{MeterProvider: r.meters, at: at, letGo: make(chan struct{})}
			s, c := scriptOf(t, telemetry.Config{MeterProvider: p})
			s.obey()
			h, err := c.Mutex("k").Lock(t.Context())
			require.NoError(t, err)
			p.hangs.Store(true)
			time.Sleep(2 * watchEvery)
			_, err = c.Mutex("k").TryLock(t.Context())
			require.ErrorIs(t, err, ErrNotAcquired)
			_, err = c.Mutex("k").TryLockFor(t.Context(), time.Second)
			require.ErrorIs(t, err, ErrNotAcquired)
			require.NoError(t, h.Unlock())
			begun := time.Now()
			require.NoError(t, c.Close(t.Context()))
			require.Equal(t, closeGrace, time.Since(begun))
			close(p.letGo)
		})
	}
}

// TestSamplersThatHangDoNotHoldLockUp, also where others wait to be told of the hold's span; nor Snapshot.
func TestSamplersThatHangDoNotHoldLockUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		letGo := make(chan struct{})
		r := listen(t, scopedSampler(func(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
			if p.Name == telemetry.SpanHold {
				<-letGo
			}
			return sdktrace.SamplingResult{Decision: sdktrace.RecordAndSample}
		}))
		s, c := scriptOf(t, r.config(telemetry.Config{}))
		ctx, span := r.request(t.Context(), "request")
		call := lockWith(t, ctx, c.Mutex("k"))
		q := s.next(lease.Acquire)
		q.reply(lease.Reply{Status: lease.Held, First: 1, Last: 100, Contended: true})
		h := call.holds()
		require.Len(t, c.Snapshot().Keys[0].Holds, 1)
		unlock(t, h)
		close(letGo)
		s.obey()
		require.NoError(t, c.Close(t.Context()))
		r.under(c, span.SpanContext(), telemetry.SpanHold)
	})
}

// TestProcessorsMayLook at the coordinator, of whose spans they are told.
func TestProcessorsMayLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := &looking{}
		r := listen(t, sdktrace.WithSpanProcessor(looks))
		s, c := scriptOf(t, r.config(telemetry.Config{}))
		s.obey()
		looks.at.Store(c)
		ctx, _ := r.request(t.Context(), "request")
		h, err := c.Mutex("k").Lock(ctx)
		require.NoError(t, err)
		h.Context()
		require.Positive(t, looks.n.Load())
		require.NoError(t, h.Unlock())
		require.NoError(t, c.Close(t.Context()))
	})
}

// looking is a processor that takes a snapshot of the coordinator when a span begins.
type looking struct {
	tracetest.SpanRecorder

	at atomic.Pointer[Coordinator]
	n  atomic.Int64
}

func (l *looking) OnStart(context.Context, sdktrace.ReadWriteSpan) {
	if c := l.at.Load(); c != nil {
		l.n.Add(int64(len(c.Snapshot().Keys)))
	}
}
