package rwlock_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/coordinator/coordinatortest"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/rwlock"
)

// Where two holds of a process have the same token, nobody has written in between: a copy that was made under one token
// is right under it for ever.
func TestCopyIsRightForAsLongAsTheTokenIs(t *testing.T) {
	t.Parallel()
	s := redistest.Alone(t)
	var value int // what is locked
	var newest uint64
	var fresh, stale atomic.Int32
	var wg sync.WaitGroup
	for p := range 3 {
		c := process(t, s, coordinator.WithSharedRetention(time.Hour))
		l, short := rwlock.New(c, "k"), rwlock.New(c, "k", coordinator.MaxHold(time.Hour))
		var copies sync.Map // of the value, by the token
		check := func(h rwlock.Hold) {
			switch old, found := copies.LoadOrStore(h.Token(), value); {
			case h.Token() < newest:
				t.Errorf("token %d after the write of %d", h.Token(), newest)
			case !found:
				stale.Add(1)
			case old != value:
				t.Errorf("under token %d the value was %d, and is %d", h.Token(), old, value)
			default:
				fresh.Add(1)
			}
			if err := h.Unlock(); err != nil {
				t.Error(err)
			}
		}
		for g := range 3 {
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(uint64(p), uint64(g)))
				for range 200 {
					lock, what := l, rnd.IntN(20)
					if what == 0 {
						lock = short
					}
					if what > 1 {
						r, err := lock.RLock(t.Context())
						if err != nil {
							t.Error(err)
							return
						}
						check(r)
						continue
					}
					w, err := lock.Lock(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					if w.Token() <= newest {
						t.Errorf("write with token %d after %d", w.Token(), newest)
					}
					value++
					newest = w.Token()
					if rnd.IntN(2) == 0 {
						if w, err = w.Downgrade(); err != nil {
							t.Error(err)
							return
						}
					}
					check(w)
				}
			})
		}
	}
	wg.Wait()
	require.Positive(t, fresh.Load(), "no copy was ever used")
	require.Positive(t, stale.Load())
}

// All reads share a token, with each other and with the write before them, until somebody writes.
func TestReadsShareATokenUntilSomebodyWrites(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		l := rwlock.New(h.Coordinator, "k")
		w := write(t, l)
		unlock(t, w)
		passed := passing(t, h.Coordinator, l)
		ordinary := read(t, rwlock.New(h.Coordinator, "k", coordinator.MaxHold(time.Hour)))
		require.Equal(t, w.Token(), passed.Token())
		require.Equal(t, w.Token(), ordinary.Token())
		unlock(t, passed, ordinary)
		time.Sleep(time.Hour)
		again := read(t, l)
		require.Equal(t, w.Token(), again.Token(), "it was kept, and renewed")
		unlock(t, again)

		w2 := write(t, l)
		require.Greater(t, w2.Token(), w.Token())
		unlock(t, w2)
		h.HoldElsewhere("k", 0, coordinatortest.AsWriter)()
		r := read(t, l)
		require.Greater(t, r.Token(), w2.Token())

		// Whose hold ended under it may go on writing: what comes next can be told from it.
		unlock(t, r)
		late := write(t, rwlock.New(h.Coordinator, "k", coordinator.MaxHold(time.Second)))
		time.Sleep(time.Second)
		synctest.Wait()
		require.ErrorIs(t, late.Unlock(), coordinator.ErrHoldExpired)
		r = read(t, l)
		require.Greater(t, r.Token(), late.Token())
		unlock(t, r)
	}, coordinator.WithRetention(24*time.Hour))
}
