package coordinator_test

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/coordinator/coordinatortest"
	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/lease/memlease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// extremes are durations at which arithmetic may go wrong.
var extremes = []time.Duration{
	0, 1, -1, math.MaxInt64, math.MinInt64, math.MaxInt64 - 1, math.MaxInt64 / 2, 99 * time.Millisecond, 100 * time.Millisecond, time.Second,
	coordinator.MaxTTL, coordinator.MaxTTL + 1, 292 * 365 * 24 * time.Hour,
}

// requireTold asserts that an error names one of the options, in words.
func requireTold(t *testing.T, err error, options ...string) {
	require.ErrorIs(t, err, coordinator.ErrInvalid)
	for _, option := range options {
		if strings.Contains(err.Error(), option) {
			return
		}
	}
	require.Fail(t, "what is wrong is not named", "%v: none of %q", err, options)
}

// FuzzOptions: options are refused in words that name one that is wrong, or the coordinator does what it is for: it holds, it keeps
// others out for as long, it lets them in.
func FuzzOptions(f *testing.F) {
	const second = int64(time.Second)
	// One of them is another, and all the rest are fine.
	with := func(at, value int) {
		d := [...]int64{30 * second, 0, 0, 5_000_000, 5 * second, 24 * 3600 * second, 0, 0}
		n := [...]int{64, 0, 0}
		if at < len(d) {
			d[at] = int64(value)
		} else {
			n[at-len(d)] = value
		}
		f.Add(d[0], d[1], d[2], at == 2, n[0], d[3], "lock:", n[1], d[4], d[5], d[6], d[7], n[2], "")
	}
	for at := range 8 {
		for _, d := range extremes {
			with(at, int(d))
		}
	}
	for at := range 3 {
		for _, n := range []int{0, 1, -1, 1 << 16, 1<<16 + 1, math.MaxInt, math.MinInt} {
			with(8+at, n)
		}
	}
	for _, prefix := range []string{"", "{a}", "}{", "a{b}c", "{}", "{", "}", "{a}{b}", "{a}}", "\x00", "~"} {
		f.Add(second, second, second, false, 1, second, prefix, 0, second, second, second, second, 0, "")
	}
	for _, url := range []string{"http://x/{trace}", "x"} {
		f.Add(second, second, second, false, 1, second, "", 0, second, second, second, second, 0, url)
	}
	for _, d := range extremes {
		n := int64(d)
		f.Add(second, n, n, true, 1, n, "", 0, n, n, n, n, 1, "")
	}
	f.Fuzz(func(t *testing.T, ttl, retention, shared int64, sharedSet bool, budget int, slice int64, prefix string, waiters int, unavailable, tokens,
		holdAlarm, waitAlarm int64, roots int, url string,
	) {
		opts := []coordinator.Option{
			coordinator.WithLogger(slog.New(slog.DiscardHandler)), coordinator.WithTTL(time.Duration(ttl)), coordinator.WithRetention(time.Duration(retention)),
			coordinator.WithHandoff(budget, time.Duration(slice)), coordinator.WithKeyPrefix(prefix), coordinator.WithMaxWaiters(waiters),
			coordinator.WithUnavailableAfter(time.Duration(unavailable)), coordinator.WithTokenRetention(time.Duration(tokens)),
			coordinator.WithTelemetry(telemetry.Config{HoldAlarm: time.Duration(holdAlarm), WaitAlarm: time.Duration(waitAlarm), Roots: roots, TraceURL: url}),
		}
		if sharedSet {
			opts = append(opts, coordinator.WithSharedRetention(time.Duration(shared)))
		}
		var wrong []string
		bad := func(is bool, option string) {
			if is {
				wrong = append(wrong, option)
			}
		}
		bad(time.Duration(ttl) < coordinator.MinTTL || time.Duration(ttl) > coordinator.MaxTTL, fmt.Sprintf("WithTTL(%v)", time.Duration(ttl)))
		bad(retention < 0, fmt.Sprintf("WithRetention(%v)", time.Duration(retention)))
		bad(sharedSet && shared < 0, fmt.Sprintf("WithSharedRetention(%v)", time.Duration(shared)))
		bad(budget < 1 || budget > 1<<16, fmt.Sprintf("WithHandoff: a budget of %d", budget))
		bad(slice < 0, fmt.Sprintf("WithHandoff: a slice of %v", time.Duration(slice)))
		bad(waiters < 0, fmt.Sprintf("WithMaxWaiters(%d)", waiters))
		bad(unavailable < 0, fmt.Sprintf("WithUnavailableAfter(%v)", time.Duration(unavailable)))
		bad(tokens < max(ttl, int64(time.Second)), fmt.Sprintf("WithTokenRetention(%v)", time.Duration(tokens)))
		bad(url != "" && !strings.Contains(url, "{trace}"), fmt.Sprintf("TraceURL %q", url))
		bad(!goodPrefix(prefix), fmt.Sprintf("WithKeyPrefix(%q)", prefix))

		synctest.Test(t, func(t *testing.T) {
			server := memlease.NewServer()
			defer server.Close()
			store := server.Store()
			c, err := coordinator.NewWithStore(store, opts...)
			if len(wrong) > 0 {
				requireTold(t, err, wrong...)
				require.NoError(t, store.Close(t.Context()))
				return
			}
			require.NoError(t, err)
			other, err := coordinator.NewWithStore(server.Store(), opts...)
			require.NoError(t, err)
			works(t, c, other, time.Duration(ttl))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			require.NoError(t, c.Close(ctx))
			require.NoError(t, other.Close(ctx))
		})
	})
}

