package faulttest

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

func init() { roles["crowd"] = playCrowd }

const (
	crowdKey   = "crowd"   // of the lock
	counterKey = "counter" // what it guards: read, raised by one in Go, written back
	insideKey  = "inside"  // how many are in the section, by Redis's own INCR and DECR
)

// crowdOrder is what the processes of a crowd are to do.
type crowdOrder struct {
	Addr       string
	Goroutines int
	Lasting    time.Duration
	TTL        time.Duration
	CountIn    bool // note how many are inside
}

// crowdReport is what one of them did.
type crowdReport struct {
	Tokens, Values []uint64 // of each hold: its token, and what it wrote
	Most           int64    // how many it ever met inside, itself counted
	Errors         []string // a hold that was lost, a command that failed
}

// runCrowd runs processes of a crowd, and returns what each did. meanwhile is called while they run.
func runCrowd(t *testing.T, processes int, order crowdOrder, meanwhile func(time.Duration)) []crowdReport {
	t.Helper()
	text, err := json.Marshal(order)
	require.NoError(t, err)
	children := make([]*faults.Child, processes)
	for i := range children {
		children[i] = faults.StartChild(t, "crowd", string(text))
	}
	for _, child := range children {
		child.Expect(t, "ready")
	}
	for _, child := range children {
		child.Send("go")
	}
	meanwhile(order.Lasting)
	reports := make([]crowdReport, processes)
	for i, child := range children {
		require.NoError(t, json.Unmarshal([]byte(child.ExpectWithin(t, order.Lasting+hangs, "report")), &reports[i]))
		require.Empty(t, reports[i].Errors)
	}
	return reports
}

// requireExact wants the counter to be the number of holds, each value written once, and tokens in their order.
func requireExact(t *testing.T, s *redistest.Server, reports []crowdReport) (locks int) {
	t.Helper()
	tokens := map[uint64]uint64{} // by the value written
	for _, r := range reports {
		require.NotEmpty(t, r.Values, "every process has its turn")
		for i, value := range r.Values {
			require.Zero(t, tokens[value], "two holds wrote the value %d", value)
			tokens[value] = r.Tokens[i]
		}
	}
	message := s.Do(t, "GET", counterKey)
	text, err := message.ToString()
	require.NoError(t, err)
	require.Equal(t, strconv.Itoa(len(tokens)), text, "every hold raised the counter by one")
	for value := uint64(2); value <= uint64(len(tokens)); value++ {
		if tokens[value] <= tokens[value-1] {
			require.Greater(t, tokens[value], tokens[value-1], "tokens of the holds that wrote %d and %d", value, value-1)
		}
	}
	return len(tokens)
}

// visitor is the child's side: goroutines that lock, read, raise and write.
type visitor struct {
	order  crowdOrder
	mutex  *coordinator.Mutex // one object for all
	plain  rueidis.Client
	mu     sync.Mutex
	report crowdReport
}

func playCrowd(args []string) {
	v := &visitor{}
	exitIf(json.Unmarshal([]byte(args[0]), &v.order))
	option := at(v.order.Addr)
	option.ClientName = "coordinator" // so that its connections can be told from those below
	quiet := slog.New(slog.NewTextHandler(os.Stderr, nil))
	c, err := coordinator.New(option, coordinator.WithTTL(v.order.TTL), coordinator.WithLogger(quiet))
	exitIf(err)
	v.mutex = c.Mutex(crowdKey)
	v.plain, err = rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{v.order.Addr}, DisableCache: true})
	exitIf(err)
	faults.Say("ready")
	faults.Hear()
	ctx, cancel := context.WithTimeout(context.Background(), v.order.Lasting)
	var wg sync.WaitGroup
	for range v.order.Goroutines {
		wg.Go(func() {
			for ctx.Err() == nil && v.visit(ctx) {
			}
		})
	}
	wg.Wait()
	cancel()
	exitIf(shut(c))
	v.plain.Close()
	text, err := json.Marshal(v.report)
	exitIf(err)
	faults.Say("report %s", text)
}

// visit goes through the section once, and says whether to go on.
func (v *visitor) visit(ctx context.Context) bool {
	hold, err := v.mutex.Lock(ctx)
	if err != nil {
		return ctx.Err() != nil || v.failed("lock", err)
	}
	inside := int64(0)
	if v.order.CountIn {
		inside, err = v.do(v.plain.B().Incr().Key(insideKey).Build()).AsInt64()
		if err != nil {
			return v.failed("come in", err)
		}
	}
	value, err := v.do(v.plain.B().Get().Key(counterKey).Build()).AsUint64()
	if err != nil && !rueidis.IsRedisNil(err) {
		return v.failed("read", err)
	}
	value++
	write := v.plain.B().Set().Key(counterKey).Value(strconv.FormatUint(value, 10)).Build()
	if err := v.do(write).Error(); err != nil {
		return v.failed("write", err)
	}
	if v.order.CountIn {
		if err := v.do(v.plain.B().Decr().Key(insideKey).Build()).Error(); err != nil {
			return v.failed("go out", err)
		}
	}
	v.mu.Lock()
	v.report.Tokens = append(v.report.Tokens, hold.Token())
	v.report.Values = append(v.report.Values, value)
	v.report.Most = max(v.report.Most, inside)
	v.mu.Unlock()
	if err := hold.Unlock(); err != nil {
		return v.failed("unlock", err)
	}
	return true
}

func (v *visitor) do(cmd rueidis.Completed) rueidis.RedisResult {
	return v.plain.Do(context.Background(), cmd)
}

func (v *visitor) failed(what string, err error) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.report.Errors = append(v.report.Errors, what+": "+err.Error())
	return false
}
