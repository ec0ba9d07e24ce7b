package faulttest

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/rwlock"
	"github.com/go-leasehold/leasehold/telemetry"
)

func init() { roles["teller"] = playTeller }

// tellerOrder says how a teller is made.
type tellerOrder struct {
	Addr string
	TTL  time.Duration
}

// teller is a real process with an SDK of its own, whose spans come to the test. Its requests have names.
type teller struct {
	*reader // who takes lines apart
	spans   []exported
}

func startTeller(t testing.TB, addr string, ttl time.Duration) *teller {
	t.Helper()
	text, err := json.Marshal(tellerOrder{Addr: addr, TTL: ttl})
	require.NoError(t, err)
	p := &teller{reader: &reader{Child: faults.StartChild(t, "teller", string(text))}}
	p.id = p.hear(t, "ready")
	return p
}

// request has the process serve a request that locks: how is "mutex", "read", "write", or "for-mutex" with a limit. It returns the request's span.
// That of a request whose name begins with "unsampled" is not sampled.
func (p *teller) request(t testing.TB, how, name, key string, limit time.Duration) spanID {
	t.Helper()
	p.Send(strings.Join([]string{"request", how, name, key, limit.String()}, " "))
	return spanIn(t, p.hear(t, "serves "+name))
}

func spanIn(t testing.TB, line string) spanID {
	t.Helper()
	words := strings.Fields(line)
	require.GreaterOrEqual(t, len(words), 2, line)
	return spanID{words[0], words[1]}
}

// holds waits until a request has its lock, and returns the span in the hold's context and the token.
func (p *teller) holds(t testing.TB, name string) (hold spanID, token string) {
	t.Helper()
	line := p.hear(t, "holds "+name)
	return spanIn(t, line), strings.Fields(line)[2]
}

// enter is a request that must get its lock.
func (p *teller) enter(t testing.TB, how, name, key string) (request, hold spanID) {
	t.Helper()
	request = p.request(t, how, name, key, 0)
	hold, _ = p.holds(t, name)
	return request, hold
}

// fails waits until a request has failed, and returns how, and who had the lock.
func (p *teller) fails(t testing.TB, name string) (verdict, holder string) {
	t.Helper()
	words := strings.Fields(p.hear(t, "fails "+name))
	return words[0], words[1]
}

// waits returns once that many requests wait for the key here, and Redis knows it.
func (p *teller) waits(t testing.TB, key string, n int) {
	t.Helper()
	p.ask(t, "wait "+key+" "+strconv.Itoa(n), "waits "+key)
}

// wanted returns once the process knows that another one waits for the key that it has.
func (p *teller) wanted(t testing.TB, key string) {
	t.Helper()
	p.ask(t, "want "+key, "wanted "+key)
}

// told are all spans of the process that have ended so far.
func (p *teller) told(t testing.TB) []exported {
	t.Helper()
	p.ask(t, "flush it", "flushed")
	p.heard = slices.DeleteFunc(p.heard, func(line string) bool {
		text, ok := strings.CutPrefix(line, "span ")
		if ok {
			var e exported
			require.NoError(t, json.Unmarshal([]byte(text), &e))
			p.spans = append(p.spans, e)
		}
		return ok
	})
	return p.spans
}

// served is a request that has its lock.
type served struct {
	hold *coordinator.Hold
	span trace.Span
}

// tellingPlayer is the child's side.
type tellingPlayer struct {
	c        *coordinator.Coordinator
	requests trace.Tracer

	mu   sync.Mutex
	open map[string]served
}

func playTeller(args []string) {
	var order tellerOrder
	exitIf(json.Unmarshal([]byte(args[0]), &order))
	said := exporter(func(e exported) {
		text, err := json.Marshal(e)
		exitIf(err)
		faults.Say("span %s", text)
	})
	sampler := sdktrace.ParentBased(sdktrace.AlwaysSample())
	provider := sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler), sdktrace.WithSyncer(said))
	c, err := coordinator.New(patient(order.Addr), coordinator.WithTTL(order.TTL), coordinator.WithUnavailableAfter(0),
		coordinator.WithTokenRetention(max(time.Second, order.TTL)),
		coordinator.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil))),
		coordinator.WithTelemetry(telemetry.Config{TracerProvider: provider, KeyClass: classOf}))
	exitIf(err)
	p := &tellingPlayer{c: c, requests: provider.Tracer("requests"), open: map[string]served{}}
	faults.Say("ready %s", c.ID())
	for line, ok := faults.Hear(); ok; line, ok = faults.Hear() {
		p.act(strings.Fields(line))
	}
	exitIf(shut(c))
}

