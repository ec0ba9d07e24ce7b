package segment_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/segment"
)

// A server that has forgotten its scripts is told them again.
func TestForgottenScripts(t *testing.T) {
	t.Parallel()
	s := redistest.Alone(t)
	l := segment.NewLocks(lockProcess(t, s), "cart", 16)
	for range 3 {
		s.Do(t, "SCRIPT", "FLUSH")
		s.Do(t, "DEL", note("cart"))
		soon(t, "that the note is missed", func() bool { return !l.Agreed() })
		for use, call := range uses(l) {
			require.NoError(t, call(t.Context()), use)
		}
		require.Len(t, s.Keys(t, note("cart")), 1)
	}
}

// unavailable requires that a call failed for the server, in an error that names what was asked for.
func unavailable(t testing.TB, err error, use string) {
	t.Helper()
	require.ErrorIs(t, err, coordinator.ErrUnavailable, use)
	require.NotErrorIs(t, err, coordinator.ErrNotAcquired, use)
	var wait *coordinator.WaitError
	require.ErrorAs(t, err, &wait, use)
	require.True(t, strings.HasPrefix(wait.Key, "{cart/"), wait.Key)
}

// The server is away before the first call: each call says so in its time, and the first one after that works.
func TestServerAwayAtTheFirstCall(t *testing.T) {
	t.Parallel()
	const after = 300 * time.Millisecond
	for name, fault := range map[string]func(p *faults.Proxy, on bool){
		"refused": func(p *faults.Proxy, on bool) {
			p.Refuse(on)
			p.Reset()
		},
		"silent": func(p *faults.Proxy, on bool) { p.BlackHole(on) },
		"failing": func(p *faults.Proxy, on bool) {
			p.OnCommand(nil)
			if on {
				p.OnCommand(func(cmd []string) faults.Action {
					if faults.Is("PING")(cmd) || faults.Is("HELLO")(cmd) || faults.Is("CLIENT")(cmd) {
						return faults.Pass
					}
					return faults.Fail("LOADING Redis is loading the dataset in memory")
				})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			p := faults.NewProxy(t, s.Addr())
			c, err := coordinator.New(rueidis.ClientOption{InitAddress: []string{p.Addr()}}, coordinator.WithUnavailableAfter(after))
			require.NoError(t, err)
			closesLocks(t, c)
			l := segment.NewLocks(c, "cart", 16)
			fault(p, true)
			for use, call := range uses(l) {
				began := time.Now()
				err := call(t.Context())
				unavailable(t, err, use)
				if use != "TryLock" {
					require.GreaterOrEqual(t, time.Since(began), after, use)
				}
				require.Less(t, time.Since(began), lockPatience, use)
			}

			// The caller's own context is told beside it, and may end sooner.
			reason := errors.New("the user left")
			ctx, leave := context.WithCancelCause(t.Context())
			time.AfterFunc(20*time.Millisecond, func() { leave(reason) })
			_, err = l.Lock(ctx, "user")
			unavailable(t, err, "Lock")
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, reason)
			_, err = l.TryLockFor(t.Context(), "user", 20*time.Millisecond)
			unavailable(t, err, "TryLockFor")

			fault(p, false)
			soon(t, "that the server is back", func() bool { return uses(l)["Lock"](t.Context()) == nil })
		})
	}
}

// A call that may wait does wait until the server is back.
func TestServerComesBackDuringTheFirstCall(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := faults.NewProxy(t, s.Addr())
	c, err := coordinator.New(rueidis.ClientOption{InitAddress: []string{p.Addr()}}, coordinator.WithUnavailableAfter(0))
	require.NoError(t, err)
	closesLocks(t, c)
	l := segment.NewLocks(c, "cart", 16)
	p.Refuse(true)
	p.Reset()
	var wg sync.WaitGroup
	for use, call := range uses(l) {
		if use == "TryLock" {
			continue
		}
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), lockPatience)
			defer cancel()
			if err := call(ctx); err != nil {
				t.Errorf("%s: %v", use, err)
			}
		})
	}
	time.Sleep(200 * time.Millisecond)
	p.Refuse(false)
	wg.Wait()
}

// The answer to a question may be lost: it is asked again, and the number is still the same.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := faults.NewProxy(t, s.Addr())
	c, err := coordinator.New(rueidis.ClientOption{InitAddress: []string{p.Addr()}})
	require.NoError(t, err)
	closesLocks(t, c)
	for _, what := range []string{"EVAL", "GET", "EVALSHA"} { // the script is known after the first
		name := "cart-" + what
		lost := p.DropReply(faults.Has(what, note(name)))
		l := segment.NewLocks(c, name, 16)
		free(t, take(t, l, "user"))
		select {
		case <-lost.Done():
		default:
			require.Fail(t, "no answer was lost", what)
		}
		value := s.Do(t, "GET", note(name))
		n, err := value.ToString()
		require.NoError(t, err)
		require.Equal(t, "16", n)
	}
}

