package segment

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
)

const bucketTime = 10 * time.Minute

// inBuckets returns a stock of one segment whose clock stands at the first moment of a bucket.
func inBuckets(t *testing.T) (*Stock, *serverClock) {
	t.Helper()
	server := redistest.Shared(t)
	s := opened(t, processAt(t, server.Option()), redistest.Prefix(t), Config{Segments: 1, Remember: bucketTime})
	clock := newClock(t, server, s.name)
	clock.edge(t, bucketTime, 0)
	s = through(t, s, clock.wrap)
	require.NoError(t, s.Load(t.Context(), 1000))
	return s, clock
}

// takes deducts an order and says whether it was on record.
func takes(t *testing.T, s *Stock, id string) (repeated bool) {
	t.Helper()
	r, err := s.Deduct(t.Context(), Order{ID: id, Quantity: 1})
	require.NoError(t, err)
	return r.Repeated
}

// buckets are the numbers of those that are kept.
func buckets(t *testing.T, s *Stock) (all []int64) {
	t.Helper()
	for _, key := range keysOf(t, redistest.Shared(t), s.name) {
		if _, rest, ok := strings.Cut(key, "orders:"); ok {
			number, _, _ := strings.Cut(rest, "{")
			n, err := strconv.ParseInt(number, 10, 64)
			require.NoError(t, err)
			all = append(all, n)
		}
	}
	return all
}

// TestOrdersAreRememberedAndForgotten: for Remember at least, for twice of it at most, wherever in a bucket they were taken.
func TestOrdersAreRememberedAndForgotten(t *testing.T) {
	t.Parallel()
	for _, into := range []time.Duration{0, time.Microsecond, bucketTime / 2, bucketTime - time.Microsecond} {
		for after, known := range map[time.Duration]bool{
			0:                               true,
			time.Microsecond:                true,
			bucketTime - time.Microsecond:   true,
			bucketTime:                      true,
			2*bucketTime - time.Microsecond: into == 0,
			2*bucketTime - into - 1000:      true,
			2*bucketTime - into:             false, // the bucket after the next
			2 * bucketTime:                  false,
			2*bucketTime + into:             false,
			100 * bucketTime:                false,
		} {
			s, clock := inBuckets(t)
			clock.add(t, into)
			require.False(t, takes(t, s, "o"))
			clock.add(t, after)
			require.Equal(t, known, takes(t, s, "o"), "taken %v into a bucket, sent again after %v", into, after)
			sold := int64(1)
			if !known {
				sold = 2
			}
			require.Equal(t, Books{Loaded: 1000, Sold: sold, Left: 1000 - sold}, audited(t, s))
		}
	}
}

// TestReturnedInTheNextBucket: an order that was taken in the bucket before is on record in both, and the return is what every
// call goes by, the short way of a deduct too; for as long as if there were no other.
func TestReturnedInTheNextBucket(t *testing.T) {
	t.Parallel()
	for v, want := range map[verb]error{deduct: ErrReturned, reserve: ErrReturned, confirm: ErrReturned, cancel: nil, giveBack: nil} {
		first, clock := inBuckets(t)
		o := Order{ID: "o", User: "u", Quantity: 1}
		_, err := first.Deduct(t.Context(), o)
		require.NoError(t, err)
		clock.edge(t, bucketTime, 0)
		require.NoError(t, first.Return(t.Context(), o))
		for _, after := range []time.Duration{0, bucketTime - time.Microsecond, time.Microsecond, bucketTime - time.Microsecond} {
			clock.add(t, after)
			s := newStock(first.c, first.name, first.conf, first.settings, first.server) // one that has gone no long way yet
			_, err = v.call(t, s, o)
			require.ErrorIs(t, err, want, "%c, %v later", v, after)
			record, err := s.Lookup(t.Context(), o.User, o.ID)
			require.NoError(t, err)
			require.Equal(t, Returned, record.State, "%c, %v later", v, after)
			require.Equal(t, Books{Loaded: 1000, Left: 1000}, audited(t, s), "%c, %v later", v, after)
		}
		clock.add(t, time.Microsecond)
		r, err := first.Deduct(t.Context(), o)
		require.NoError(t, err)
		require.False(t, r.Repeated, "it is forgotten")
	}
}

