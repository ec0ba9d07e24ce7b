package history

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	errBusy = errors.New("busy")
	errLost = errors.New("lost")
)

// toy is a hold.
type toy struct {
	token uint64
	err   error
}

func (h *toy) Token() uint64 { return h.token }
func (h *toy) Valid() bool   { return h.err == nil }
func (h *toy) Unlock() error { return h.err }

func newTestRecorder(w *bytes.Buffer) *Recorder {
	r := NewRecorder(w, 7)
	r.Refusal = func(err error) bool { return errors.Is(err, errBusy) }
	r.Over = func(err error) bool { return errors.Is(err, errLost) }
	return r
}

func TestRecorderTellsWhatCallsSaid(t *testing.T) {
	t.Parallel()
	var record bytes.Buffer
	r := newTestRecorder(&record)
	lane := r.Lane(3)
	lock := func(h *toy, err error) func() (Hold, error) { return func() (Hold, error) { return h, err } }
	require.Nil(t, lane.Lock("k", Write, "", "TryLock", lock(nil, errBusy)))
	require.Nil(t, lane.Lock("k", Write, "", "TryLock", lock(nil, errLost)))
	first := &toy{token: 5}
	w := lane.Lock("k", Write, "", "Lock", lock(first, nil))
	in := lane.Lock("k", Read, w.Owner, "RLock", lock(&toy{token: 5}, nil))
	require.True(t, w.Valid())
	in.Unlock()
	next := w.Downgrade(lock(&toy{token: 5}, nil))
	next.Hold.(*toy).err = errLost
	require.False(t, next.Valid())
	require.Nil(t, next.Downgrade(lock(nil, errLost)))
	next.Unlock()
	next.Left("Read", Now(), errBusy)
	require.NoError(t, r.Err())

	events, err := Load(&record)
	require.NoError(t, err)
	for i := range events {
		require.Equal(t, 7, events[i].Process)
		require.Equal(t, 3, events[i].Lane)
		require.Equal(t, "k", events[i].Key)
		require.NotZero(t, events[i].Call)
		require.LessOrEqual(t, events[i].Call, events[i].Return)
		events[i] = Event{
			What: events[i].What, Hold: events[i].Hold, Owner: events[i].Owner, Next: events[i].Next,
			Mode: events[i].Mode, Token: events[i].Token, Note: events[i].Note,
		}
	}
	require.Equal(t, []Event{
		{What: Refused, Mode: Write, Note: "TryLock: busy"},
		{What: Odd, Note: "TryLock: lost"},
		{What: Locked, Hold: "7.1", Owner: "7.1", Mode: Write, Token: 5, Note: "Lock"},
		{What: Locked, Hold: "7.2", Owner: "7.1", Mode: Read, Token: 5, Note: "RLock"},
		{What: Alive, Hold: "7.1"},
		{What: Unlocked, Hold: "7.2", Note: "Unlock"},
		{What: Downgraded, Hold: "7.1", Next: "7.3", Token: 5},
		{What: Lost, Hold: "7.3", Note: "Valid"},
		{What: Lost, Hold: "7.3", Note: "Downgrade: lost"},
		{What: Lost, Hold: "7.3", Note: "Unlock: lost"},
		{What: Odd, Note: "Read of 7.3: busy"},
	}, events)
	require.Equal(t, map[string]int{
		"refused": 1, "odd": 2, "locked": 2, "write": 1, "read": 1, "alive": 1, "unlocked": 1, "downgraded": 1, "lost": 3,
	}, Count(events))
}

func TestTornLastLineIsPassedOver(t *testing.T) {
	t.Parallel()
	events, err := Load(strings.NewReader(`{"what":"killed","process":1,"call":2,"return":0}` + "\n" + `{"what":"kil`))
	require.NoError(t, err)
	require.Equal(t, []Event{{What: Killed, Process: 1, Call: 2}}, events)
	_, err = Load(strings.NewReader("{\n"))
	require.ErrorContains(t, err, "line 1")
}

// failing is a writer that can't.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errBusy }

func TestRecorderThatCannotWriteSaysSo(t *testing.T) {
	t.Parallel()
	r := NewRecorder(failing{}, 1)
	require.NoError(t, r.Err())
	r.Lane(1).Odd("k", Now(), "x")
	require.ErrorIs(t, r.Err(), errBusy)
}
