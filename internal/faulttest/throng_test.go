package faulttest

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/rwlock"
)

func init() { roles["throng"] = playThrong }

// throngOrder is what a process does that locks and unlocks all the time.
type throngOrder struct {
	Addr                      string
	Mutexes, Readers, Writers int // goroutines that want the key as that
	Hold                      time.Duration
	TTL                       time.Duration
	Shared                    time.Duration // retention of read leases
	Times                     bool          // report when each hold began
}

// throngReport is what it did.
type throngReport struct {
	Reads, Writes int
	Turns         []turn  // of its exclusive holds
	ReadAt        []int64 // when each read began, in ns of the clock that all processes share
	WroteAt       []int64
	Errors        []string
}

// turn is a number of exclusive holds of one process with consecutive tokens: nobody else can have come in between.
type turn struct {
	First uint64
	Count int
}

func (t turn) last() uint64 { return t.First + uint64(t.Count) - 1 }

// throng is some of these processes.
type throng []*faults.Child

// startThrong starts a process for each order, and has all begin together.
func startThrong(t testing.TB, orders ...throngOrder) throng {
	t.Helper()
	var all throng
	for _, order := range orders {
		text, err := json.Marshal(order)
		require.NoError(t, err)
		all = append(all, faults.StartChild(t, "throng", string(text)))
	}
	for _, child := range all {
		child.Expect(t, "ready")
	}
	for _, child := range all {
		child.Send("go")
	}
	for _, child := range all {
		child.Expect(t, "began") // a hold of each sort
	}
	return all
}

// end has all stop, and returns what they did.
func (all throng) end(t testing.TB) []throngReport {
	t.Helper()
	for _, child := range all {
		child.Send("stop")
	}
	reports := make([]throngReport, len(all))
	for i, child := range all {
		require.NoError(t, json.Unmarshal([]byte(child.Expect(t, "report")), &reports[i]))
		require.Empty(t, reports[i].Errors)
	}
	return reports
}

// throngPlayer is the child's side.
type throngPlayer struct {
	order throngOrder

	mu     sync.Mutex
	tokens []uint64 // of exclusive holds
	report throngReport
}

func playThrong(args []string) {
	p := &throngPlayer{}
	exitIf(json.Unmarshal([]byte(args[0]), &p.order))
	c, err := coordinator.New(patient(p.order.Addr), coordinator.WithTTL(p.order.TTL), coordinator.WithUnavailableAfter(0),
		coordinator.WithSharedRetention(p.order.Shared), coordinator.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil))))
	exitIf(err)
	faults.Say("ready %s", c.ID())
	faults.Hear()
	ctx, stop := context.WithCancel(context.Background())
	lock, mutex := rwlock.New(c, "k"), mutexLocking(c.Mutex("k"))
	var all, began sync.WaitGroup
	for _, sort := range []struct {
		n      int
		lock   locking
		writes bool
	}{{p.order.Mutexes, mutex, true}, {p.order.Readers, lock.RLock, false}, {p.order.Writers, lock.Lock, true}} {
		if sort.n == 0 {
			continue
		}
		began.Add(1)
		first := sync.OnceFunc(began.Done)
		for range sort.n {
			all.Go(func() {
				for p.once(ctx, sort.lock, sort.writes) {
					first()
				}
			})
		}
	}
	began.Wait()
	faults.Say("began %s", c.ID())
	faults.Hear()
	stop()
	all.Wait()
	exitIf(shut(c))
	p.report.Turns = turnsOf(p.tokens)
	text, err := json.Marshal(p.report)
	exitIf(err)
	faults.Say("report %s", text)
}

// once locks and unlocks, and says whether to go on.
func (p *throngPlayer) once(ctx context.Context, lock locking, writes bool) bool {
	hold, err := lock(ctx)
	if err != nil {
		if ctx.Err() == nil {
			p.failed(err)
		}
		return false
	}
	at := time.Now().UnixNano()
	if p.order.Hold > 0 {
		time.Sleep(p.order.Hold)
	}
	p.mu.Lock()
	if writes {
		p.report.Writes++
		p.tokens = append(p.tokens, hold.Token())
		if p.order.Times {
			p.report.WroteAt = append(p.report.WroteAt, at)
		}
	} else {
		p.report.Reads++
		if p.order.Times {
			p.report.ReadAt = append(p.report.ReadAt, at)
		}
	}
	p.mu.Unlock()
	if err := hold.Unlock(); err != nil {
		p.failed(err)
		return false
	}
	return true
}

func (p *throngPlayer) failed(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.report.Errors = append(p.report.Errors, err.Error())
}

// turnsOf sums up tokens, of which there are many.
func turnsOf(tokens []uint64) (turns []turn) {
	slices.Sort(tokens)
	for _, token := range tokens {
		if n := len(turns); n > 0 && turns[n-1].last()+1 == token {
			turns[n-1].Count++
		} else {
			turns = append(turns, turn{token, 1})
		}
	}
	return turns
}
