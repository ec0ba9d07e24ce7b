package history

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The stories below are told by these. Times are small numbers; a TTL is 100.

var rules = Rules{TTL: 100, Limit: time.Minute}

// lines makes a history.
func lines(events ...Event) []Event { return events }

// locked is a hold with its own name as its owner. The first figure of a name is its process.
func locked(hold ID, mode Mode, token uint64, call, ret int64) Event {
	return again(hold, hold, mode, token, call, ret)
}

// again is a hold of an owner that may be inside already.
func again(hold, owner ID, mode Mode, token uint64, call, ret int64) Event {
	return Event{What: Locked, Key: "k", Process: processOf(hold), Hold: hold, Owner: owner, Mode: mode, Token: token, Call: call, Return: ret}
}

// said is what a hold answered.
func said(hold ID, what What, call, ret int64) Event {
	return Event{What: what, Key: "k", Process: processOf(hold), Hold: hold, Call: call, Return: ret}
}

func downgraded(hold, next ID, token uint64, call, ret int64) Event {
	return Event{What: Downgraded, Key: "k", Process: processOf(hold), Hold: hold, Next: next, Token: token, Call: call, Return: ret}
}

func killed(process int) Event { return Event{What: Killed, Process: process} }

func paused(process int, call, ret int64) Event {
	return Event{What: Paused, Process: process, Call: call, Return: ret}
}

func deleted(token uint64, call, ret int64) Event {
	return Event{What: Deleted, Key: "k", Token: token, Call: call, Return: ret}
}

func shaken(token uint64, call, ret int64) Event {
	return Event{What: Shaken, Token: token, Call: call, Return: ret}
}

func processOf(hold ID) int { return int(hold[0] - '0') }

