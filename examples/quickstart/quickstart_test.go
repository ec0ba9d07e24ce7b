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