// A lost connection may have lost a notice: so the next call asks again, and then goes on.
func TestALostConnectionIsAskedAbout(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c, p, counter := watched(t, s)
	l := segment.NewLocks(c, "cart", 16)
	free(t, take(t, l, "user"))
	before := len(counter.names())
	p.Reset()
	soon(t, "that it is noticed", func() bool { return !l.Agreed() })
	s.Do(t, "SET", note("cart"), "64") // of which nobody was told
	soon(t, "that the other number is found", func() bool { return errors.Is(uses(l)["Lock"](t.Context()), segment.ErrSegments) })
	require.Greater(t, len(counter.names()), before)
	s.Do(t, "SET", note("cart"), "16")
	free(t, take(t, l, "user"))
}

// A hold goes on whatever becomes of the note, and of the answer about it.
func TestHoldsDoNotWaitForTheNote(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c, p, _ := watched(t, s)
	l := segment.NewLocks(c, "cart", 16)
	hold := take(t, l, "user")
	p.OnCommand(func(cmd []string) faults.Action {
		for _, word := range cmd {
			if strings.Contains(word, "~segments") {
				return faults.Silence
			}
		}
		return faults.Pass
	})
	s.Do(t, "SET", note("cart"), "64")
	soon(t, "that it is noticed", func() bool { return !l.Agreed() })
	require.True(t, hold.Valid())
	require.NoError(t, hold.Unlock())
	p.OnCommand(nil)
}

// Calls that wait for the answer count as waiters, too.
func TestTooManyAskAtOnce(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := faults.NewProxy(t, s.Addr())
	c, err := coordinator.New(rueidis.ClientOption{InitAddress: []string{p.Addr()}},
		coordinator.WithMaxWaiters(2), coordinator.WithUnavailableAfter(0))
	require.NoError(t, err)
	closesLocks(t, c)
	l := segment.NewLocks(c, "cart", 3)
	p.Refuse(true)
	p.Reset()
	ctx, cancel := context.WithCancel(t.Context())
	results := make(chan error, 20)
	for range cap(results) {
		go func() {
			_, err := l.Lock(ctx, "user")
			results <- err
		}()
	}
	for range cap(results) - 2*3 {
		err := <-results
		require.ErrorIs(t, err, coordinator.ErrTooManyWaiters)
		var wait *coordinator.WaitError
		require.ErrorAs(t, err, &wait)
		require.Equal(t, l.Key(l.Segment("user")), wait.Key)
	}
	cancel()
	for range 2 * 3 {
		unavailable(t, <-results, "Lock")
	}
	p.Refuse(false)
}

// TryLock asks once; and nobody asks again where that is of no use.
func TestWhatIsNotAskedAgain(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c, p, counter := watched(t, s)
	l := segment.NewLocks(c, "cart", 16)
	once := func(err, expected error) {
		t.Helper()
		require.ErrorIs(t, err, expected)
		require.Equal(t, []string{"GET", "PTTL"}, counter.names())
		counter.reset()
	}
	fail := func(cmd []string) faults.Action {
		counter.count(cmd)
		if faults.Has("GET", note("cart"))(cmd) {
			return faults.Fail("MASTERDOWN Link with MASTER is down")
		}
		return faults.Pass
	}
	p.OnCommand(fail)
	_, err := l.TryLock(t.Context(), "user")
	once(err, coordinator.ErrUnavailable)
	require.ErrorContains(t, err, "MASTERDOWN")
	_, err = l.TryLockFor(t.Context(), "user", 0)
	once(err, coordinator.ErrUnavailable)

	p.OnCommand(func(cmd []string) faults.Action {
		counter.count(cmd)
		return faults.Pass
	})
	s.Do(t, "RPUSH", note("cart"), "16")
	for _, call := range uses(l) {
		once(call(t.Context()), coordinator.ErrKind)
	}
	s.Do(t, "DEL", note("cart"))
	s.Do(t, "SET", note("cart"), "64")
	for _, call := range uses(l) {
		once(call(t.Context()), segment.ErrSegments)
	}

	p.OnCommand(fail)
	_, err = l.TryLockFor(t.Context(), "user", 200*time.Millisecond) // which may wait, and asks again
	require.ErrorIs(t, err, coordinator.ErrUnavailable)
	require.Greater(t, len(counter.names()), 2)
}

// The limit of TryLockFor is for the answer about the number and for the lock together.
func TestTryLockForCountsTheAnswer(t *testing.T) {
	t.Parallel()
	const limit, slow = 2 * time.Second, 1500 * time.Millisecond
	s := redistest.Start(t)
	busy := take(t, segment.NewLocks(lockProcess(t, s), "cart", 16), "user")
	c, p, _ := watched(t, s)
	p.OnReply(func(cmd []string) faults.Action {
		if faults.Has("GET", note("cart"))(cmd) {
			return faults.DelayReply(slow)
		}
		return faults.Pass
	})
	began := time.Now()
	_, err := segment.NewLocks(c, "cart", 16).TryLockFor(t.Context(), "user", limit)
	require.GreaterOrEqual(t, time.Since(began), limit-10*time.Millisecond)
	require.ErrorIs(t, err, coordinator.ErrNotAcquired)
	var wait *coordinator.WaitError
	require.ErrorAs(t, err, &wait)
	require.Less(t, wait.Waited, limit, "for the lock, which had what the answer had left")
	free(t, busy)
}
