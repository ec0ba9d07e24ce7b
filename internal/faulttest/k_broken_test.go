package faulttest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/lease/memlease"
	"github.com/go-leasehold/leasehold/telemetry"
)

func init() { roles["passer"] = playPasser }

// What receivers of telemetry do that are broken.
func hangsOn[T any](T)  { select {} }
func burstsOn[T any](T) { panic("not today") }

// Providers that panic, one way each.
type (
	burstingTracers struct{ tracenoop.TracerProvider }
	burstingTracing struct{ tracenoop.TracerProvider }
	burstingTracer  struct{ tracenoop.Tracer }
	burstingMeters  struct{ metricnoop.MeterProvider }
	burstingMetrics struct{ metricnoop.MeterProvider }
	burstingMeter   struct{ metricnoop.Meter }
	refusingMetrics struct{ metricnoop.MeterProvider }
	refusingMeter   struct{ metricnoop.Meter }
)

func (burstingTracers) Tracer(string, ...trace.TracerOption) trace.Tracer { panic("no tracer") }
func (burstingTracing) Tracer(string, ...trace.TracerOption) trace.Tracer { return burstingTracer{} }
func (burstingTracer) Start(context.Context, string, ...trace.SpanStartOption) (context.Context, trace.Span) {
	panic("no span")
}
func (burstingMeters) Meter(string, ...metric.MeterOption) metric.Meter  { panic("no meter") }
func (burstingMetrics) Meter(string, ...metric.MeterOption) metric.Meter { return burstingMeter{} }
func (burstingMeter) RegisterCallback(metric.Callback, ...metric.Observable) (metric.Registration, error) {
	panic("no callback")
}
func (refusingMetrics) Meter(string, ...metric.MeterOption) metric.Meter { return refusingMeter{} }
func (refusingMeter) Float64Histogram(string, ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	return nil, errors.New("no histogram")
}

// hangingMetrics is an exporter of metrics that never returns.
type hangingMetrics struct{}

func (hangingMetrics) Temporality(sdkmetric.InstrumentKind) metricdata.Temporality {
	return metricdata.CumulativeTemporality
}
func (hangingMetrics) Aggregation(k sdkmetric.InstrumentKind) sdkmetric.Aggregation {
	return sdkmetric.DefaultAggregationSelector(k)
}
func (hangingMetrics) Export(context.Context, *metricdata.ResourceMetrics) error { select {} }
func (hangingMetrics) ForceFlush(context.Context) error                          { return nil }
func (hangingMetrics) Shutdown(context.Context) error                            { return nil }

// provided are spans for an exporter.
func provided(by func(sdktrace.SpanExporter) sdktrace.TracerProviderOption, to exporter) telemetry.Config {
	return telemetry.Config{TracerProvider: sdktrace.NewTracerProvider(by(to)), AllAcquires: true, Roots: 1_000_000}
}

func batched(to sdktrace.SpanExporter) sdktrace.TracerProviderOption {
	return sdktrace.WithBatcher(to, sdktrace.WithMaxQueueSize(1), sdktrace.WithMaxExportBatchSize(1), sdktrace.WithBlocking())
}

// alarming raises an alarm for each wait and each hold.
func alarming(told func(telemetry.Alarm)) telemetry.Config {
	return telemetry.Config{HoldAlarm: time.Nanosecond, WaitAlarm: time.Nanosecond, OnAlarm: told}
}

// broken are receivers of telemetry that do what they must not.
var broken = map[string]func() telemetry.Config{
	"exporter that hangs":          func() telemetry.Config { return provided(sdktrace.WithSyncer, hangsOn[exported]) },
	"exporter that hangs, batched": func() telemetry.Config { return provided(batched, hangsOn[exported]) },
	"exporter that panics":         func() telemetry.Config { return provided(sdktrace.WithSyncer, burstsOn[exported]) },
	"exporter of metrics that hangs": func() telemetry.Config {
		reader := sdkmetric.NewPeriodicReader(hangingMetrics{}, sdkmetric.WithInterval(time.Millisecond), sdkmetric.WithTimeout(time.Hour))
		return telemetry.Config{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))}
	},
	"alarm that hangs":                  func() telemetry.Config { return alarming(hangsOn[telemetry.Alarm]) },
	"alarm that panics":                 func() telemetry.Config { return alarming(burstsOn[telemetry.Alarm]) },
	"class that panics":                 func() telemetry.Config { return telemetry.Config{KeyClass: func(string) string { panic("no class") }} },
	"tracer provider that panics":       func() telemetry.Config { return telemetry.Config{TracerProvider: burstingTracers{}} },
	"tracer that panics":                func() telemetry.Config { return telemetry.Config{TracerProvider: burstingTracing{}} },
	"meter provider that panics":        func() telemetry.Config { return telemetry.Config{MeterProvider: burstingMeters{}} },
	"meter that panics":                 func() telemetry.Config { return telemetry.Config{MeterProvider: burstingMetrics{}} },
	"meter that refuses its histograms": func() telemetry.Config { return telemetry.Config{MeterProvider: refusingMetrics{}} },
}

// playPasser is the child's side: it locks one key again and again, beside another process, until it is told to stop.
// Its receiver is a broken one.
func playPasser(args []string) {
	enough, err := strconv.ParseUint(args[2], 10, 64)
	exitIf(err)
	c, err := coordinator.New(patient(args[0]), coordinator.WithTelemetry(broken[args[1]]()),
		coordinator.WithLogger(slog.New(slog.DiscardHandler)))
	exitIf(err)
	faults.Say("ready")
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for range 2 { // so that one always waits
		wg.Go(func() {
			for {
				hold, err := c.Mutex("k", coordinator.Fair()).Lock(ctx)
				if ctx.Err() != nil {
					if err == nil {
						exitIf(hold.Unlock())
					}
					return
				}
				exitIf(err)
				exitIf(hold.Unlock())
			}
		})
	}
	wg.Go(func() {
		for stats(c).Handoffs < enough {
			time.Sleep(time.Millisecond)
		}
		faults.Say("enough")
	})
	faults.Hear()
	cancel()
	wg.Wait()
	exitIf(shut(c))
	faults.Say("closed")
}