// classOf is the part of a key before the colon.
func classOf(key string) string {
	class, _, _ := strings.Cut(key, ":")
	return class
}

func (p *tellingPlayer) act(words []string) {
	switch words[0] {
	case "request":
		p.begin(words[1], words[2], words[3], words[4])
	case "unlock":
		r := p.request(words[1])
		err := r.hold.Unlock()
		r.span.End()
		faults.Say("unlocked %s %s", words[1], verdict(err))
	case "downgrade":
		r := p.request(words[1])
		hold, err := r.hold.Downgrade()
		exitIf(err)
		r.hold = hold
		p.opened(words[1], r)
		faults.Say("downgraded %s it", words[1])
	case "lost":
		go func() { // ends with the hold
			<-p.request(words[1]).hold.Context().Done()
			faults.Say("lost %s %s", words[1], verdict(p.request(words[1]).hold.Err()))
		}()
	case "wait":
		n, err := strconv.Atoi(words[2])
		exitIf(err)
		p.await(words[1], func(k coordinator.KeySnapshot) bool {
			return len(k.Waiters) == n && (k.Phase == "queued" || k.Phase == "held")
		})
		faults.Say("waits %s for it", words[1])
	case "want":
		p.await(words[1], func(k coordinator.KeySnapshot) bool { return k.Wanted })
		faults.Say("wanted %s elsewhere", words[1])
	case "stats":
		text, err := json.Marshal(stats(p.c))
		exitIf(err)
		faults.Say("stats %s", text)
	case "flush":
		exitIf(p.c.FlushTelemetry(context.Background()))
		faults.Say("flushed all")
	}
}

// await returns once the key is so. How long that may take, the test decides that waits for the answer.
func (p *tellingPlayer) await(key string, so func(coordinator.KeySnapshot) bool) {
	for ; ; time.Sleep(time.Millisecond) {
		if slices.ContainsFunc(p.c.Snapshot().Keys, func(k coordinator.KeySnapshot) bool { return k.Key == key && so(k) }) {
			return
		}
	}
}

func (p *tellingPlayer) request(name string) served {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open[name]
}

func (p *tellingPlayer) opened(name string, r served) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[name] = r
}

// begin begins a request.
func (p *tellingPlayer) begin(how, name, key, limit string) {
	wait, err := time.ParseDuration(limit)
	exitIf(err)
	requests := p.requests
	if strings.HasPrefix(name, "unsampled") {
		requests = sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample())).Tracer("requests")
	}
	ctx, span := requests.Start(context.Background(), name)
	is := idOf(span.SpanContext())
	faults.Say("serves %s %s %s", name, is.Trace, is.Span)
	go p.serve(ctx, span, how, name, key, wait) // ends with the wait
}

func (p *tellingPlayer) serve(ctx context.Context, span trace.Span, how, name, key string, limit time.Duration) {
	hold, err := p.lock(ctx, how, key, limit)
	if err != nil {
		span.End()
		var failed *coordinator.WaitError
		if !errors.As(err, &failed) {
			exitIf(err)
		}
		faults.Say("fails %s %s %s", name, verdict(err), max(failed.Holder, "-"))
		return
	}
	is := idOf(trace.SpanContextFromContext(hold.Context()))
	p.opened(name, served{hold, span})
	faults.Say("holds %s %s %s %d", name, is.Trace, is.Span, hold.Token())
}

func (p *tellingPlayer) lock(ctx context.Context, how, key string, limit time.Duration) (*coordinator.Hold, error) {
	var hold rwlock.Hold
	var err error
	switch how {
	case "for-mutex":
		return p.c.Mutex(key).TryLockFor(ctx, limit)
	case "mutex":
		return p.c.Mutex(key).Lock(ctx)
	case "read":
		hold, err = rwlock.New(p.c, key).RLock(ctx)
	case "write":
		hold, err = rwlock.New(p.c, key).Lock(ctx)
	}
	return hold.Hold, err
}
