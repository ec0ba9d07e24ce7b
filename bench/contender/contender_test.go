package contender_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/bench/contender"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

const (
	longTTL = 30 * time.Second // no test holds a lock for so long
	soon    = 20 * time.Second // on a machine that does much else; nothing here should take a second
)

// heedless are contenders whose Lock does not heed its context, as their settings say.
var heedless = []string{"list", "memory", "mutex"}

// wire counts connections.
type wire struct {
	addr           string // where they all go, whatever they ask for
	opened, closed atomic.Int64
}

func (w *wire) dial(ctx context.Context, _ string) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", w.addr)
	if err != nil {
		return nil, err
	}
	w.opened.Add(1)
	return &countedConn{Conn: conn, wire: w}, nil
}

type countedConn struct {
	net.Conn
	wire *wire
	once sync.Once
}

func (c *countedConn) Close() error {
	c.once.Do(func() { c.wire.closed.Add(1) })
	return c.Conn.Close()
}

// each runs a test for each contender that takes part in it.
func each(t *testing.T, takesPart func(contender.Info) bool, test func(t *testing.T, info contender.Info)) {
	t.Parallel()
	n := 0
	for _, info := range contender.All() {
		if takesPart(info) {
			n++
			t.Run(info.Name, func(t *testing.T) {
				t.Parallel()
				test(t, info)
			})
		}
	}
	require.Positive(t, n, "nobody takes part")
}

// inOneProcess are those that know of nothing outside of it.
var inOneProcess = []string{"memory", "mutex", "semaphore"}

// forgetful are those whose Lock may never come back, by a fault of their own (see rueidislock.go). What is
// tested of them is that they exclude.
var forgetful = []string{"rueidislock"}

// of returns what chooses the contenders of some names, and their variants.
func of(names ...string) func(contender.Info) bool {
	return func(info contender.Info) bool {
		main, _, _ := strings.Cut(info.Name, "/")
		return slices.Contains(names, main)
	}
}

func all(contender.Info) bool           { return true }
func excludes(info contender.Info) bool { return !info.ExcludesNobody }
func onRedis(info contender.Info) bool  { return info.Kind != contender.Limit }
func heedsEnd(info contender.Info) bool {
	return excludes(info) && !slices.Contains(heedless, info.Name)
}
func isPeer(info contender.Info) bool   { return info.Kind == contender.Peer }
func inMemory(info contender.Info) bool { return slices.Contains(inOneProcess, info.Name) }
func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 3*soon)
	t.Cleanup(cancel)
	return ctx
}