// K1: two processes hand a lock to each other a thousand times while whoever is told of it hangs, or panics: nobody
// waits for that, and both close.
func TestBrokenReceiverDelaysNoHandOff(t *testing.T) {
	t.Parallel()
	for name := range broken {
		t.Run(strings.ReplaceAll(name, ",", ""), func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			var pair []*faults.Child
			for range 2 {
				pair = append(pair, faults.StartChild(t, "passer", s.Addr(), name, "500"))
			}
			for _, child := range pair {
				child.Expect(t, "ready")
			}
			for _, child := range pair {
				child.Expect(t, "enough")
			}
			for _, child := range pair {
				child.Send("stop")
			}
			for _, child := range pair {
				child.Expect(t, "closed")
				require.NoError(t, child.Wait())
			}
			require.Empty(t, leftovers(t, s))
		})
	}
}

// K1: far more than is kept for a receiver that hangs: what there is no room for is dropped, and counted, and all the
// rest of telemetry goes on.
func TestWhatAHangingReceiverCantTakeIsDropped(t *testing.T) {
	t.Parallel()
	server := memlease.NewServer()
	t.Cleanup(server.Close)
	release := make(chan struct{})
	m := newMeter()
	c := inMemory(t, server, coordinator.WithTelemetry(telemetry.Config{
		MeterProvider: m.provider, AllAcquires: true, Roots: 1_000_000,
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter(func(exported) { <-release }))),
	}))
	const locks = 10_000
	within(t, hangs, "locks without anybody who listens", func() {
		for range locks {
			if err := c.Mutex("k").Do(context.Background(), func(context.Context) error { return nil }); err != nil {
				t.Error(err)
			}
		}
	})
	var all metricdata.ResourceMetrics
	require.NoError(t, m.reader.Collect(t.Context(), &all)) // which needs nobody who hangs
	close(release)
	now := m.collect(t, c)
	require.Greater(t, now.total(telemetry.MetricDropped, "", ""), int64(locks), "two spans each, and room for a few thousand")
	require.EqualValues(t, locks, now.total(telemetry.MetricHold, "", ""), "durations are not among what is dropped")
	require.EqualValues(t, locks, now.total(telemetry.MetricGrants, "", ""))
}

// K1: metrics and alarms do not wait for an exporter of spans that hangs.
func TestMetricsGoOnWhileAnExporterOfSpansHangs(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	release, entered := make(chan struct{}), make(chan struct{}, 1000)
	m := newMeter()
	alarms := make(chan telemetry.Alarm, 1000)
	conf := telemetry.Config{
		MeterProvider: m.provider, HoldAlarm: 10 * time.Millisecond, OnAlarm: func(a telemetry.Alarm) { alarms <- a },
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter(func(exported) {
			entered <- struct{}{}
			<-release
		}))),
	}
	c := join(t, untracked(s.Addr()), coordinator.WithTTL(time.Second), coordinator.WithTelemetry(conf))
	defer close(release)
	require.NoError(t, take(t, c.Mutex("k")).Unlock())
	await(t, entered, hangs, "the exporter")
	hold := take(t, c.Mutex("renewed"))
	expires := grab(t, c.Mutex("expires", coordinator.MaxHold(time.Millisecond)))
	require.ErrorIs(t, ended(t, expires, hangs), coordinator.ErrHoldExpired)
	require.Equal(t, telemetry.LongHold, await(t, alarms, hangs, "the alarm").Kind)
	eventually(t, hangs, "a renewal", func() bool { return stats(c).Renewals > 0 })
	eventually(t, soon, "what was recorded", func() bool {
		var all metricdata.ResourceMetrics
		require.NoError(t, m.reader.Collect(t.Context(), &all))
		var now points
		for _, one := range all.ScopeMetrics[0].Metrics {
			now = append(now, pointsOf(t, one)...)
		}
		return now.total(telemetry.MetricAlarms, "", "") > 0 && now.total(telemetry.MetricLateness, "", "") > 0 &&
			now.total(telemetry.MetricHold, telemetry.AttrOutcome, string(telemetry.Expired)) > 0
	})
	require.NoError(t, hold.Unlock())
}

// K1: a class function that hangs for one key keeps no other key.
func TestClassThatHangsKeepsNoOtherKey(t *testing.T) {
	t.Parallel()
	server := memlease.NewServer()
	t.Cleanup(server.Close)
	release, entered := make(chan struct{}), make(chan struct{}, 1)
	m := newMeter()
	c := inMemory(t, server, coordinator.WithTelemetry(telemetry.Config{
		MeterProvider: m.provider,
		KeyClass: func(key string) string {
			if key == "stuck" {
				entered <- struct{}{}
				<-release
			}
			return key
		},
	}))
	stuck := lockLater(t.Context(), c.Mutex("stuck"))
	await(t, entered, hangs, "the class")
	for n := range 2 * telemetry.MaxClasses {
		require.NoError(t, take(t, c.Mutex(fmt.Sprint(n))).Unlock())
	}
	require.EqualValues(t, 2*telemetry.MaxClasses, m.collect(t, c).total(telemetry.MetricGrants, "", ""))
	close(release)
	got := await(t, stuck, hangs, "the lock")
	require.NoError(t, got.err)
	require.NoError(t, got.hold.Unlock())
}
