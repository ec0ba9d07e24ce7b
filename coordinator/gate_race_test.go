package coordinator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/lease/memlease"
)

// The gate in real time, under the race detector: what writers write is a plain
// variable, so that it is the detector itself which finds a reader beside a writer.

// races returns how long a test of races goes on.
func races() time.Duration {
	if os.Getenv("LEASEHOLD_TORTURE") != "" {
		return time.Minute
	}
	return time.Second
}

// crowded is what many goroutines use at once.
type crowded struct {
	t       *testing.T
	stop    atomic.Bool
	all     sync.WaitGroup
	value   int // written by writers only, and read by readers
	passed  atomic.Int64
	written atomic.Int64
}

// far is a context that ends only where something hangs.
func far(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// reader reads until the end.
func (w *crowded) reader(l *ReadWrite, n int) {
	ctx := far(w.t)
	for i := n; !w.stop.Load(); i++ {
		h, err := l.Lock(ctx, lease.Shared)
		if errors.Is(err, ErrKind) {
			continue // a mutex, just now
		}
		if err != nil {
			w.t.Errorf("RLock: %v", err)
			return
		}
		if h.way() == passing {
			w.passed.Add(1)
		}
		before := w.value
		switch {
		case i%17 == 0:
			held := h.Context() // it becomes an ordinary one
			runtime.Gosched()
			in, err := l.Lock(held, lease.Shared)
			if err == nil {
				err = in.Unlock()
			}
			if err != nil && !errors.Is(err, ErrNotHeld) {
				w.t.Errorf("re-entry: %v", err)
			}
		case i%5 == 0:
			runtime.Gosched()
		case i%7 == 0:
			if h.Count() != 1 {
				w.t.Errorf("Count: %d", h.Count())
			}
		}
		if w.value != before {
			w.t.Error("a write beside a read")
		}
		if err := h.Unlock(); err != nil {
			w.t.Errorf("Unlock of a read: %v", err)
			return
		}
	}
}

// writer writes until the end.
func (w *crowded) writer(l *ReadWrite, n int) {
	ctx := far(w.t)
	var token uint64
	for i := n; !w.stop.Load(); i++ {
		h, err := l.Lock(ctx, lease.Exclusive)
		if errors.Is(err, ErrKind) {
			continue
		}
		if err != nil {
			w.t.Errorf("Lock: %v", err)
			return
		}
		w.value++
		w.written.Add(1)
		if h.Token() <= token {
			w.t.Errorf("token %d after %d", h.Token(), token)
		}
		token = h.Token()
		if i%3 == 0 {
			before := w.value
			if h, err = h.Downgrade(); err != nil {
				w.t.Errorf("Downgrade: %v", err)
				return
			}
			runtime.Gosched()
			if w.value != before || h.Token() != token {
				w.t.Error("a write beside the read that a write became")
			}
		}
		if err := h.Unlock(); err != nil {
			w.t.Errorf("Unlock of a write: %v", err)
			return
		}
		time.Sleep(time.Duration(i%4) * 100 * time.Microsecond)
	}
}

func TestGateUnderTheRaceDetector(t *testing.T) {
	for _, processes := range []int{1, 2} {
		t.Run(fmt.Sprintf("processes=%d", processes), func(t *testing.T) {
			server := memlease.NewServer()
			defer server.Close()
			w := &crowded{t: t}
			for range processes {
				c, err := NewWithStore(server.Store(), WithLogger(quiet), WithTTL(30*time.Second))
				require.NoError(t, err)
				defer func() { require.NoError(t, c.Close(far(t))) }()
				l := c.ReadWrite("k")
				for i := range 6 {
					w.all.Go(func() { w.reader(l, 3*i) })
				}
				for i := range 2 {
					w.all.Go(func() { w.writer(l, i) })
				}
				w.all.Go(func() {
					for !w.stop.Load() { // a kind that is refused, or comes in between
						h, err := c.Mutex("k").TryLock(far(t))
						if err == nil {
							w.value++
							err = h.Unlock()
						}
						if err != nil && !errors.Is(err, ErrKind) && !errors.Is(err, ErrNotAcquired) {
							t.Errorf("a mutex of the key: %v", err)
						}
						time.Sleep(10 * time.Millisecond)
					}
				})
			}
			time.Sleep(races())
			w.stop.Store(true)
			w.all.Wait()
			require.Positive(t, w.passed.Load())
			require.Positive(t, w.written.Load())
			t.Logf("%d passed, %d written", w.passed.Load(), w.written.Load())
		})
	}
}

// TestLossOfTheGateUnderTheRaceDetector takes the key away again and again while
// every hold is asked and unlocked by several at once.
func TestLossOfTheGateUnderTheRaceDetector(t *testing.T) {
	server := memlease.NewServer()
	defer server.Close()
	c, err := NewWithStore(server.Store(), WithLogger(quiet), WithTTL(30*time.Second))
	require.NoError(t, err)
	l := c.ReadWrite("k")
	var stop atomic.Bool
	var all sync.WaitGroup
	var lost, passed atomic.Int64
	use := func(mode lease.Mode) {
		for ctx := far(t); !stop.Load(); {
			h, err := l.Lock(ctx, mode)
			if err != nil {
				t.Errorf("%v: %v", mode, err)
				return
			}
			if h.way() == passing {
				passed.Add(1)
			}
			runtime.Gosched() // on one core, nobody would lose a lease under a hold otherwise
			var both sync.WaitGroup
			var errs [2]error
			both.Go(func() {
				if h.Token()%2 == 0 {
					h.Context()
				}
				errs[0] = h.Unlock()
			})
			h.Count()
			errs[1] = h.Unlock()
			both.Wait()
			content := 0
			for _, err := range errs {
				switch {
				case err == nil:
					content++
				case errors.Is(err, ErrLeaseLost):
					lost.Add(1)
				case !errors.Is(err, ErrNotHeld):
					t.Errorf("Unlock: %v", err)
				}
			}
			if content > 1 {
				t.Error("unlocked twice")
			}
			if ctx := h.Context(); ctx.Err() == nil {
				t.Error("a hold that is over has a context that goes on")
			}
		}
	}
	for range 6 {
		all.Go(func() { use(lease.Shared) })
	}
	all.Go(func() { use(lease.Exclusive) })
	all.Go(func() {
		for !stop.Load() {
			time.Sleep(3 * time.Millisecond)
			server.Delete("k")
			server.Disconnect(errStore) // has every key looked at
			server.Connect()
		}
	})
	time.Sleep(races())
	for end := time.Now().Add(time.Minute); (lost.Load() == 0 || passed.Load() == 0) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	stop.Store(true)
	all.Wait()
	require.NoError(t, c.Close(far(t)))
	require.Positive(t, passed.Load())
	require.Positive(t, c.Snapshot().Stats.Lost)
	t.Logf("%d passed, %d told of the loss", passed.Load(), lost.Load())
}

// fleeting is a context that has ended when it is asked a second time.
type fleeting struct {
	context.Context
	asked atomic.Int32
}

func (f *fleeting) Err() error {
	if f.asked.Add(1) > 1 {
		return context.Canceled
	}
	return nil
}