func TestHistories(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		wrong  string // part of what is said of a bad one; "" is a good one
		events []Event
	}{
		{"nothing", "", nil},
		{"writers one after the other", "", lines(
			locked("1a", Write, 1, 0, 1), said("1a", Unlocked, 5, 6),
			locked("2a", Write, 2, 0, 7), said("2a", Unlocked, 8, 9))},
		{"two writers at once", "no order", lines(
			locked("1a", Write, 1, 0, 1), said("1a", Unlocked, 10, 11),
			locked("2a", Write, 2, 2, 3), said("2a", Unlocked, 4, 5))},
		{"two writers at once of one process", "no order", lines(
			locked("1a", Write, 1, 0, 1), said("1a", Unlocked, 10, 11),
			locked("1b", Write, 2, 2, 3), said("1b", Unlocked, 12, 13))},
		{"writers whose times may as well not overlap", "", lines(
			locked("1a", Write, 1, 0, 4), said("1a", Unlocked, 5, 9),
			locked("2a", Write, 2, 6, 7), said("2a", Unlocked, 8, 10))},
		{"readers beside each other", "", lines(
			locked("1a", Read, 3, 0, 1), said("1a", Unlocked, 9, 10),
			locked("1b", Read, 3, 2, 3), said("1b", Unlocked, 4, 5),
			locked("2a", Read, 2, 2, 3), said("2a", Unlocked, 11, 12))},
		{"a reader beside a writer", "no order", lines(
			locked("1a", Write, 1, 0, 1), said("1a", Unlocked, 10, 11),
			locked("2a", Read, 2, 2, 3), said("2a", Unlocked, 4, 5))},
		{"a writer beside a reader", "no order", lines(
			locked("1a", Read, 1, 0, 1), said("1a", Unlocked, 10, 11),
			locked("2a", Write, 2, 2, 3), said("2a", Unlocked, 12, 13))},
		{"a writer beside the second of two readers", "no order", lines(
			locked("1a", Read, 1, 0, 1), said("1a", Unlocked, 4, 5),
			locked("1b", Read, 1, 2, 3), said("1b", Unlocked, 20, 21),
			locked("2a", Write, 2, 6, 7), said("2a", Unlocked, 8, 9))},
		{"keys of their own", "", func() []Event {
			other := lines(locked("2a", Write, 1, 0, 1), said("2a", Unlocked, 10, 11))
			for i := range other {
				other[i].Key = "other"
			}
			return append(other, locked("1a", Write, 1, 0, 1), said("1a", Unlocked, 10, 11))
		}()},

		{"tokens of writes that grow", "", lines(
			locked("1a", Read, 4, 0, 1), said("1a", Unlocked, 2, 3),
			locked("2a", Write, 5, 4, 5), said("2a", Unlocked, 6, 7),
			locked("2b", Read, 5, 8, 9), said("2b", Unlocked, 10, 11),
			locked("1b", Write, 6, 12, 13), said("1b", Unlocked, 14, 15))},
		{"a write's token that does not grow", "no order", lines(
			locked("1a", Write, 5, 0, 1), said("1a", Unlocked, 2, 3),
			locked("2a", Write, 5, 4, 5), said("2a", Unlocked, 6, 7))},
		{"a write's token that falls", "no order", lines(
			locked("1a", Write, 5, 0, 1), said("1a", Unlocked, 2, 3),
			locked("2a", Write, 4, 4, 5), said("2a", Unlocked, 6, 7))},
		{"a write with the token of a read before it", "no order", lines(
			locked("1a", Read, 5, 0, 1), said("1a", Unlocked, 2, 3),
			locked("2a", Write, 5, 4, 5), said("2a", Unlocked, 6, 7))},
		{"a read with a lower token than the write before it", "no order", lines(
			locked("1a", Write, 5, 0, 1), said("1a", Unlocked, 2, 3),
			locked("2a", Read, 4, 4, 5), said("2a", Unlocked, 6, 7))},
		{"reads whose tokens fall, with no write between them", "", lines(
			locked("1a", Read, 5, 0, 1), said("1a", Unlocked, 2, 3),
			locked("2a", Read, 4, 4, 5), said("2a", Unlocked, 6, 7))},
		{"no token", "no token", lines(
			locked("1a", Write, 0, 0, 1), said("1a", Unlocked, 2, 3))},

		{"re-entry", "", lines(
			locked("1a", Write, 1, 0, 1), again("1b", "1a", Write, 1, 2, 3), again("1c", "1a", Read, 1, 4, 5),
			said("1a", Unlocked, 6, 7), said("1b", Unlocked, 8, 9),
			locked("2a", Read, 2, 8, 10), // the last write hold's end was a downgrade
			said("1c", Unlocked, 11, 12), said("2a", Unlocked, 13, 14))},
		{"a reader beside the second write hold of an owner", "no order", lines(
			locked("1a", Write, 1, 0, 1), again("1b", "1a", Write, 1, 2, 3),
			said("1a", Unlocked, 4, 5), locked("2a", Read, 2, 6, 7),
			said("1b", Unlocked, 8, 9), said("2a", Unlocked, 10, 11))},
		{"an upgrade", "no order", lines(
			locked("1a", Read, 1, 0, 1), again("1b", "1a", Write, 1, 2, 3),
			said("1b", Unlocked, 4, 5), said("1a", Unlocked, 6, 7))},
		{"an upgrade of what a write hold left", "no order", lines(
			locked("1a", Write, 1, 0, 1), again("1b", "1a", Read, 1, 2, 3), said("1a", Unlocked, 4, 5),
			again("1c", "1a", Write, 1, 6, 7), said("1c", Unlocked, 8, 9), said("1b", Unlocked, 10, 11))},
		{"re-entry that raises the token", "no order", lines(
			locked("1a", Write, 1, 0, 1), again("1b", "1a", Write, 2, 2, 3),
			said("1b", Unlocked, 4, 5), said("1a", Unlocked, 6, 7))},
		{"an owner that comes again later", "", lines(
			again("1a", "1o", Write, 1, 0, 1), said("1a", Unlocked, 2, 3),
			again("1b", "1o", Write, 2, 4, 5), said("1b", Unlocked, 6, 7))},

		{"a downgrade", "", lines(
			locked("1a", Write, 1, 0, 1), downgraded("1a", "1b", 1, 4, 5),
			locked("2a", Read, 2, 2, 6), said("2a", Unlocked, 9, 10), said("1b", Unlocked, 7, 8),
			locked("3a", Write, 3, 2, 11), said("3a", Unlocked, 12, 13))},
		{"a reader before the downgrade", "no order", lines(
			locked("1a", Write, 1, 0, 1), downgraded("1a", "1b", 1, 4, 5),
			locked("2a", Read, 2, 2, 3), said("2a", Unlocked, 9, 10), said("1b", Unlocked, 7, 8))},
		{"a gap in a downgrade", "no order", lines(
			locked("1a", Write, 1, 0, 1), downgraded("1a", "1b", 1, 4, 9),
			locked("2a", Write, 2, 2, 6), said("2a", Unlocked, 7, 8), said("1b", Unlocked, 10, 11))},
		{"a gap in a downgrade that gave another token", "has token 3", lines(
			locked("1a", Write, 1, 0, 1), downgraded("1a", "1b", 3, 4, 9),
			locked("2a", Write, 2, 2, 6), said("2a", Unlocked, 7, 8), said("1b", Unlocked, 10, 11))},
		{"a writer beside what a downgrade left", "no order", lines(
			locked("1a", Write, 1, 0, 1), downgraded("1a", "1b", 1, 4, 5),
			locked("2a", Write, 2, 2, 6), said("2a", Unlocked, 7, 8), said("1b", Unlocked, 10, 11))},
		{"a downgrade to read of a read", "no order", lines(
			locked("1a", Read, 1, 0, 1), downgraded("1a", "1b", 1, 4, 5), said("1b", Unlocked, 7, 8))},

		{"a killed holder, and the next one later", "", lines(
			locked("1a", Write, 1, 0, 1), said("1a", Alive, 5, 6), killed(1),
			locked("2a", Write, 2, 2, 110), said("2a", Unlocked, 111, 112))},
		{"a killed holder that was alive beside the next one", "no order", lines(
			locked("1a", Write, 1, 0, 1), said("1a", Alive, 5, 6), killed(1),
			locked("2a", Write, 2, 2, 4), said("2a", Unlocked, 111, 112))},
		{"a killed holder, and nobody after it", "", lines(
			locked("1a", Write, 1, 0, 1), said("1a", Alive, 5, 6), killed(1))},
		{"a killed reader, beside which a writer was already", "no order", lines(
			locked("1a", Read, 1, 0, 1), said("1a", Alive, 5, 6), killed(1),
			locked("2a", Write, 2, 2, 4), said("2a", Unlocked, 111, 112))},
		{"a hold that nobody ended", "never ended", lines(
			locked("1a", Write, 1, 0, 1), said("1a", Alive, 5, 6))},

		{"a lost hold, and the next one meanwhile", "", lines(
			locked("1a", Write, 1, 0, 1), said("1a", Alive, 5, 6), said("1a", Lost, 50, 51),
			locked("2a", Write, 2, 2, 20), said("2a", Unlocked, 25, 26))},
		{"a lost hold that was alive beside the next one", "no order", lines(
			locked("1a", Write, 1, 0, 1), said("1a", Alive, 21, 22), said("1a", Lost, 50, 51),
			locked("2a", Write, 2, 2, 20), said("2a", Unlocked, 25, 26))},
		{"a lost hold with re-entry, told in any order", "", lines(
			locked("1a", Write, 1, 0, 1), again("1b", "1a", Read, 1, 2, 3),
			said("1b", Lost, 50, 51), said("1a", Lost, 52, 53),
			locked("2a", Write, 2, 2, 20), said("2a", Unlocked, 25, 26))},
		{"a hold that came back", "was lost, and then", lines(
			locked("1a", Write, 1, 0, 1), said("1a", Lost, 5, 6), said("1a", Alive, 7, 8), said("1a", Lost, 9, 10))},
		{"a hold that was unlocked after it had been lost", "was lost, and then", lines(
			locked("1a", Write, 1, 0, 1), said("1a", Lost, 5, 6), said("1a", Unlocked, 7, 8))},
		{"a hold that was unlocked twice", "was unlocked, and then", lines(
			locked("1a", Write, 1, 0, 1), said("1a", Unlocked, 5, 6), said("1a", Unlocked, 7, 8))},

		{"cancelled waits", "", lines(
			locked("1a", Read, 1, 0, 1),
			Event{What: Refused, Key: "k", Process: 2, Mode: Write, Call: 2, Return: 8},
			locked("3a", Read, 2, 3, 4), said("3a", Unlocked, 5, 6), said("1a", Unlocked, 9, 10))},
		{"a cancelled wait that left a hold", "which nobody got", lines(
			Event{What: Refused, Key: "k", Process: 2, Mode: Write, Call: 2, Return: 8},
			said("2a", Unlocked, 9, 10))},
		{"an answer that is never right", "not held", lines(
			Event{What: Odd, Key: "k", Process: 2, Note: "Unlock: not held"})},

		{"a pause shorter than the lease", "", lines(
			locked("1a", Write, 1, 0, 1), paused(1, 10, 110), said("1a", Unlocked, 111, 112))},
		{"a pause longer than the lease", "", lines(
			locked("1a", Write, 1, 0, 1), paused(1, 10, 111), said("1a", Lost, 112, 113))},
		{"a hold that outlived a pause longer than the lease", "outlived a pause", lines(
			locked("1a", Write, 1, 0, 1), paused(1, 10, 111), said("1a", Alive, 111, 112), said("1a", Lost, 113, 114))},
		{"an Unlock that was content after a pause longer than the lease", "outlived a pause", lines(
			locked("1a", Read, 1, 0, 1), paused(1, 10, 111), said("1a", Unlocked, 112, 113))},
		{"a call that was on its way during a pause", "", lines(
			locked("1a", Write, 1, 0, 1), paused(1, 10, 111), said("1a", Unlocked, 9, 113))},
		{"a hold from after a pause", "", lines(
			paused(1, 10, 111), locked("1a", Write, 1, 112, 113), said("1a", Unlocked, 114, 115))},
		{"another process's pause", "", lines(
			locked("1a", Write, 1, 0, 1), paused(2, 10, 111), said("1a", Unlocked, 112, 113))},

		{"holders of a lease that was deleted, beside the next one", "", lines(
			locked("1a", Write, 1, 0, 1), said("1a", Alive, 20, 21), said("1a", Unlocked, 30, 31),
			deleted(4, 10, 12), locked("2a", Write, 5, 13, 14), said("2a", Unlocked, 40, 41),
			locked("1b", Write, 2, 31, 32), said("1b", Unlocked, 33, 34))},
		{"the next holder before the deletion", "no order", lines(
			locked("1a", Write, 1, 0, 1), said("1a", Alive, 20, 21), said("1a", Unlocked, 30, 31),
			deleted(4, 10, 12), locked("2a", Write, 5, 7, 8), said("2a", Unlocked, 40, 41))},
		{"two holders after the deletion", "no order", lines(
			locked("1a", Write, 1, 0, 1), said("1a", Lost, 30, 31), deleted(4, 10, 12),
			locked("2a", Write, 5, 13, 14), said("2a", Unlocked, 40, 41),
			locked("1b", Write, 6, 15, 16), said("1b", Unlocked, 42, 43))},
		{"a downgrade of a lease that was deleted", "", lines(
			locked("1a", Write, 1, 0, 1), deleted(4, 10, 12), locked("2a", Write, 5, 13, 14), said("2a", Unlocked, 40, 41),
			downgraded("1a", "1b", 1, 20, 21), said("1b", Unlocked, 50, 51))},
		{"a hold that is believed in a TTL after the deletion of its lease", "believed in", lines(
			locked("1a", Write, 1, 0, 1), deleted(4, 10, 12), said("1a", Unlocked, 113, 114))},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			err := Check(test.events, rules)
			if test.wrong == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.wrong)
		})
	}
}

