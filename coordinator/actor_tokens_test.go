package coordinator

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/go-leasehold/leasehold/lease"
)

// Blocks of fencing tokens.

func TestFirstBlockIsAboutTwiceTheBudget(t *testing.T) {
	for budget, want := range map[int]int{1: 16, 64: 128, 1000: 2000} {
		t.Run(fmt.Sprint(budget), func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script, c *Coordinator) {
				a := lockOf(t, c.Mutex("k"))
				q := s.next(lease.Acquire)
				require.Equal(t, want, q.Tokens)
				q.reply(lease.Reply{Status: lease.Held, First: 1, Last: uint64(want), Contended: true})
				lockOf(t, c.Mutex("k"))
				time.Sleep(10 * time.Millisecond)
				unlock(t, a.holds())
				require.Equal(t, want, s.next(lease.Release).Next.Tokens)
			}, WithHandoff(budget, 5*time.Millisecond))
		})
	}
}

func TestBlocksGrowAndAreAskedForAheadOfNeed(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		m := c.Mutex("k")
		s.next0(lockOf(t, m)).held(1, 128)
		// The lease is idle from here on.
		next, size := uint64(2), 128
		for range 3 {
			var renewal *sent
			for renewal == nil {
				h := lockOf(t, m).holds() // no call ever waits for a block
				require.Equal(t, next, h.Token())
				next++
				unlock(t, h)
				renewal = s.take()
			}
			require.Equal(t, lease.Renew, renewal.Op)
			require.Equal(t, 8*size, renewal.Tokens)
			size = renewal.Tokens
			for range 10 { // while it is on its way
				h := lockOf(t, m).holds()
				require.Equal(t, next, h.Token())
				next++
				unlock(t, h)
			}
			// The rest of the block in use goes first, then this one.
			first := uint64(10_000 * size)
			last := next + s.left(c) - 1
			renewal.held(first, first+uint64(size)-1)
			for next <= last {
				h := lockOf(t, m).holds()
				require.Equal(t, next, h.Token())
				next++
				unlock(t, h)
			}
			next = first
		}
	})
}

// next0 takes the acquire of a call, which then holds and unlocks.
func (s *script) next0(a *attempt) *firstUse { return &firstUse{s.next(lease.Acquire), a} }

type firstUse struct {
	*sent
	a *attempt
}

func (f *firstUse) held(first, last uint64) {
	f.sent.held(first, last)
	unlock(f.a.t, f.a.holds())
}

// left returns how many tokens the key has.
func (s *script) left(c *Coordinator) uint64 {
	a, ok := c.actors.Load("k")
	require.True(s.t, ok)
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cur.tokensLeft()
}

func TestBlockIsBounded(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		m := c.Mutex("k")
		s.next0(lockOf(t, m)).held(1, 1)
		for i := range uint64(10) {
			q := s.next(lease.Renew)
			require.LessOrEqual(t, q.Tokens, maxBlock)
			q.held(100*i+100, 100*i+100) // fewer than were asked for
			unlock(t, lockOf(t, m).holds())
		}
	})
}

func TestWantedLeaseAsksForTokensAtTheLastOnly(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := lockOf(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		q.reply(lease.Reply{Status: lease.Held, First: 1, Last: 3, Contended: true})
		for range 3 {
			s.quiet(0)
			b := lockOf(t, c.Mutex("k"))
			unlock(t, a.holds())
			a = b
		}
		a.waits()
		s.next(lease.Renew).held(11, 20)
		require.EqualValues(t, 11, a.holds().Token())
	}, WithHandoff(64, time.Hour))
}

func TestTokensGoOnWithTheNextLease(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := lockOf(t, c.Mutex("k"))
		s.next(lease.Acquire).reply(lease.Reply{Status: lease.Held, First: 1, Last: 128, Contended: true})
		b := lockOf(t, c.Mutex("k"))
		time.Sleep(10 * time.Millisecond)
		unlock(t, a.holds())
		s.next(lease.Release).held(501, 600)
		require.EqualValues(t, 501, b.holds().Token(), "what was left of the last block is void")
	})
}

func TestTokensNeverGoDown(t *testing.T) {
	t.Run("by a block that comes late", func(t *testing.T) {
		var u tenure
		u.take(1, 2)
		u.take(11, 12)
		u.token()
		u.token() // the first block is used up, the second not begun
		u.take(21, 22)
		last := uint64(0)
		for u.tokensLeft() > 0 {
			n := u.token()
			require.Greater(t, n, last)
			last = n
		}
	})
	t.Run("whatever comes", rapid.MakeCheck(func(t *rapid.T) {
		var u tenure
		var last, given uint64
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "take") {
				first := given + rapid.Uint64Range(0, 3).Draw(t, "gap")
				if rapid.IntRange(0, 9).Draw(t, "stale") == 0 {
					first = rapid.Uint64Range(0, first).Draw(t, "old")
				}
				n := rapid.Uint64Range(0, 5).Draw(t, "n")
				u.take(first, first+n)
				given = max(given, first+n+1)
			} else if u.tokensLeft() > 0 {
				n := u.token()
				if n <= last {
					t.Fatalf("%d was dealt out after %d", n, last)
				}
				last = n
			}
		}
	}))
}