// goodPrefix is written apart from the code: no brace, or one {tag}.
func goodPrefix(prefix string) bool {
	parts := strings.FieldsFunc("x"+prefix+"x", func(r rune) bool { return r == '{' || r == '}' })
	braces := strings.Map(func(r rune) rune {
		if r == '{' || r == '}' {
			return r
		}
		return -1
	}, prefix)
	return braces == "" || braces == "{}" && len(parts) == 3
}

// works tries out what a coordinator is for, beside another one.
func works(t *testing.T, c, other *coordinator.Coordinator, ttl time.Duration) {
	h, err := c.Mutex("k").Lock(t.Context())
	require.NoError(t, err)
	_, err = other.Mutex("k").TryLock(t.Context())
	require.ErrorIs(t, err, coordinator.ErrNotAcquired)
	time.Sleep(min(2*ttl, 10*time.Second)) // it is renewed
	require.True(t, h.Valid())
	require.NoError(t, h.Unlock())
	theirs, err := other.Mutex("k").Lock(t.Context())
	require.NoError(t, err, "whatever the first keeps, it gives up what is wanted")
	require.Greater(t, theirs.Token(), h.Token())
	require.NoError(t, theirs.Unlock())

	r, err := c.ReadWrite("rw").Lock(t.Context(), lease.Shared)
	require.NoError(t, err)
	beside, err := other.ReadWrite("rw").Lock(t.Context(), lease.Shared)
	require.NoError(t, err)
	_, err = other.ReadWrite("rw").TryLock(t.Context(), lease.Exclusive)
	require.ErrorIs(t, err, coordinator.ErrNotAcquired)
	require.NoError(t, r.Unlock())
	require.NoError(t, beside.Unlock())
	w, err := other.ReadWrite("rw").Lock(t.Context(), lease.Exclusive)
	require.NoError(t, err)
	require.NoError(t, w.Unlock())
}