func TestTokensInTheirOrder(t *testing.T) {
	t.Parallel()
	come := func(mode Mode, token uint64) input {
		return input{what: Locked, hold: "1b", owner: "1b", mode: mode, token: token}
	}
	l := &lock{locked: 2, newest: 5, write: 3} // a write, and a read after it
	for token := range uint64(8) {
		require.Equal(t, token > 5, l.step(come(Write, token)) != nil, "write %d", token)
		require.Equal(t, token >= 3, l.step(come(Read, token)) != nil, "read %d", token)
	}
	early := come(Write, 6)
	early.lower = 3
	require.Nil(t, l.step(early), "one of three that have lower tokens did not come yet")
	early = come(Read, 5)
	early.write = 4
	require.Nil(t, l.step(early), "the write before it did not come yet")
}

func TestViolationIsExplainedAndKept(t *testing.T) {
	t.Parallel()
	events := lines(
		locked("1a", Read, 1, 0, 1), said("1a", Unlocked, 10, 11),
		locked("2a", Write, 2, 2, 3), said("2a", Unlocked, 12, 13))
	err := Check(events, rules)
	require.ErrorContains(t, err, "no order explains its 4 operations\nafter 1 of them: inside: 1a (read, token 1)\n"+
		"still to come, from 2 to 3: 2a: write, token 2\n")
	paths, failed := Keep(t.TempDir(), events, err)
	require.NoError(t, failed)
	require.Len(t, paths, 2)
	page, failed := os.ReadFile(paths[1])
	require.NoError(t, failed)
	require.Contains(t, string(page), "2a: write, token 2")
	f, failed := os.Open(paths[0])
	require.NoError(t, failed)
	defer f.Close()
	loaded, failed := Load(f)
	require.NoError(t, failed)
	require.Equal(t, events, loaded)
}

