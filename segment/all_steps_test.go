package segment

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
)

// A part that is begun is left to whoever is at work, for a second; then another call takes over.
func TestBeginTakesOver(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		age      time.Duration
		detail   string
		quantity int64
		status   status
		after    string
	}{
		{"young", time.Second - time.Microsecond, "new", 2, statusBusy, "p2 own " + itsLines + " =caller"},
		{"old", time.Second, "new", 2, statusDone, "p2 dealt " + itsLines + " =new"},
		{"old, more units", time.Second, "new", 10, statusDone, "p10 dealt " + itsLines + " =new"},
		{"old, too many units", time.Second, "new", 11, statusShort, ""},
		{"over", partLasts + time.Second, "new", 2, statusDone, "p2 dealt " + itsLines + " =new"},
		{"a copy", 0, "caller", 2, statusDone, "p2 own " + itsLines + " =caller"},
		{"a late copy", partLasts - time.Microsecond, "caller", 2, statusDone, "p2 own " + itsLines + " =caller"},
		{"a very late copy", partLasts, "caller", 2, statusDone, "p2 dealt " + itsLines + " =caller"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.situations()["begun"]()
			b.clock.add(t, c.age)
			st := b.take("begin", "", "", itsLines, c.detail, c.quantity)
			require.Equal(t, c.status, st.status)
			require.Equal(t, c.after, b.now())
			if c.status == statusBusy {
				require.Equal(t, partLasts-c.age, st.left)
			}
			b.take("abort", st.by, "", itsLines, "", 0)
			audited(t, b.stock)
		})
	}
}

// An attempt number is never dealt twice, also where the clock steps back.
func TestAttemptsGrow(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	last := b.own
	for range 5 {
		st := b.take("begin", "", "", itsLines, "caller", 2)
		require.Equal(t, statusDone, st.status)
		require.Greater(t, st.by, last) // texts of the same length
		last = st.by
		b.take("abort", last, "", itsLines, "", 0)
		b.clock.add(t, -time.Minute)
	}
}

func TestCommitInTime(t *testing.T) {
	t.Parallel()
	for age, want := range map[time.Duration]effect{
		partLasts:                    {statusDone, "d2 own " + itsLines + " places"},
		partLasts + time.Microsecond: {statusOutrun, ""},
	} {
		b := newBench(t)
		b.situations()["begun"]()
		b.clock.add(t, age)
		require.Equal(t, want.status, b.take("commit", b.own, "", itsLines, "places", 0).status)
		require.Equal(t, want.after, b.now())
		require.Equal(t, holds(want.after), audited(t, b.stock))
	}
}

// A prepare that arrives long after its attempt was dealt takes nothing.
func TestLatePrepare(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.clock.add(t, 6*partLasts)
	st := b.take("prepare", b.older, firstPlace, itsLines, "", 2)
	require.Equal(t, statusOutrun, st.status)
	require.Equal(t, "late", st.by)
	require.Empty(t, b.now())
	require.Equal(t, statusDone, b.take("prepare", b.newer, firstPlace, itsLines, "", 2).status)
	require.Equal(t, "p2 newer "+itsLines+" "+firstPlace, b.now())
}

func TestPartsAndTheLimitPerUser(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	conf := Config{Segments: 1, PerUser: 3}
	b.stock = through(t, opened(t, b.stock.c, b.stock.name+"limited", conf), b.clock.wrap)
	require.NoError(t, b.stock.Load(t.Context(), 10))
	users := func() map[string]string {
		return hashAt(t, redistest.Shared(t), b.stock.homes[0].keys.users)
	}
	require.Equal(t, statusOver, b.take("prepare", b.older, firstPlace, itsLines, "", 4).status)
	require.Empty(t, b.now())
	require.Equal(t, statusDone, b.take("prepare", b.older, firstPlace, itsLines, "", 3).status)
	require.Equal(t, "3", users()["u"])
	require.Equal(t, statusDone, b.take("prepare", b.own, firstPlace, itsLines, "", 2).status, "what is taken over doesn't count")
	require.Equal(t, "2", users()["u"])
	require.Equal(t, statusOver, b.take("prepare", b.newer, firstPlace, itsLines, "", 4).status)
	require.Empty(t, b.now(), "an older attempt is over, too")
	require.NotContains(t, users(), "u")
	require.Equal(t, statusDone, b.take("prepare", b.newer, firstPlace, itsLines, "", 3).status)
	b.take("finish", b.newer, firstPlace, itsLines, "", 0)
	require.Equal(t, "3", users()["u"])
	b.take("undo", b.newer, firstPlace, itsLines, "", 0)
	require.NotContains(t, users(), "u")
	require.Equal(t, Books{Loaded: 10, Left: 10}, audited(t, b.stock))
}

// What a script is told of another epoch does nothing.
func TestStepsOfAnotherEpoch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	old, err := b.stock.set()
	require.NoError(t, err)
	require.NoError(t, b.stock.Reset(t.Context(), 10))
	for _, verb := range []string{"begin", "prepare", "commit", "finish", "close", "abort", "recall", "undo", "see"} {
		st := &step{home: b.stock.homes[0], set: old, verb: verb, field: "1:uo", lines: itsLines, attempt: b.own, quantity: 2}
		takeSteps(b.stock.run, st)
		require.ErrorIs(t, st.err, ErrEpoch, verb)
	}
	require.Empty(t, b.now())
	require.Equal(t, Books{Loaded: 10, Left: 10}, audited(t, b.stock))
}

func TestPlaces(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	set := "17:4:60000:3"
	var all []string
	names := []string{"a", "a b", "12:x", "{}%\x00 1:1:1:1:1 ", "ä"}
	for i, name := range names {
		other := opened(t, b.stock.c, name, Config{Segments: 4, Remember: time.Minute, PerUser: 3})
		all = append(all, placeOf(other.homes[i%4], set))
	}
	homes, sets, err := b.stock.places(strings.Join(all, " "))
	require.NoError(t, err)
	require.Len(t, homes, len(names))
	for i, h := range homes {
		require.Equal(t, names[i], h.stock.name)
		require.Equal(t, i%4, h.index)
		require.Equal(t, set, sets[i])
		require.Equal(t, Config{Segments: 4, Remember: time.Minute, PerUser: 3}, h.stock.conf)
		require.Equal(t, newKeys(b.stock.settings.KeyPrefix, names[i], i%4), h.keys)
	}
	for _, bad := range []string{"x", "9:a0:1:1:1:1", "-1:a0:1:1:1:1", "1:a", "1:ax:1:1:1:1", "1:a1:1:1:1:1", "1:a0:1:0:1:1", "1:a0:1:1:1"} {
		_, _, err := b.stock.places(bad)
		require.Error(t, err, bad)
	}
}
