package faulttest

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/rwlock"
)

// otherKinds are, for each way to hold a key, the ways that belong to another kind of lock.
var otherKinds = map[string][]string{"mutex": {"read", "write"}, "read": {"mutex"}, "write": {"mutex"}}

// F7: one name, used as a mutex and as a read/write lock: whoever comes second is told so by every call, in one
// process and in two, whether the first holds or waits; and the first keeps what it has.
func TestKindsOfOneNameAreNeverBothGranted(t *testing.T) {
	t.Parallel()
	for held, others := range otherKinds {
		for _, asked := range others {
			for _, processes := range []string{"one process", "two"} {
				t.Run(held+", then "+asked+", "+processes, func(t *testing.T) {
					t.Parallel()
					server := redistest.Shared(t)
					key := redistest.Prefix(t) + "k"
					c := steady(t, server.Addr(), ours(30*time.Second)...)
					first := startReader(t, readersOf(server.Addr(), 30*time.Second))
					second := first
					if processes == "two" {
						second = startReader(t, readersOf(server.Addr(), 30*time.Second))
					}
					token := first.take(t, held, "h", key, "-")
					refusedAsKind := func() {
						t.Helper()
						for _, how := range []string{"", "try-", "for-"} {
							got := second.call(t, how+asked, "other", key, "-")
							require.Equal(t, "kind", got.outcome, how+asked)
							require.Less(t, got.took, slack, "there is nothing to wait for")
						}
						require.Equal(t, "ok", first.ask(t, "err h", "err h"))
						require.Len(t, holdersOf(t, c, key), 1)
					}
					refusedAsKind()
					// Another one waits: to write, or for the mutex.
					waiting := map[string]string{"mutex": "mutex", "read": "write", "write": "write"}[held]
					second.begin(waiting, "w", key, "-")
					if processes == "two" {
						awaitQueue(t, c, key, 1)
					} else {
						eventually(t, hangs, "the waiter", func() bool {
							got := second.call(t, "try-"+held, "again", key, "-")
							if got.outcome == "ok" { // a reader that was quicker than the writer
								second.unlock(t, "again")
							}
							return got.outcome == "busy"
						})
					}
					refusedAsKind()
					first.unlock(t, "h")
					got := second.got(t, "w")
					require.Equal(t, "ok", got.outcome)
					require.Greater(t, got.token, token)
					refused := first.call(t, "try-"+asked, "other", key, "-")
					require.Equal(t, "kind", refused.outcome)
					second.unlock(t, "w")
					// What is free can be used as anything, once the release has arrived.
					eventually(t, hangs, "the other kind", func() bool {
						return first.call(t, "try-"+asked, "other", key, "-").outcome == "ok"
					})
					require.Equal(t, "kind", second.call(t, "try-"+held, "back", key, "-").outcome)
					first.unlock(t, "other")
				})
			}
		}
	}
}

// F7: both kinds are asked for in the same instant, again and again.
func TestKindsAskedForAtOnceAreNeverBothGranted(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	key := redistest.Prefix(t) + "k"
	one, two := startReader(t, readersOf(server.Addr(), 30*time.Second)), startReader(t, readersOf(server.Addr(), 30*time.Second))
	for _, pair := range [][2]*reader{{one, two}, {one, one}} {
		granted := map[string]int{}
		for i := range rounds(100, 3000) {
			rw := []string{"read", "write", "try-read", "try-write"}[i%4]
			mutex := []string{"mutex", "try-mutex"}[i/4%2]
			pair[i%2].begin(mutex, "m", key, "-")
			pair[1-i%2].begin(rw, "rw", key, "-")
			m, r := pair[i%2].got(t, "m"), pair[1-i%2].got(t, "rw")
			require.False(t, m.outcome == "ok" && r.outcome == "ok", "%s and %s, both held", mutex, rw)
			for _, got := range []called{m, r} {
				require.Contains(t, []string{"ok", "kind", "busy"}, got.outcome)
			}
			if m.outcome == "ok" {
				granted["mutex"]++
				pair[i%2].unlock(t, "m")
			}
			if r.outcome == "ok" {
				granted["rw"]++
				pair[1-i%2].unlock(t, "rw")
			}
		}
		require.NotZero(t, granted["mutex"], "%v", granted)
		require.NotZero(t, granted["rw"], "%v", granted)
	}
}

// F7: the place of a waiter is gone when the lock is freed: deleted, or expired; or
// the lock was granted to the process while it stood still. Another one has the lock when it wakes up: it does not
// come in beside that one, but waits for its turn again.
func TestWaiterWhoseRegistrationIsGoneQueuesAgain(t *testing.T) {
	t.Parallel()
	const ttl = 2500 * time.Millisecond
	for _, how := range []string{"write", "read", "mutex"} {
		for name, lose := range map[string]func(t *testing.T, s *redistest.Server, queue string){
			"deleted": func(t *testing.T, s *redistest.Server, queue string) { s.Do(t, "DEL", queue) },
			// The holder's renewals keep the queue alive, so that it does not expire by itself.
			"expired": func(t *testing.T, s *redistest.Server, queue string) {
				s.Do(t, "PEXPIRE", queue, "1")
				eventually(t, ttl+slack, "the queue expired", func() bool { return len(s.Keys(t, queue)) == 0 })
			},
			"granted meanwhile": func(*testing.T, *redistest.Server, string) {},
		} {
			t.Run(how+", "+name, func(t *testing.T) {
				t.Parallel()
				server := redistest.Start(t)
				c := steady(t, server.Addr(), ours(ttl)...)
				next := steady(t, server.Addr(), ours(ttl)...)
				lock := func(c *coordinator.Coordinator) locking {
					if how == "mutex" {
						return mutexLocking(c.Mutex("k"))
					}
					return rwlock.New(c, "k").Lock
				}
				p := startReader(t, readersOf(server.Addr(), ttl))
				held := come(t, lock(c))
				p.begin(how, "w", "k", "-")
				awaitQueue(t, c, "k", 1)
				p.Stop()
				places := server.Keys(t, "lock:~queue*")
				require.Len(t, places, 1)
				lose(t, server, places[0])
				require.NoError(t, held.Unlock())
				if name == "granted meanwhile" {
					eventually(t, hangs, "the grant", func() bool {
						return strings.HasPrefix(strings.Join(holdersOf(t, c, "k"), " "), p.id)
					})
				}
				hold := come(t, lock(next)) // as long as its lease lasts, in the last case
				p.Cont()
				require.False(t, p.said(t, "got w"), "it is up, and does not believe that it has the lock")
				awaitQueue(t, c, "k", 1)
				require.False(t, p.said(t, "got w"))
				require.NoError(t, hold.Err())
				require.Len(t, holdersOf(t, c, "k"), 1)
				require.NoError(t, hold.Unlock())
				got := p.got(t, "w")
				require.Equal(t, "ok", got.outcome)
				require.Greater(t, got.token, hold.Token())
				p.unlock(t, "w")
			})
		}
	}
}
