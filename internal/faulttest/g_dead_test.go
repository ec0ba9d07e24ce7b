package faulttest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/rwlock"
)

// G2: fifty waiters without a limit in each of four processes, all killed while the lock is held; in the second round
// its holder with them. Whoever comes behind them waits for one lease at most, not for one for each of the dead.
func TestDeadWaitersCostOneLeaseInAll(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	for name, how := range map[string][]string{
		"mutex": {"mutex"}, "writers": {"write"}, "readers": {"read"}, "both": {"write", "read", "read", "write"},
	} {
		for _, holder := range []string{"lives", "dies too"} {
			t.Run(name+", the holder "+holder, func(t *testing.T) {
				t.Parallel()
				server := redistest.Shared(t)
				key := redistest.Prefix(t) + "k"
				c := steady(t, server.Addr(), ours(ttl)...)
				holds := startReader(t, readersOf(server.Addr(), ttl))
				want := "write"
				if name == "mutex" {
					want = "mutex"
				}
				holds.take(t, want, "h", key, "-")
				var dead []*reader
				for n := range 4 {
					p := startReader(t, readersOf(server.Addr(), ttl))
					for i := range 50 {
						p.begin(how[(n+i)%len(how)], fmt.Sprint("w", i), key, "-")
					}
					awaitQueue(t, c, key, n+1)
					dead = append(dead, p)
				}
				next := rwlock.New(c, key).Lock
				if name == "mutex" {
					next = mutexLocking(c.Mutex(key))
				}
				waits := later(t.Context(), next)
				awaitQueue(t, c, key, 5)
				for _, p := range dead {
					p.Kill()
				}
				begun := time.Now()
				if holder == "lives" {
					require.Empty(t, waits)
					holds.unlock(t, "h")
				} else {
					holds.Kill()
				}
				got := await(t, waits, hangs, "who is behind the dead")
				require.NoError(t, got.err)
				require.Less(t, got.at.Sub(begun), ttl+slack, "one lease in all")
				require.Empty(t, inspect(t, c, key).Waiters, "the dead have left the queue")
				require.Equal(t, []string{c.ID() + " exclusive"}, holdersOf(t, c, key))
				require.NoError(t, got.hold.Unlock())
				eventually(t, slack, "the key free", func() bool { return !exists(t, server, key) })
			})
		}
	}
}

// G2: who gave up waiting, to read or to write, by its context or out of time, leaves no entry and takes no turn.
func TestWaitersThatGaveUpLeaveNoEntry(t *testing.T) {
	t.Parallel()
	const ttl = 30 * time.Second
	for _, held := range []string{"write", "read"} {
		t.Run("held to "+held, func(t *testing.T) {
			t.Parallel()
			server := redistest.Shared(t)
			key := redistest.Prefix(t) + "k"
			holds := startReader(t, readersOf(server.Addr(), ttl))
			holds.take(t, held, "h", key, "-")
			c, next := steady(t, server.Addr(), ours(ttl)...), steady(t, server.Addr(), ours(ttl)...)
			lock := rwlock.New(c, key)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var all sync.WaitGroup
			for i := range 100 {
				all.Go(func() {
					waits := lock.Lock
					if held == "write" && i%2 == 0 {
						waits = lock.RLock
					}
					if i%4 >= 2 {
						waits = func(ctx context.Context) (rwlock.Hold, error) {
							if held == "write" && i%2 == 0 {
								return lock.TryRLockFor(ctx, 200*time.Millisecond)
							}
							return lock.TryLockFor(ctx, 200*time.Millisecond)
						}
					}
					if hold, err := waits(ctx); !oneOf(err, coordinator.ErrNotAcquired) || hold.Hold != nil {
						t.Errorf("%d: %v", i, err)
					}
				})
			}
			awaitQueue(t, next, key, 1)
			cancelled := time.AfterFunc(300*time.Millisecond, cancel)
			defer cancelled.Stop()
			within(t, hangs, "those who give up", all.Wait)
			eventually(t, slack, "no entry in Redis", func() bool { return len(inspect(t, next, key).Waiters) == 0 })
			require.Zero(t, localWaiters(c, key))
			require.Empty(t, server.Keys(t, "lock:~queue*"+key), "not even an empty queue")
			require.Equal(t, "ok", holds.ask(t, "err h", "err h"))
			waits := later(t.Context(), rwlock.New(next, key).Lock)
			awaitQueue(t, next, key, 1)
			holds.unlock(t, "h")
			got := await(t, waits, soon, "the next")
			require.NoError(t, got.err)
			require.Zero(t, stats(c).Leases, "it never had a turn")
			require.NoError(t, got.hold.Unlock())
		})
	}
}
