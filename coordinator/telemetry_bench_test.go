package coordinator

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/telemetry"
)

// nowhere is an exporter that keeps nothing: what is measured is what a span costs
// until it is exported.
type nowhere struct{}

func (nowhere) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (nowhere) Shutdown(context.Context) error                             { return nil }

// requests are the contexts of a hundred requests, some of which are traced.
func requests(sampled int) []context.Context {
	all := make([]context.Context, 100)
	for i := range all {
		var flags trace.TraceFlags
		if i < sampled {
			flags = trace.FlagsSampled
		}
		all[i] = trace.ContextWithRemoteSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID{1, byte(i)}, SpanID: trace.SpanID{1, byte(i)}, TraceFlags: flags, Remote: true,
		}))
	}
	return all
}

// BenchmarkTelemetry is 64 goroutines on one key in one process, as in
// BenchmarkContended, and a reading of a retained key, told to nobody and to an SDK:
// time as a multiple of that of the first. All take turns in each round, in any order.
//
//	metrics:   a meter, and no tracer
//	unsampled: an SDK, and requests that are not sampled
//	requests:  an SDK that takes 1 % of the traces, as the contexts of requests say
//	roots:     the same, where no context says anything and the sampler is asked
//	all:       an SDK that takes each trace
func BenchmarkTelemetry(b *testing.B) {
	server := redistest.Start(b)
	provider := func(s sdktrace.Sampler) trace.TracerProvider {
		tp := sdktrace.NewTracerProvider(sdktrace.WithBatcher(nowhere{}), sdktrace.WithSampler(s))
		b.Cleanup(func() { _ = tp.Shutdown(context.Background()) })
		return tp
	}
	one := sdktrace.ParentBased(sdktrace.TraceIDRatioBased(0.01))
	meter := metric.NewMeterProvider(metric.WithReader(metric.NewManualReader()))
	silent := telemetry.Config{TracerProvider: noop.NewTracerProvider()}
	contenders := []struct {
		name string
		conf telemetry.Config
		ctxs []context.Context
	}{
		{"nobody", silent, requests(1)},
		{"again", silent, requests(1)}, // how far two that are the same lie apart
		{"metrics", telemetry.Config{TracerProvider: silent.TracerProvider, MeterProvider: meter}, requests(1)},
		{"unsampled", telemetry.Config{TracerProvider: provider(one)}, requests(0)},
		{"requests", telemetry.Config{TracerProvider: provider(one)}, requests(1)},
		{"roots", telemetry.Config{TracerProvider: provider(one)}, slices.Repeat([]context.Context{context.Background()}, 100)},
		{"all", telemetry.Config{TracerProvider: provider(sdktrace.AlwaysSample())}, requests(100)},
	}
	for _, goroutines := range []int{64, 1} {
		b.Run(map[int]string{64: "contended", 1: "retained"}[goroutines], func(b *testing.B) {
			var runs []func(int)
			var coordinators []*Coordinator
			for _, x := range contenders {
				c, err := New(server.Option(), WithTelemetry(x.conf))
				require.NoError(b, err)
				b.Cleanup(func() { _ = c.Close(context.Background()) })
				coordinators = append(coordinators, c)
				m := c.Mutex(x.name)
				var n atomic.Uint64
				runs = append(runs, crowd(goroutines, func() {
					h, err := m.Lock(x.ctxs[n.Add(1)%100])
					if err != nil {
						b.Error(err)
						return
					}
					_ = h.Unlock()
				}))
			}
			times := make([][]float64, len(runs))
			for _, run := range runs {
				run(10_000) // warm
			}
			for b.Loop() {
				for _, i := range rand.Perm(len(runs)) {
					t := time.Now()
					runs[i](100_000)
					_ = coordinators[i].FlushTelemetry(context.Background()) // what is left is not the next one's to pay
					times[i] = append(times[i], float64(time.Since(t)))
					runtime.GC()
				}
			}
			b.ReportMetric(0, "ns/op")
			for i, x := range contenders[1:] {
				var ratios []float64
				for round, t := range times[i+1] {
					ratios = append(ratios, t/times[0][round])
				}
				b.ReportMetric(mid(ratios), "x-"+strings.ToLower(x.name))
			}
			b.ReportMetric(mid(times[0])/100_000, "ns/lock")
		})
	}
}
