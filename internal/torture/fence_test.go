package torture

import (
	"net/rpc"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/history"
)

func locked(hold history.ID, token uint64, call, ret int64) history.Event {
	return history.Event{What: history.Locked, Key: "k", Hold: hold, Owner: hold, Mode: history.Write, Token: token, Call: call, Return: ret}
}

func TestFenceRefusesWhatComesTooLate(t *testing.T) {
	t.Parallel()
	f, err := newFence()
	require.NoError(t, err)
	client, err := rpc.Dial("tcp", f.addr())
	require.NoError(t, err)
	for _, w := range []struct {
		hold     history.ID
		token    uint64
		accepted bool
		newest   uint64
	}{{"1", 5, true, 5}, {"1", 5, true, 5}, {"2", 7, true, 7}, {"1", 5, false, 7}, {"2", 7, true, 7}} {
		var v Verdict
		require.NoError(t, client.Call("Fence.Write", Write{Key: "k", Token: w.token, Hold: w.hold}, &v))
		require.Equal(t, Verdict{w.accepted, w.newest}, v)
	}
	require.NoError(t, client.Close())
	log := f.close()
	require.Len(t, log, 5)
	require.NoError(t, judgeWrites(log, []history.Event{locked("1", 5, 1, 2), locked("2", 7, 3, 4)}))
}

func TestWritesAreJudged(t *testing.T) {
	t.Parallel()
	write := func(hold history.ID, token uint64, accepted bool, newest history.ID) entry {
		return entry{Write{"k", token, hold}, Verdict{Accepted: accepted}, newest}
	}
	for name, test := range map[string]struct {
		wrong string
		log   []entry
		had   []history.Event
	}{
		"a late write that was accepted": {
			"was accepted behind that of 2", []entry{write("2", 5, true, ""), write("1", 7, true, "2")},
			[]history.Event{locked("1", 7, 1, 2), locked("2", 5, 3, 4)},
		},
		"the newest, who was refused": {
			"was refused because of 1", []entry{write("1", 7, true, ""), write("2", 5, false, "1")},
			[]history.Event{locked("1", 7, 1, 2), locked("2", 5, 3, 4)},
		},
		"the newest of a lease that may have been lost": {
			"", []entry{write("1", 7, true, ""), write("2", 5, false, "1")},
			[]history.Event{locked("1", 7, 1, 2), locked("2", 5, 3, 4), {What: history.Shaken, Token: 6, Call: 1, Return: 2}},
		},
		"one that came behind that of a lease that may have been lost": {
			"", []entry{write("2", 5, true, ""), write("1", 7, true, "2")},
			[]history.Event{locked("1", 7, 1, 2), locked("2", 5, 3, 4), {What: history.Shaken, Token: 6, Call: 1, Return: 2}},
		},
		"two with one token": {
			"the same token 7", []entry{write("1", 7, true, ""), write("2", 7, true, "1")},
			[]history.Event{locked("1", 7, 1, 2), locked("2", 7, 3, 4)},
		},
		"a wrong token": {
			"wrote with 8", []entry{write("1", 8, true, "")}, []history.Event{locked("1", 7, 1, 2)},
		},
		"nobody's": {"which nobody got", []entry{write("1", 8, true, "")}, nil},
		"two at once, in either order": {
			"", []entry{write("1", 7, true, ""), write("2", 8, true, "1")},
			[]history.Event{locked("1", 7, 1, 5), locked("2", 8, 2, 4)},
		},
	} {
		err := judgeWrites(test.log, test.had)
		if test.wrong == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, test.wrong, name)
	}
}
