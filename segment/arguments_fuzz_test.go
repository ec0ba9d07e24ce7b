package segment

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// FuzzOrders: an order is refused in words and changes nothing, or it is taken once, whatever its ID and user are made of;
// and none is taken for another.
func FuzzOrders(f *testing.F) {
	for _, id := range []string{"", "o", "1:a", ":", "\x00", "\n", "\xff\xfe", "W1", "R1", " ", strings.Repeat("}", MaxID), strings.Repeat("x", MaxID+1)} {
		f.Add(id, "", int64(1), "u", "o")
		f.Add(id, "u", int64(2), "", "uo")
		f.Add("o", id, int64(3), "o", "")
	}
	for _, n := range []int64{0, -1, 1, 60, 61, MaxUnits, MaxUnits + 1, math.MaxInt64, math.MinInt64} {
		f.Add("o", "u", n, "a", "b")
	}
	const units = 60
	base := loadedFor(f)
	f.Fuzz(func(t *testing.T, id, user string, quantity int64, otherUser, otherID string) {
		ctx, s := t.Context(), opened(t, base.c, base.name, base.conf)
		require.NoError(t, s.Reset(ctx, units))
		o := Order{ID: id, User: user, Quantity: quantity}
		_, err := s.Deduct(ctx, o)
		if len(id) > MaxID || len(user) > MaxID || quantity < 1 || quantity > MaxUnits {
			requireInvalid(t, err, "limit of 128", fmt.Sprintf("a quantity of %d is not within 1 and 9007199254740991", quantity))
			require.Equal(t, Books{Loaded: units, Left: units}, audited(t, s))
			return
		}
		field := o.field()
		gotUser, gotID, ok := parseField(field)
		require.True(t, ok)
		require.Equal(t, []string{user, id}, []string{gotUser, gotID})
		if quantity > units {
			require.ErrorIs(t, err, ErrSoldOut)
			require.Equal(t, Books{Loaded: units, Left: units}, audited(t, s))
			return
		}
		require.NoError(t, err)
		require.Equal(t, Books{Loaded: units, Left: units - quantity, Sold: quantity}, audited(t, s))
		if id == "" {
			return // it can't be asked for again
		}
		again, err := s.Deduct(ctx, o)
		require.NoError(t, err)
		require.True(t, again.Repeated)
		require.Equal(t, quantity, again.Quantity)
		record, err := s.Lookup(ctx, user, id)
		require.NoError(t, err)
		require.Equal(t, Record{State: Taken, Quantity: quantity}, record)
		if other := (Order{ID: otherID, User: otherUser, Quantity: 1}); other.validate(&s.conf, true) == nil && (otherID != id || otherUser != user) {
			require.NotEqual(t, field, other.field())
			record, err := s.Lookup(ctx, otherUser, otherID)
			require.NoError(t, err)
			require.Equal(t, Unknown, record.State, "%q of %q is taken for %q of %q", otherID, otherUser, id, user)
		}
		require.NoError(t, s.Return(ctx, o))
		require.Equal(t, Books{Loaded: units, Left: units}, audited(t, s))
	})
}

func requireInvalid(t *testing.T, err error, parts ...string) {
	require.ErrorIs(t, err, coordinator.ErrInvalid)
	require.Less(t, len(err.Error()), 3000)
	for _, part := range parts {
		if strings.Contains(err.Error(), part) {
			return
		}
	}
	require.Fail(t, "what is wrong is not named", "%v: none of %q", err, parts)
}

// FuzzStockConfigs: settings are refused in words, or are those that other processes read in Redis.
func FuzzStockConfigs(f *testing.F) {
	for _, n := range []int{0, 1, -1, MaxSegments, MaxSegments + 1, math.MaxInt, math.MinInt} {
		f.Add("s", n, int64(0), int64(0), 0)
		f.Add("s", 1, int64(0), int64(n), 0)
		f.Add("s", 1, int64(n), int64(0), 0)
		f.Add("s", 1, int64(0), int64(0), n)
	}
	for _, d := range []time.Duration{MinRemember, MinRemember - 1, MinRemember + 1, MaxRemember, MaxRemember + time.Millisecond} {
		f.Add("s", 16, int64(d), int64(MaxUnits), 1)
	}
	for _, name := range []string{"", strings.Repeat("n", MaxName), strings.Repeat("n", MaxName+1), "\x00{}%"} {
		f.Add(name, 16, int64(0), int64(0), 0)
	}
	c := loadedFor(f).c
	f.Fuzz(func(t *testing.T, name string, segments int, remember, perUser int64, waiting int) {
		asked := Config{Segments: segments, Remember: time.Duration(remember), PerUser: perUser, MaxWaiting: waiting}
		s, err := NewStock(c, name, asked)
		if err != nil {
			require.Nil(t, s)
			requireInvalid(t, err, "the name is empty", fmt.Sprintf("a name of %d bytes is over the limit of %d", len(name), MaxName),
				fmt.Sprintf("%d segments are not within 1 and %d", segments, MaxSegments), fmt.Sprintf("Config.Remember of %v is not", time.Duration(remember)),
				fmt.Sprintf("Config.PerUser of %d is not within", perUser), fmt.Sprintf("Config.MaxWaiting of %d is negative", waiting))
			return
		}
		require.True(t, name != "" && len(name) <= MaxName && segments >= 0 && segments <= MaxSegments && perUser >= 0 && perUser <= MaxUnits && waiting >= 0)
		require.True(t, remember == 0 || time.Duration(remember) >= MinRemember && time.Duration(remember) <= MaxRemember)
		read, ok := confOf("17:" + s.conf.terms())
		require.True(t, ok)
		require.Equal(t, Config{Segments: s.conf.Segments, Remember: s.conf.Remember, PerUser: s.conf.PerUser}, read)
		var all int64
		for i := range s.conf.Segments {
			n := share(MaxUnits, i, s.conf.Segments)
			require.GreaterOrEqual(t, n, int64(0))
			all += n
		}
		require.Equal(t, int64(MaxUnits), all)
	})
}

