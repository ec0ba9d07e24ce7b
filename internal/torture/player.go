package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/rpc"
	"os"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/goleak"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/history"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// patience is how long what has to end may take: so long that only a hang reaches it.
const patience = time.Minute

// player is a process of the run: goroutines that lock at random.
type player struct {
	order order
	c     *coordinator.Coordinator
	rec   *history.Recorder
	fence *rpc.Client
	end   atomic.Bool
	handles
}

// Play is the role of a process; its argument is an order.
func Play(args []string) {
	p, before := &player{}, goleak.IgnoreCurrent()
	orExit(json.Unmarshal([]byte(args[0]), &p.order))
	file, err := os.Create(p.order.Record)
	orExit(err)
	p.rec = history.NewRecorder(file, p.order.Process)
	p.rec.Refusal, p.rec.Over = mayRefuse, mayEnd
	p.fence, err = rpc.Dial("tcp", p.order.Fence)
	orExit(err)
	p.connect()
	faults.Say("ready")
	var lanes sync.WaitGroup
	for i := range p.order.Lanes {
		lanes.Go(func() {
			l := newLane(p, i)
			for !p.end.Load() {
				l.visit()
			}
		})
	}
	faults.Hear() // the end
	p.end.Store(true)
	late := time.AfterFunc(patience, func() {
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1) // the parent says that it is late, whatever becomes of this
		os.Exit(4)
	})
	lanes.Wait()
	faults.Say("visited")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	orExit(p.c.Close(ctx))
	orExit(p.fence.Close())
	late.Stop()
	orExit(p.rec.Err())
	orExit(file.Close())
	orExit(goleak.Find(append(redistest.ClientsOwn(), before)...))
	faults.Say("closed %d", p.c.Snapshot().Stats.Passed)
}

// connect tries until it can: the server may be away at this very moment.
func (p *player) connect() {
	for deadline := time.Now().Add(patience); ; {
		var err error
		if p.c, err = coordinator.New(p.order.Way.option(), p.options()...); err == nil {
			return
		}
		if time.Now().After(deadline) {
			orExit(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func orExit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
}

// mayRefuse says that a call to lock may fail so.
func mayRefuse(err error) bool {
	return errors.Is(err, coordinator.ErrNotAcquired) || errors.Is(err, coordinator.ErrUnavailable) ||
		errors.Is(err, coordinator.ErrUpgrade)
}

// mayEnd says that a hold may end so.
func mayEnd(err error) bool {
	return errors.Is(err, coordinator.ErrLeaseLost) || errors.Is(err, coordinator.ErrHoldExpired)
}

// options are different in each process, as versions of a program are.
func (p *player) options() []coordinator.Option {
	rnd := rand.New(rand.NewPCG(p.order.Seed, 0))
	opts := []coordinator.Option{
		coordinator.WithTTL(p.order.TTL), coordinator.WithTokenRetention(time.Minute),
		coordinator.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))),
		coordinator.WithSharedRetention(oneOf(rnd, 0, 20*time.Millisecond, time.Hour)),
		coordinator.WithRetention(oneOf(rnd, 0, 50*time.Millisecond)),
		coordinator.WithHandoff(oneOf(rnd, 1, 3, 64), oneOf(rnd, time.Millisecond, 5*time.Millisecond)),
		coordinator.WithUnavailableAfter(oneOf(rnd, 0, 300*time.Millisecond, 5*time.Second)),
	}
	if rnd.IntN(8) == 0 {
		opts = append(opts, coordinator.WithDebug())
	}
	return opts
}

func oneOf[T any](rnd *rand.Rand, from ...T) T { return from[rnd.IntN(len(from))] }