// TestClockThatGoesBack: what was taken in a later bucket is found, and what is taken now is found when the clock has
// caught up.
func TestClockThatGoesBack(t *testing.T) {
	t.Parallel()
	for _, back := range []time.Duration{time.Microsecond, time.Second, bucketTime, 5 * bucketTime} {
		s, clock := inBuckets(t)
		clock.edge(t, bucketTime, 0)
		start := clock.now(t)
		require.False(t, takes(t, s, "late"))
		clock.add(t, -back)
		require.True(t, takes(t, s, "late"), back)
		require.False(t, takes(t, s, "early"))
		require.True(t, takes(t, s, "early"))
		require.Equal(t, Books{Loaded: 1000, Sold: 2, Left: 998}, audited(t, s))
		_, err := s.Confirm(t.Context(), Order{ID: "late", Quantity: 1})
		require.NoError(t, err, "the long way, too")
		for _, at := range []time.Duration{0, bucketTime - time.Microsecond, bucketTime, 2*bucketTime - time.Microsecond} {
			clock.set(t, start.Add(at))
			require.True(t, takes(t, s, "late"), "%v, then %v", back, at)
			require.True(t, takes(t, s, "early"), "%v, then %v", back, at)
		}
		clock.set(t, start.Add(2*bucketTime))
		require.False(t, takes(t, s, "late"), back)
		require.LessOrEqual(t, len(buckets(t, s)), 2)
	}
}

// TestClockThatJumps far forward, and comes back: the bucket stays where it went, and works.
func TestClockThatJumps(t *testing.T) {
	t.Parallel()
	s, clock := inBuckets(t)
	start := clock.now(t)
	clock.add(t, 1000*bucketTime)
	require.False(t, takes(t, s, "far"))
	clock.set(t, start)
	for range 3 {
		require.True(t, takes(t, s, "far"))
		clock.add(t, bucketTime)
	}
	require.Len(t, buckets(t, s), 2)
}

// TestBucketsAreDropped: of however many there are two at most, each with an expiry, in the present for at least as long as
// it is read.
func TestBucketsAreDropped(t *testing.T) {
	t.Parallel()
	s, clock := inBuckets(t)
	for i := range 12 {
		require.False(t, takes(t, s, fmt.Sprint(i)))
		now := clock.now(t).UnixMicro() / bucketTime.Microseconds()
		require.ElementsMatch(t, []int64{now - 1, now}, buckets(t, s))
		for _, bucket := range buckets(t, s) {
			key := s.homes[0].keys.orders(bucket)
			m := redistest.Shared(t).Do(t, "PTTL", key)
			ttl, err := m.ToInt64()
			require.NoError(t, err)
			// It is read for two Remembers from its own beginning; one more is the reserve.
			least := time.UnixMicro((bucket + 2) * bucketTime.Microseconds()).Sub(clock.now(t))
			require.Greater(t, time.Duration(ttl)*time.Millisecond, least)
			require.LessOrEqual(t, time.Duration(ttl)*time.Millisecond, 3*bucketTime+time.Millisecond)
		}
		clock.edge(t, bucketTime, time.Duration(i)*time.Second)
		if i == 5 {
			clock.add(t, 20*bucketTime) // nobody came for long
		}
	}
	for _, key := range keysOf(t, redistest.Shared(t), s.name) {
		if !strings.Contains(key, "orders:") {
			m := redistest.Shared(t).Do(t, "PTTL", key)
			ttl, err := m.ToInt64()
			require.NoError(t, err)
			require.Equal(t, int64(-1), ttl, "the books stay: %s", key)
		}
	}
}

// TestManyProcessesRotate: of those that meet a new bucket at once none loses a record or takes twice.
func TestManyProcessesRotate(t *testing.T) {
	t.Parallel()
	s, clock := inBuckets(t)
	var fleet []*Stock
	for range 4 {
		fleet = append(fleet, through(t, twin(t, s), clock.wrap))
	}
	for round := range 10 {
		done := make(chan error, len(fleet)*8)
		for i := range cap(done) {
			go func() {
				_, err := fleet[i%len(fleet)].Deduct(t.Context(), Order{ID: fmt.Sprint("order of round ", round), Quantity: 1})
				done <- err
			}()
		}
		for range cap(done) {
			require.NoError(t, <-done)
		}
		require.Equal(t, int64(round+1), audited(t, s).Sold)
		if round > 0 {
			require.True(t, takes(t, s, fmt.Sprint("order of round ", round-1)))
		}
		clock.edge(t, bucketTime, time.Minute)
	}
}
