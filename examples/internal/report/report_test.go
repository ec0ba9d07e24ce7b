package report

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestQuantileWeighsSamples(t *testing.T) {
	t.Parallel()
	var all Samples
	require.Zero(t, all.Quantile(0.5))
	var few, many Samples
	for range 10 {
		few.Add(time.Second)
	}
	for range 100 * keep {
		many.Add(time.Millisecond)
	}
	require.Len(t, many.drawn, keep)
	all.Merge(few)
	all.Merge(many)
	require.Equal(t, time.Millisecond, all.Quantile(0.5))
	require.Equal(t, time.Millisecond, all.Quantile(0.99))
	require.Equal(t, time.Second, all.Quantile(1))
}

// What one process has merged is what another one gets to merge.
func TestSamplesTravelAsJSON(t *testing.T) {
	t.Parallel()
	var one, sent, got, all Samples
	for range 3 * keep {
		one.Add(time.Second)
	}
	sent.Merge(one)
	text, err := json.Marshal(sent)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &got))
	require.Equal(t, sent, got)
	all.Merge(got)
	require.Equal(t, sent.Kept, all.Kept)
}

func TestRowsPutRoundsBesideEachOther(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	row := Rows(&out, []int64{1234, 5})
	row("locks done", Thousands)
	row("", func(int64) string { return "x" })
	require.Equal(t, ""+
		"locks done                           1,234                 5\n"+
		"                                         x                 x\n", out.String())
}

func TestNumbersAreShort(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0s", 250: "250ns", 1500: "1.50 µs", 25 * time.Millisecond: "25.0 ms", 250 * time.Millisecond: "250 ms",
		2 * time.Second: "2.00 s",
	} {
		require.Equal(t, want, Duration(d))
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1234: "-1,234"} {
		require.Equal(t, want, Thousands(n))
	}
	for x, want := range map[float64]string{0: "0.00", 0.125: "0.12", 12.5: "12.50", -1: "not known"} {
		require.Equal(t, want, Rate(x))
	}
	require.Equal(t, "98.7 %", Percent(0.987))
}

func TestProgressIsShownUntilTheRoundIsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		p := Progress{Out: &out, Round: "one key", Length: 5 * showEvery / 2, Unit: "locks"}
		notes := []string{"to 0", ""}
		p.Note = func() string { note := notes[0]; notes = notes[1:]; return note }
		start := time.Now()
		count := int64(0)
		p.watch(t.Context(), nil, func() int64 { count += 1000; return count }, true)
		require.Equal(t, p.Length, time.Since(start))
		require.Equal(t, ""+
			"\rone key      [#########...............] 1,000 locks, to 0"+strings.Repeat(" ", 22)+
			"\rone key      [###################.....] 2,000 locks"+strings.Repeat(" ", 28)+
			"\r"+strings.Repeat(" ", 79)+"\r", out.String())
	})
}

func TestProgressEndsWithItsContextAndWithTheRound(t *testing.T) {
	t.Parallel()
	p := Progress{Out: &strings.Builder{}, Length: time.Hour}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	p.Watch(canceled, nil, nil)
	over := make(chan struct{})
	close(over)
	p.Watch(t.Context(), over, nil)
}

func TestProgressIsForTerminalsOnly(t *testing.T) {
	t.Parallel()
	require.False(t, isTerminal(&strings.Builder{}))
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	defer file.Close()
	require.False(t, isTerminal(file))
	device, err := os.Open(os.DevNull) // a device, as a terminal is
	require.NoError(t, err)
	defer device.Close()
	require.True(t, isTerminal(device))
}