// FuzzStockNames: all names of a segment are in one slot by the server's own word, and no other stock or segment has any of
// them.
func FuzzStockNames(f *testing.F) {
	for _, name := range awkward {
		f.Add("lock:", name, 0, name+"/1", 1)
		f.Add("", name, 1, "a", 0)
	}
	server := redistest.Start(f, "--cluster-enabled", "yes")
	option := server.Option()
	option.ForceSingleClient = true
	client, err := rueidis.NewClient(option)
	require.NoError(f, err)
	f.Cleanup(client.Close)
	f.Fuzz(func(t *testing.T, prefix, name string, i int, other string, j int) {
		i, j = i&(MaxSegments-1), j&(MaxSegments-1)
		if strings.ContainsAny(prefix, "{}") {
			return // that is a tag of its own, for all
		}
		k := newKeys(prefix, name, i)
		all := k.all()
		commands := make([]rueidis.Completed, len(all))
		for n, key := range all {
			require.True(t, strings.HasPrefix(key, prefix+"~stock:"))
			commands[n] = client.B().ClusterKeyslot().Key(key).Build()
		}
		slots := map[int64]bool{}
		for _, result := range client.DoMulti(t.Context(), commands...) {
			slot, err := result.ToInt64()
			require.NoError(t, err)
			slots[slot] = true
		}
		require.Len(t, slots, 1)
		if name == other && i == j {
			return
		}
		require.NotEqual(t, tagged(name, i), tagged(other, j))
		theirs := newKeys(prefix, other, j)
		for _, key := range theirs.all() {
			require.NotContains(t, all, key)
		}
	})
}

// FuzzTimes: how long a reservation is held is refused in words, or is what its deadline says.
func FuzzTimes(f *testing.F) {
	for _, d := range []time.Duration{0, 1, -1, time.Millisecond, time.Millisecond - 1, time.Hour, MaxReserve, MaxReserve + 1, math.MaxInt64, math.MinInt64} {
		f.Add(int64(d), "k", int64(1))
		f.Add(int64(time.Hour), "", int64(d))
	}
	base := loadedFor(f)
	f.Fuzz(func(t *testing.T, ttl int64, routing string, quantity int64) {
		ctx, s := t.Context(), opened(t, base.c, base.name, base.conf)
		require.NoError(t, s.Reset(ctx, 10))
		began, d := time.Now(), time.Duration(ttl)
		r, err := s.Reserve(ctx, Order{ID: "o", Quantity: 1}, d)
		if d < time.Millisecond || d > MaxReserve {
			requireInvalid(t, err, fmt.Sprintf("a reservation for %v is not within 1ms and %v", d, MaxReserve))
			require.Nil(t, r)
		} else {
			require.NoError(t, err)
			require.False(t, r.Deadline.Before(began.Add(d).Add(-time.Microsecond)), "%v of %v", r.Deadline.Sub(began), d)
		}
		ran := false
		err = s.WithSegment(ctx, routing, quantity, func(context.Context, Held) error { ran = true; return nil })
		switch {
		case routing == "":
			requireInvalid(t, err, "the routing key is empty")
		case quantity < 1 || quantity > MaxUnits:
			requireInvalid(t, err, "a quantity of "+strconv.FormatInt(quantity, 10))
		case quantity > 10:
			require.ErrorIs(t, err, ErrSoldOut)
		default:
			require.True(t, ran || errors.Is(err, ErrSoldOut), "%v", err)
			return
		}
		require.False(t, ran)
	})
}
