package contender

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/rueidis"
	noopmetric "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"
	nooptrace "go.opentelemetry.io/otel/trace/noop"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/rwlock"
	"github.com/go-leasehold/leasehold/segment"
	"github.com/go-leasehold/leasehold/telemetry"
)

func init() {
	about := "leasehold: one lease of a key for all goroutines of a process, handed over by message"
	Register(leasehold(variant{name: "leasehold", about: about, settings: []string{
		"its defaults: retention 50 ms, budget 64, slice 5 ms; the lease lives as long as the scenario's TTL",
		"stock: 2 segments, as its documentation advises for a single server",
	}}))
	of := func(v variant) {
		v.of = "leasehold"
		Register(leasehold(v))
	}
	of(variant{
		name: "leasehold/cached", about: "leasehold whose TryLock may answer from client-side caching",
		settings: []string{"coordinator.Cached() for each mutex"}, mutex: []coordinator.MutexOption{coordinator.Cached()},
	})
	of(variant{
		name: "leasehold/fair", about: "leasehold that passes the lease on after each hold that another process waits for",
		settings: []string{"coordinator.Fair() for each mutex"}, mutex: []coordinator.MutexOption{coordinator.Fair()},
	})
	of(variant{
		name: "leasehold/no-retention", about: "leasehold that gives a lease up as soon as nobody here wants it",
		settings: []string{"coordinator.WithRetention(0)"}, options: []coordinator.Option{coordinator.WithRetention(0)},
	})
	of(variant{
		name: "leasehold/cache", about: "leasehold that keeps read leases, as a cache does",
		settings: []string{"coordinator.WithSharedRetention(1h)"}, options: []coordinator.Option{coordinator.WithSharedRetention(time.Hour)},
	})
	of(variant{
		name: "leasehold/silent", about: "leasehold that tells nobody anything",
		settings: []string{"no-op providers of spans and metrics"}, telemetry: silent,
	})
	of(variant{
		name: "leasehold/metrics", about: "leasehold with OpenTelemetry's SDK for metrics",
		settings: []string{"a MeterProvider of the SDK with a reader; no tracer"}, telemetry: metered,
	})
	of(variant{
		name: "leasehold/traced", about: "leasehold with OpenTelemetry's SDK for traces",
		settings: []string{"a TracerProvider of the SDK that takes 1 % of the traces, with an exporter that keeps nothing"}, telemetry: traced,
	})
}

// variant is one entry of ours.
type variant struct {
	name, of, about string
	settings        []string
	options         []coordinator.Option
	mutex           []coordinator.MutexOption
	telemetry       func() (telemetry.Config, func(context.Context) error) // nil: the defaults
}

func leasehold(v variant) Info {
	return Info{
		Name: v.name, Kind: Ours, Variant: v.of, About: v.about, Settings: v.settings, Prefix: "lock:",
		Module: "github.com/go-leasehold/leasehold",
		Open: func(_ context.Context, setup Setup) (Process, error) {
			p := &leaseholdProcess{options: v.mutex, shutdown: func(context.Context) error { return nil }}
			options := append([]coordinator.Option{coordinator.WithTTL(setup.TTL)}, v.options...)
			if v.telemetry != nil {
				config, shutdown := v.telemetry()
				options = append(options, coordinator.WithTelemetry(config))
				p.shutdown = shutdown
			}
			var err error
			if p.coordinator, err = coordinator.New(rueidisOption(setup), options...); err != nil {
				return nil, fmt.Errorf("leasehold: %w", err)
			}
			return p, nil
		},
	}
}

func silent() (telemetry.Config, func(context.Context) error) {
	config := telemetry.Config{TracerProvider: nooptrace.NewTracerProvider(), MeterProvider: noopmetric.NewMeterProvider()}
	return config, func(context.Context) error { return nil }
}

func metered() (telemetry.Config, func(context.Context) error) {
	provider := metric.NewMeterProvider(metric.WithReader(metric.NewManualReader()))
	return telemetry.Config{TracerProvider: nooptrace.NewTracerProvider(), MeterProvider: provider}, provider.Shutdown
}