// Any of the readers that wait for a writer could have come before it, but for their tokens.
func TestReadersThatWaitDoNotMakeTheSearchLong(t *testing.T) {
	t.Parallel()
	var events []Event
	for i := range 40 {
		hold := ID("1" + string(rune('A'+i)))
		events = append(events, locked(hold, Read, 9, 0, 1000), said(hold, Unlocked, 1001, 1002))
	}
	events = append(events, locked("2a", Write, 8, 1, 2), said("2a", Unlocked, 3, 4))
	require.NoError(t, Check(events, Rules{TTL: 100, Limit: 20 * time.Second}))
}

func TestSearchThatDoesNotEndIsAViolation(t *testing.T) {
	t.Parallel()
	// Readers that can come and go in any order, and a write that no order explains.
	var events []Event
	for i := range 24 {
		hold := ID("1" + string(rune('a'+i)))
		events = append(events, locked(hold, Read, 1, 0, 1000), said(hold, Unlocked, 0, 1000))
	}
	events = append(events, locked("2a", Write, 2, 0, 1), said("2a", Unlocked, 1001, 1002),
		locked("3a", Write, 3, 0, 1), said("3a", Unlocked, 1001, 1002))
	err := Check(events, Rules{TTL: 100, Limit: 10 * time.Millisecond})
	require.ErrorContains(t, err, "no order of its 52 operations was found within 10ms")
}

func TestNothingIsKeptOfAPictureWhereNoOrderIsToBlame(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	events := lines(locked("1a", Write, 0, 0, 1), said("1a", Unlocked, 2, 3))
	paths, err := Keep(dir, events, Check(events, rules))
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(dir, "history.jsonl")}, paths)
}
