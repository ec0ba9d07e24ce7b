package segment_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/segment"
)

func init() { roles["locks"] = lockSegments }

// lockSegments is a process that locks a routing key whenever it is told to.
func lockSegments(args []string) {
	n, err := strconv.Atoi(args[1])
	if err != nil {
		os.Exit(3)
	}
	c, err := coordinator.New(rueidis.ClientOption{InitAddress: []string{args[0]}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	l := segment.NewLocks(c, "cart", n)
	faults.Say("ready")
	for {
		if _, ok := faults.Hear(); !ok {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), lockPatience)
		h, err := l.Lock(ctx, "user")
		cancel()
		switch {
		case errors.Is(err, segment.ErrSegments):
			faults.Say("refused")
		case err != nil:
			faults.Say("error %v", err)
		default:
			faults.Say("locked %v", h.Unlock())
		}
	}
}

func TestProcessesWithAnotherNumberAreRefused(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	start := func(n string) *faults.Child {
		child := faults.StartChild(t, "locks", s.Addr(), n)
		child.Expect(t, "ready")
		return child
	}
	says := func(child *faults.Child, expected string) {
		child.Send("lock")
		require.Equal(t, expected, child.Expect(t, ""))
	}
	first, second, third := start("16"), start("64"), start("16")
	for range 3 {
		says(first, "locked <nil>")
		says(second, "refused")
		says(third, "locked <nil>")
	}
	// The number is changed by stopping everybody, and deleting the note.
	first.Kill()
	third.Kill()
	says(second, "refused")
	s.Do(t, "DEL", note("cart"))
	says(second, "locked <nil>")
	says(start("16"), "refused")
}

func TestAnotherNumberIsRefusedByEveryUse(t *testing.T) {
	t.Parallel()
	s := redistest.Alone(t)
	a, b := segment.NewLocks(lockProcess(t, s), "cart", 16), segment.NewLocks(lockProcess(t, s), "cart", 64)
	free(t, take(t, a, "user"))
	for use, call := range uses(b) {
		err := call(t.Context())
		require.ErrorIs(t, err, segment.ErrSegments, use)
		require.ErrorContains(t, err, `"cart"`, use)
		require.ErrorContains(t, err, `"16"`, use)
		require.ErrorContains(t, err, "64", use)
		require.False(t, b.Agreed())
	}
	for _, key := range s.Keys(t, "lock:{*") {
		require.Contains(t, key, "{cart/"+strconv.Itoa(a.Segment("user"))+"}", "something was locked")
	}
	for use, call := range uses(a) {
		require.NoError(t, call(t.Context()), use)
	}
	ttl := s.Do(t, "PTTL", note("cart"))
	left, err := ttl.AsInt64()
	require.NoError(t, err)
	require.InDelta(t, segment.NoteLife.Milliseconds(), float64(left), float64(lockPatience.Milliseconds()))
	// Another name, and another prefix, are other locks.
	require.NoError(t, uses(segment.NewLocks(lockProcess(t, s), "order", 64))["Lock"](t.Context()))
	elsewhere := lockProcess(t, s, coordinator.WithKeyPrefix("other:"))
	require.NoError(t, uses(segment.NewLocks(elsewhere, "cart", 64))["Lock"](t.Context()))
}

// watched is a process behind a proxy that counts what is said about notes.
func watched(t testing.TB, s *redistest.Server, opts ...coordinator.Option) (*coordinator.Coordinator, *faults.Proxy, *about) {
	t.Helper()
	p := faults.NewProxy(t, s.Addr())
	counter := &about{word: "~segments"}
	p.OnCommand(func(cmd []string) faults.Action {
		counter.count(cmd)
		return faults.Pass
	})
	c, err := coordinator.New(rueidis.ClientOption{InitAddress: []string{p.Addr()}}, opts...)
	require.NoError(t, err)
	closesLocks(t, c)
	return c, p, counter
}

// However many first calls there are, of however many handles: the question is asked once. After that nobody asks.
func TestFirstCallsShareOneQuestion(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c, p, counter := watched(t, s)
	p.SetDelay(20*time.Millisecond, 20*time.Millisecond)
	var wg sync.WaitGroup
	kept := segment.NewLocks(c, "cart", 16)
	for i := range 100 {
		l := kept
		if i%2 == 0 {
			l = segment.NewLocks(c, "cart", 16)
		}
		wg.Go(func() {
			h, err := l.Lock(t.Context(), "user-"+strconv.Itoa(i))
			if err != nil {
				t.Error(err)
				return
			}
			if err := h.Unlock(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	p.SetDelay(0, 0)
	// Nothing there; written, by its text, for the server does not know the script; there.
	asked := counter.names()
	require.Subset(t, asked, []string{"GET", "PTTL", "EVALSHA", "EVAL"})
	require.LessOrEqual(t, len(asked), 8, "%v", asked)
	for range 100 {
		free(t, take(t, kept, "user"), take(t, segment.NewLocks(c, "cart", 16), "other"))
	}
	require.Equal(t, asked, counter.names())

	// The next process reads once, and writes nothing.
	d, _, counter := watched(t, s)
	free(t, take(t, segment.NewLocks(d, "cart", 16), "user"))
	require.Equal(t, []string{"GET", "PTTL"}, counter.names())
}

// renewals counts how often a key was told to live longer.
func renewals(t testing.TB, s *redistest.Server, key string) *atomic.Int64 {
	t.Helper()
	s.Do(t, "CONFIG", "SET", "notify-keyspace-events", "Kg")
	client, n := s.Client(t), new(atomic.Int64)
	subscribe := client.B().Subscribe().Channel("__keyspace@0__:" + key).Build()
	ready, over := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	hooked := rueidis.WithOnSubscriptionHook(ctx, func(rueidis.PubSubSubscription) { close(ready) })
	go func() {
		defer close(over)
		_ = client.Receive(hooked, subscribe, func(m rueidis.PubSubMessage) { // until the test ends
			if m.Message == "expire" {
				n.Add(1)
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-over
	})
	<-ready
	return n
}

// A note that is old is written anew by one process, however many see it, and read again by each: they don't set each
// other off.
func TestANoteIsWrittenAnewByOne(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	var locks []*segment.Locks
	var counters []*about
	for range 3 {
		c, p, counter := watched(t, s, coordinator.WithRetention(0)) // whose leases need no renewal
		l := segment.NewLocks(c, "cart", 16)
		free(t, take(t, l, "user"))
		p.SetDelay(10*time.Millisecond, 10*time.Millisecond) // all look before one has written
		locks, counters = append(locks, l), append(counters, counter)
	}
	all := func(agreed bool) bool {
		for _, l := range locks {
			if l.Agreed() != agreed {
				return false
			}
		}
		return true
	}
	use := func() {
		var wg sync.WaitGroup
		for i, l := range locks {
			wg.Go(func() {
				h, err := l.Lock(t.Context(), keyIn(l, i))
				if err != nil {
					t.Error(err)
					return
				}
				_ = h.Unlock()
			})
		}
		wg.Wait()
	}
	renewed := renewals(t, s, note("cart"))
	old := segment.NoteLife - segment.NoteTrust // as it is when it has not been written for a while
	for range 3 {
		asked, before := 0, renewed.Load()
		for _, counter := range counters {
			asked -= len(counter.names())
		}
		s.Do(t, "PEXPIRE", note("cart"), strconv.FormatInt(old.Milliseconds(), 10))
		soon(t, "that all hear of it", func() bool { return all(false) })
		soon(t, "that all agree", func() bool {
			use()
			return all(true)
		})
		for range 5 {
			use()
		}
		ttl := s.Do(t, "PTTL", note("cart"))
		left, err := ttl.AsInt64()
		require.NoError(t, err)
		require.InDelta(t, segment.NoteLife.Milliseconds(), float64(left), float64(lockPatience.Milliseconds()))
		soon(t, "that it was renewed", func() bool { return renewed.Load() >= before+2 })
		require.Equal(t, before+2, renewed.Load(), "ours above, and that of one process")
		for _, counter := range counters {
			asked += len(counter.names())
		}
		// Each reads, writes, and reads, once more where it hears of the writing meanwhile.
		require.LessOrEqual(t, asked, 3*8, "commands for one renewal in three processes")
	}
}

// Whatever becomes of the note: whoever comes next looks, and nobody goes on with another number.
func TestALostNoteIsNoticed(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	a, b := segment.NewLocks(lockProcess(t, s), "cart", 16), segment.NewLocks(lockProcess(t, s), "cart", 64)
	for name, lose := range map[string]func(){
		"deleted":  func() { s.Do(t, "DEL", note("cart")) },
		"flushed":  func() { s.Do(t, "FLUSHALL") },
		"expired":  func() { s.Do(t, "PEXPIRE", note("cart"), "1") },
		"renamed":  func() { s.Do(t, "RENAME", note("cart"), "elsewhere") },
		"unlinked": func() { s.Do(t, "UNLINK", note("cart")) },
	} {
		// The same process comes next, and writes it again.
		soon(t, name, func() bool { // a FLUSHALL may take the lock itself
			h, err := a.Lock(t.Context(), "user")
			require.NoError(t, err)
			_ = h.Unlock()
			return a.Agreed()
		})
		lose()
		soon(t, "that it is lost and noticed: "+name, func() bool { return len(s.Keys(t, note("cart"))) == 0 && !a.Agreed() })
		free(t, take(t, a, "user"))
		require.Equal(t, []string{note("cart")}, s.Keys(t, note("*")), name)
		require.ErrorIs(t, uses(b)["Lock"](t.Context()), segment.ErrSegments, name)

		// Another process comes next, with another number.
		lose()
		soon(t, "that it is lost and noticed: "+name, func() bool { return len(s.Keys(t, note("cart"))) == 0 && !a.Agreed() })
		free(t, take(t, b, "user"))
		for use, call := range uses(a) {
			require.ErrorIs(t, call(t.Context()), segment.ErrSegments, use)
		}
		s.Do(t, "DEL", note("cart"))
		soon(t, "that the other has noticed", func() bool { return !b.Agreed() })
	}
}

func TestANoteThatIsChangedIsNoticed(t *testing.T) {
	t.Parallel()
	s := redistest.Alone(t)
	l := segment.NewLocks(lockProcess(t, s), "cart", 16)
	set := func(value string) {
		s.Do(t, "SET", note("cart"), value)
		soon(t, "that it is noticed", func() bool { return !l.Agreed() })
	}
	free(t, take(t, l, "user"))
	for _, value := range []string{"64", "", "sixteen", "016", "16 ", "-16"} {
		set(value)
		for use, call := range uses(l) {
			err := call(t.Context())
			require.ErrorIs(t, err, segment.ErrSegments, use)
			require.ErrorContains(t, err, strconv.Quote(value), use)
		}
	}
	// One that stays for good is as good.
	set("16")
	free(t, take(t, l, "user"))
	require.True(t, l.Agreed())
	ttl := s.Do(t, "PTTL", note("cart"))
	left, err := ttl.AsInt64()
	require.NoError(t, err)
	require.EqualValues(t, -1, left)

	// Somebody else's data is not touched.
	s.Do(t, "DEL", note("cart"))
	s.Do(t, "RPUSH", note("cart"), "16")
	soon(t, "that it is noticed", func() bool { return !l.Agreed() })
	for use, call := range uses(l) {
		require.ErrorIs(t, call(t.Context()), coordinator.ErrKind, use)
	}
	length := s.Do(t, "LLEN", note("cart"))
	n, err := length.AsInt64()
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
}

// A handle with the wrong number does not trouble those of the same process that have the right one.
func TestHandlesOfOneProcessThatDisagree(t *testing.T) {
	t.Parallel()
	s := redistest.Alone(t)
	c := lockProcess(t, s)
	right, wrong := segment.NewLocks(c, "cart", 16), segment.NewLocks(c, "cart", 64)
	free(t, take(t, right, "user"))
	for range 3 {
		require.ErrorIs(t, uses(wrong)["Lock"](t.Context()), segment.ErrSegments)
		require.True(t, right.Agreed())
	}
	free(t, take(t, right, "user"))
}

// Without client-side caching nobody tells of changes: all else is the same.
func TestWithoutClientSideCaching(t *testing.T) {
	t.Parallel()
	s := redistest.Alone(t)
	for name, change := range map[string]func(*rueidis.ClientOption){
		"DisableCache": func(o *rueidis.ClientOption) { o.DisableCache = true },
		"RESP2":        func(o *rueidis.ClientOption) { o.AlwaysRESP2, o.DisableCache = true, true },
	} {
		option := s.Option()
		change(&option)
		c, err := coordinator.New(option)
		require.NoError(t, err)
		closesLocks(t, c)
		l := segment.NewLocks(c, "cart", 16)
		for use, call := range uses(l) {
			require.NoError(t, call(t.Context()), "%s: %s", name, use)
		}
		require.True(t, l.Agreed())
		require.ErrorIs(t, uses(segment.NewLocks(c, "cart", 64))["Lock"](t.Context()), segment.ErrSegments, name)
		require.ErrorIs(t, uses(segment.NewLocks(lockProcess(t, s), "cart", 64))["Lock"](t.Context()), segment.ErrSegments, name)
	}
}