func traced() (telemetry.Config, func(context.Context) error) {
	provider := trace.NewTracerProvider(
		trace.WithBatcher(nowhere{}), trace.WithSampler(trace.ParentBased(trace.TraceIDRatioBased(0.01))),
	)
	return telemetry.Config{TracerProvider: provider, MeterProvider: noopmetric.NewMeterProvider()}, provider.Shutdown
}

// nowhere is an exporter that keeps nothing: what is measured is what a span costs until it is exported.
type nowhere struct{}

func (nowhere) ExportSpans(context.Context, []trace.ReadOnlySpan) error { return nil }
func (nowhere) Shutdown(context.Context) error                          { return nil }

// rueidisOption is what every contender on rueidis connects with.
func rueidisOption(setup Setup) rueidis.ClientOption {
	option := rueidis.ClientOption{InitAddress: []string{setup.Addr}}
	if setup.Dial != nil {
		option.DialCtxFn = func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return setup.Dial(ctx, addr)
		}
	}
	return option
}

type leaseholdProcess struct {
	coordinator *coordinator.Coordinator
	options     []coordinator.MutexOption
	shutdown    func(context.Context) error // of telemetry
}

func (p *leaseholdProcess) Mutex(key string) Mutex {
	return leaseholdMutex{p.coordinator.Mutex(key, p.options...)}
}

// Close hands over what is left, for at most as long as nobody would wait for it.
func (p *leaseholdProcess) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return errors.Join(p.coordinator.Close(ctx), p.shutdown(ctx))
}

type leaseholdMutex struct{ mutex *coordinator.Mutex }

func (m leaseholdMutex) Lock(ctx context.Context) (Hold, error) {
	hold, err := m.mutex.Lock(ctx)
	if err != nil {
		return nil, err
	}
	return hold, nil
}

func (m leaseholdMutex) TryLock(ctx context.Context) (Hold, error) {
	hold, err := m.mutex.TryLock(ctx)
	if errors.Is(err, coordinator.ErrNotAcquired) {
		return nil, ErrHeld
	}
	if err != nil {
		return nil, err
	}
	return hold, nil
}

func (p *leaseholdProcess) RW(key string) RW {
	return leaseholdRW{rwlock.New(p.coordinator, key)}
}

type leaseholdRW struct{ lock *rwlock.Lock }

func (l leaseholdRW) RLock(ctx context.Context) (Hold, error) {
	hold, err := l.lock.RLock(ctx)
	if err != nil {
		return nil, err
	}
	return hold, nil
}

func (l leaseholdRW) Lock(ctx context.Context) (Hold, error) {
	hold, err := l.lock.Lock(ctx)
	if err != nil {
		return nil, err
	}
	return hold, nil
}

// Segments are as in segment.Locks.
func (p *leaseholdProcess) Segments(name string, n int) (Segments, error) {
	return leaseholdSegments{segment.NewLocks(p.coordinator, name, n, p.options...)}, nil
}

type leaseholdSegments struct{ locks *segment.Locks }

func (s leaseholdSegments) Mutex(routing string) Mutex {
	return leaseholdSegment{locks: s.locks, routing: routing}
}

type leaseholdSegment struct {
	locks   *segment.Locks
	routing string
}

func (s leaseholdSegment) Lock(ctx context.Context) (Hold, error) {
	hold, err := s.locks.Lock(ctx, s.routing)
	if err != nil {
		return nil, err
	}
	return hold, nil
}

// Stock has two segments, as docs/stock.md advises for a single server.
func (p *leaseholdProcess) Stock(ctx context.Context, name string, units int64) (Stock, error) {
	stock, err := segment.NewStock(p.coordinator, name, segment.Config{Segments: 2})
	if err != nil {
		return nil, err
	}
	if err := stock.Load(ctx, units); err != nil && !errors.Is(err, segment.ErrLoaded) {
		return nil, err
	}
	return leaseholdStock{stock}, nil
}

type leaseholdStock struct{ stock *segment.Stock }

func (s leaseholdStock) Sell(ctx context.Context, id string) (bool, error) {
	_, err := s.stock.Deduct(ctx, segment.Order{ID: id, Quantity: 1})
	if errors.Is(err, segment.ErrSoldOut) {
		return false, nil
	}
	return err == nil, err
}
