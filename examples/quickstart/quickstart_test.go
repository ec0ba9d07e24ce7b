package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParseRefusesWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	s, err := parse(nil, io.Discard)
	require.NoError(t, err)
	require.Equal(t, settings{processes: 4, goroutines: 100, duration: 3 * time.Second, keys: 100}, s)
	for _, args := range []string{
		"-processes 0", "-processes 65", "-goroutines 0", "-duration 1ms", "-keys 0", "-keys 1000001", "-duration x", "surplus",
	} {
		var said strings.Builder
		_, err := parse(strings.Fields(args), &said)
		require.Error(t, err, args)
		require.NotEmpty(t, said.String(), args)
	}
	_, err = parse([]string{"-h"}, io.Discard)
	require.ErrorIs(t, err, flag.ErrHelp)
}

func TestVerdictWantsExactCounters(t *testing.T) {
	t.Parallel()
	require.NoError(t, verdict([]result{{locks: 3, counted: 3}, {locks: 0, counted: 0}}))
	require.ErrorContains(t, verdict([]result{{locks: 3, counted: 3}, {name: "9 keys", locks: 3, counted: 2}}), "9 keys: the counter says 2")
}

func TestTableSaysWhatIsWrongAndWhatIsNotKnown(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	printTable(&out, []result{
		{name: "one key", duration: time.Second, locks: 1234, counted: 1234, commands: 0.5, scripts: 0.1, shares: []float64{1}},
		{name: "2 keys", duration: time.Second, locks: 5, counted: 4, commands: -1, scripts: -1, shares: []float64{1}},
	})
	require.Contains(t, out.String(), "1,234 exact           4 WRONG")
	require.Contains(t, out.String(), "0.50         not known")
	out.Reset()
	printTable(&out, nil)
	require.Empty(t, out.String())
}

func TestQuantileWeighsSamples(t *testing.T) {
	t.Parallel()
	var all samples
	require.Zero(t, all.quantile(0.5))
	var few, many samples
	for range 10 {
		few.add(time.Second)
	}
	for range 100 * keep {
		many.add(time.Millisecond)
	}
	require.Len(t, many.drawn, keep)
	all.merge(few)
	all.merge(many)
	require.Equal(t, time.Millisecond, all.quantile(0.5))
	require.Equal(t, time.Millisecond, all.quantile(0.99))
	require.Equal(t, time.Second, all.quantile(1))
}

func TestNumbersAreShort(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0s", 250: "250ns", 1500: "1.50 µs", 25 * time.Millisecond: "25.0 ms", 250 * time.Millisecond: "250 ms",
		2 * time.Second: "2.00 s",
	} {
		require.Equal(t, want, short(d))
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1234: "-1,234"} {
		require.Equal(t, want, thousands(n))
	}
}

func TestTotalAddsUpWhatInfoTells(t *testing.T) {
	t.Parallel()
	require.EqualValues(t, 12, total("# Stats\r\ntotal_commands_processed:12\r\n", commandsField))
	require.EqualValues(t, 5, total("cmdstat_eval:calls=2,usec=9\r\ncmdstat_evalsha:calls=3,usec=1\r\ncmdstat_get:calls=7\r\n", scriptsField))
	require.EqualValues(t, -1, total("", scriptsField))
}

func TestBatchesNameEveryCounterOnce(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	require.NoError(t, inBatches(series{"p:", 2*batch + 1}, func(_ context.Context, names []string) error {
		require.LessOrEqual(t, len(names), batch)
		for _, n := range names {
			require.False(t, seen[n])
			seen[n] = true
		}
		return nil
	}))
	require.Len(t, seen, 2*batch+1)
	broken := errors.New("broken")
	require.ErrorIs(t, inBatches(series{"p:", 2}, func(context.Context, []string) error { return broken }), broken)
}