// opened is a contender in one process.
func opened(t *testing.T, info contender.Info, ttl time.Duration) contender.Process {
	t.Helper()
	server := redistest.Shared(t)
	w := &wire{addr: server.Addr()}
	p, err := info.Open(limited(t), contender.Setup{Addr: server.Addr(), TTL: ttl, Dial: w.dial})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

// both are two processes of a contender; those that know of one process only have the same one twice.
func both(t *testing.T, info contender.Info) [2]contender.Process {
	t.Helper()
	one := opened(t, info, longTTL)
	if inMemory(info) {
		return [2]contender.Process{one, one}
	}
	return [2]contender.Process{one, opened(t, info, longTTL)}
}

// handles are those of one key. What is in memory only shares one, for so does who measures it.
func handles(t *testing.T, info contender.Info, key string) [2]contender.Mutex {
	t.Helper()
	processes := both(t, info)
	first := processes[0].Mutex(key)
	if inMemory(info) {
		return [2]contender.Mutex{first, first}
	}
	return [2]contender.Mutex{first, processes[1].Mutex(key)}
}

// shared is what locks protect. It is told by atomics, for a lock in Redis orders nothing that the race detector could see.
type shared struct{ inside, readers, sum, wrong atomic.Int64 }

func (s *shared) write() {
	if s.inside.Add(1) != 1 || s.readers.Load() != 0 {
		s.wrong.Add(1)
	}
	sum := s.sum.Load()
	time.Sleep(time.Millisecond)
	s.sum.Store(sum + 1)
	s.inside.Add(-1)
}

func (s *shared) read() {
	s.readers.Add(1)
	if s.inside.Load() != 0 {
		s.wrong.Add(1)
	}
	time.Sleep(time.Millisecond)
	if s.inside.Load() != 0 {
		s.wrong.Add(1)
	}
	s.readers.Add(-1)
}

// together runs do in two goroutines of each process, so many times each, and requires that none fails.
func together(t *testing.T, times int, do func(process int) error) {
	t.Helper()
	var wg sync.WaitGroup
	errs := make(chan error, 4*times)
	for i := range 4 {
		wg.Go(func() {
			for range times {
				errs <- do(i % 2)
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
}

func TestLocksExclude(t *testing.T) {
	each(t, excludes, func(t *testing.T, info contender.Info) {
		ctx, mutexes := limited(t), handles(t, info, redistest.Prefix(t)+"k")
		if slices.Contains(forgetful, info.Name) {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
		}
		const times = 4
		var s shared
		var forgotten atomic.Int64
		together(t, times, func(process int) error {
			hold, err := mutexes[process].Lock(ctx)
			if errors.Is(err, context.DeadlineExceeded) && slices.Contains(forgetful, info.Name) {
				forgotten.Add(1)
				return nil
			}
			if err != nil {
				return err
			}
			s.write()
			return hold.Unlock()
		})
		require.Zero(t, s.wrong.Load(), "two holders at the same time")
		require.Equal(t, 4*times-forgotten.Load(), s.sum.Load())
	})
}

func TestTryLockSaysHeldUntilUnlocked(t *testing.T) {
	each(t, heedsEnd, func(t *testing.T, info contender.Info) { // a lock that heeds contexts can be tried
		ctx, mutexes := limited(t), handles(t, info, redistest.Prefix(t)+"k")
		hold, err := mutexes[0].Lock(ctx)
		require.NoError(t, err)
		for i, mutex := range mutexes {
			for range 3 { // the second answer may come from a cache
				_, err = mutex.(contender.TryMutex).TryLock(ctx)
				require.ErrorIs(t, err, contender.ErrHeld, "process %d", i)
			}
		}
		require.NoError(t, hold.Unlock())
		tried(t, ctx, mutexes[1].(contender.TryMutex))
	})
}

// tried asks until it gets the lock, and gives it back: a process may keep a lock for a little while after Unlock.
func tried(t *testing.T, ctx context.Context, mutex contender.TryMutex) {
	t.Helper()
	for {
		hold, err := mutex.TryLock(ctx)
		if errors.Is(err, contender.ErrHeld) {
			time.Sleep(5 * time.Millisecond)
			continue
		}
		require.NoError(t, err, "the lock did not become free")
		require.NoError(t, hold.Unlock())
		return
	}
}

func TestEndOfContextEndsTheWait(t *testing.T) {
	each(t, heedsEnd, func(t *testing.T, info contender.Info) {
		ctx, mutexes := limited(t), handles(t, info, redistest.Prefix(t)+"k")
		hold, err := mutexes[0].Lock(ctx)
		require.NoError(t, err)
		for _, mutex := range mutexes {
			waiting, cancel := context.WithCancelCause(ctx)
			timer := time.AfterFunc(30*time.Millisecond, func() { cancel(errors.New("enough")) })
			ended := make(chan error, 1)
			go func() { _, err := mutex.Lock(waiting); ended <- err }()
			select {
			case err := <-ended:
				require.Error(t, err)
				require.ErrorIs(t, err, context.Canceled)
			case <-time.After(soon):
				require.FailNow(t, "Lock goes on after its context has ended")
			}
			timer.Stop()
			cancel(nil)
		}
		require.NoError(t, hold.Unlock())
		hold, err = mutexes[1].Lock(ctx)
		require.NoError(t, err, "who gave up has left something")
		require.NoError(t, hold.Unlock())
	})
}

// Waiters that end while others lock and unlock must leave no lock that nobody has: it would stay for the TTL.
func TestWhoGivesUpLeavesNothing(t *testing.T) {
	each(t, heedsEnd, func(t *testing.T, info contender.Info) {
		mutexes := handles(t, info, redistest.Prefix(t)+"k")
		ctx := limited(t)
		for i := range 30 {
			waiting, cancel := context.WithTimeout(ctx, time.Duration(i)*50*time.Microsecond)
			hold, err := mutexes[i%2].Lock(waiting)
			cancel()
			if err == nil {
				require.NoError(t, hold.Unlock())
			}
		}
		before := time.Now()
		hold, err := mutexes[0].Lock(ctx)
		require.NoError(t, err)
		require.NoError(t, hold.Unlock())
		require.Less(t, time.Since(before), longTTL, "it was free only when its TTL was over")
	})
}

// The end of the context that a lock was asked with is not the end of the hold.
func TestHoldOutlivesItsContext(t *testing.T) {
	each(t, heedsEnd, func(t *testing.T, info contender.Info) {
		ctx, mutexes := limited(t), handles(t, info, redistest.Prefix(t)+"k")
		asking, cancel := context.WithCancel(ctx)
		hold, err := mutexes[0].Lock(asking)
		require.NoError(t, err)
		cancel()
		time.Sleep(20 * time.Millisecond) // for what would give the lock up
		_, err = mutexes[1].(contender.TryMutex).TryLock(ctx)
		require.ErrorIs(t, err, contender.ErrHeld)
		require.NoError(t, hold.Unlock())
	})
}

// A wait that is longer than a TTL, and than a library's own tries, goes on.
func TestWaitOutlivesTTL(t *testing.T) {
	each(t, isPeer, func(t *testing.T, info contender.Info) {
		const ttl = time.Second
		ctx, server, key := limited(t), redistest.Shared(t), redistest.Prefix(t)+"k"
		mutex := opened(t, info, ttl).Mutex(key)
		inRedis := info.Prefix + key
		server.Do(t, "SET", inRedis, "somebody", "PX", fmt.Sprint(longTTL.Milliseconds()))
		waiting, cancel := context.WithCancel(context.WithoutCancel(ctx)) // no deadline
		defer cancel()
		defer time.AfterFunc(soon, cancel).Stop()
		type answer struct {
			hold contender.Hold
			err  error
		}
		got := make(chan answer, 1)
		go func() { hold, err := mutex.Lock(waiting); got <- answer{hold, err} }()
		select {
		case a := <-got:
			require.FailNow(t, "Lock came back while somebody else has the lock", "%v", a.err)
		case <-time.After(ttl + ttl/2):
		}
		server.Do(t, "DEL", inRedis)
		a := <-got
		if slices.Contains(forgetful, info.Name) && errors.Is(a.err, context.Canceled) {
			require.Empty(t, server.Keys(t, inRedis), "the lock was free, and its waiter was forgotten")
			return
		}
		require.NoError(t, a.err)
		require.NoError(t, a.hold.Unlock())
		require.Empty(t, server.Keys(t, inRedis), "Unlock leaves the key")
	})
}

func TestKeyInRedisHasThePrefix(t *testing.T) {
	each(t, onRedis, func(t *testing.T, info contender.Info) {
		ctx, server, key := limited(t), redistest.Shared(t), redistest.Prefix(t)+"k"
		hold, err := opened(t, info, longTTL).Mutex(key).Lock(ctx)
		require.NoError(t, err)
		require.Equal(t, int64(1), number(t, server, "EXISTS", info.Prefix+key))
		ttl := number(t, server, "PTTL", info.Prefix+key)
		require.Positive(t, ttl, "a crashed holder would have it for ever")
		require.LessOrEqual(t, ttl, longTTL.Milliseconds())
		require.NoError(t, hold.Unlock())
	})
}

func number(t *testing.T, server *redistest.Server, args ...string) int64 {
	t.Helper()
	message := server.Do(t, args...)
	n, err := message.AsInt64()
	require.NoError(t, err)
	return n
}

// Every connection is made by Dial: here it is the only one that knows where Redis is.
func TestEveryConnectionIsOfDial(t *testing.T) {
	each(t, all, func(t *testing.T, info contender.Info) {
		ctx, w := limited(t), &wire{addr: redistest.Shared(t).Addr()}
		p, err := info.Open(ctx, contender.Setup{Addr: "redis.invalid:6379", TTL: longTTL, Dial: w.dial})
		require.NoError(t, err)
		hold, err := p.Mutex(redistest.Prefix(t) + "k").Lock(ctx)
		require.NoError(t, err)
		require.NoError(t, hold.Unlock())
		if inMemory(info) {
			require.Zero(t, w.opened.Load())
		} else {
			require.Positive(t, w.opened.Load())
		}
		require.NoError(t, p.Close())
		require.Eventually(t, func() bool { return w.closed.Load() == w.opened.Load() }, soon, time.Millisecond,
			"Close leaves connections")
	})
}

// An answer may come late, as on a busy machine or a long way. Whoever asks for a free lock gets it then.
func TestLateAnswerIsWaitedFor(t *testing.T) {
	t.Parallel()
	const late = 200 * time.Millisecond
	ctx, server, key := limited(t), redistest.Start(t), redistest.Prefix(t)+"k"
	mutexes := map[string]contender.Mutex{}
	for _, info := range contender.All() {
		if !onRedis(info) {
			continue
		}
		w := &wire{addr: server.Addr()}
		p, err := info.Open(ctx, contender.Setup{Addr: server.Addr(), TTL: longTTL, Dial: w.dial})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, p.Close()) })
		mutexes[info.Name] = p.Mutex(key + info.Name)
		for range 2 { // connections and scripts are there
			hold, err := mutexes[info.Name].Lock(ctx)
			require.NoError(t, err, info.Name)
			require.NoError(t, hold.Unlock(), info.Name)
		}
	}
	waiting, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	server.Do(t, "CLIENT", "PAUSE", fmt.Sprint(late.Milliseconds()), "ALL")
	var wg sync.WaitGroup
	var failed sync.Map
	for name, mutex := range mutexes {
		wg.Go(func() {
			hold, err := mutex.Lock(waiting)
			if err == nil {
				err = hold.Unlock()
			}
			if err != nil {
				failed.Store(name, err)
			}
		})
	}
	wg.Wait()
	failed.Range(func(name, err any) bool { t.Errorf("%s: %v", name, err); return true })
}