// FuzzMutexes: key and options of a mutex, and the times of its calls, are refused in words, or do what they say.
func FuzzMutexes(f *testing.F) {
	const second = int64(time.Second)
	for _, key := range []string{"k", "", "\x00\xff", "a}b{c", strings.Repeat("k", coordinator.MaxKey), strings.Repeat("k", coordinator.MaxKey+1)} {
		f.Add(key, second, second, false, second, second, second, true, false, "")
	}
	for _, d := range extremes {
		n := int64(d)
		f.Add("k", n, second, true, second, second, second, false, true, "class")
		f.Add("k", second, n, true, second, second, second, false, true, "")
		f.Add("k", second, second, true, n, second, second, true, true, "")
		f.Add("k", second, second, true, second, n, second, true, true, "")
		f.Add("k", second, second, true, second, second, n, true, true, "")
		f.Add("k", int64(time.Minute), n, true, n, n, n, true, true, "")
	}
	f.Fuzz(func(t *testing.T, key string, ttl, maxHold int64, ends bool, wait, extend, sleep int64, fair, cached bool, class string) {
		opts := []coordinator.MutexOption{coordinator.TTL(time.Duration(ttl)), coordinator.ClassAs(class)}
		if ends {
			opts = append(opts, coordinator.MaxHold(time.Duration(maxHold)))
		}
		if fair {
			opts = append(opts, coordinator.Fair())
		}
		if cached {
			opts = append(opts, coordinator.Cached())
		}
		var wrong []string
		if key == "" || len(key) > coordinator.MaxKey {
			wrong = append(wrong, "the key ")
		}
		if time.Duration(ttl) < coordinator.MinTTL || time.Duration(ttl) > coordinator.MaxTTL {
			wrong = append(wrong, fmt.Sprintf("TTL(%v)", time.Duration(ttl)))
		}
		if ends && maxHold <= 0 {
			wrong = append(wrong, fmt.Sprintf("MaxHold(%v)", time.Duration(maxHold)))
		}
		synctest.Test(t, func(t *testing.T) {
			world := coordinatortest.New(t, coordinator.WithLogger(slog.New(slog.DiscardHandler)))
			c, other := world.Coordinator, world.Another()
			m := c.Mutex(key, opts...)
			h, err := m.Lock(t.Context())
			if len(wrong) > 0 {
				requireTold(t, err, wrong...)
				require.Less(t, len(err.Error()), 500, "as long as the key")
				require.Zero(t, c.Snapshot().Stats.Commands, "nothing is sent")
				return
			}
			require.NoError(t, err)
			until := time.Duration(math.MaxInt64)
			if ends {
				until = time.Duration(maxHold)
			}
			switch err := h.Extend(time.Duration(extend)); {
			case extend <= 0:
				requireTold(t, err, fmt.Sprintf("Extend(%v)", time.Duration(extend)))
			case !ends:
				require.ErrorIs(t, err, coordinator.ErrNoMaxHold)
			default:
				require.NoError(t, err)
				until = time.Duration(extend)
			}

			// Somebody else waits for it, as long as it says, or until the hold is over.
			const longest = 5 * time.Minute // of what is waited for to its end
			began := time.Now()
			limit := time.Duration(wait)
			if limit > longest { // who waits for ever is tried with a hold that ends
				go func() {
					time.Sleep(min(time.Minute, until))
					_ = h.Unlock() // or it is over already
				}()
			}
			theirs, err := other.Mutex(key, coordinator.TTL(time.Minute)).TryLockFor(t.Context(), limit)
			waited := time.Since(began)
			switch {
			case limit < 0:
				requireTold(t, err, fmt.Sprintf("TryLockFor(%v)", limit))
				require.Zero(t, waited)
			case err != nil:
				require.ErrorIs(t, err, coordinator.ErrNotAcquired)
				require.LessOrEqual(t, limit, until)
				require.GreaterOrEqual(t, waited, limit)
			default:
				require.Greater(t, theirs.Token(), h.Token())
				require.True(t, waited >= until || limit > longest, "%v of %v", waited, until)
				require.NoError(t, theirs.Unlock())
				require.False(t, h.Valid())
				return
			}
			require.Equal(t, waited < until, h.Valid(), "%v of %v", waited, until)
			if rest := time.Duration(sleep) % time.Minute; rest > 0 {
				time.Sleep(rest)
				waited = time.Since(began)
			}
			switch err := h.Unlock(); {
			case waited < until:
				require.NoError(t, err)
			case waited > until:
				require.ErrorIs(t, err, coordinator.ErrHoldExpired, "%v after %v of %v", err, waited, until)
			}
		})
	})
}
