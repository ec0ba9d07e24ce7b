package render

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// narrow is a run of four scenarios on a terminal that is narrow, and what was written to it.
func narrow(columns int) (*Progress, *bytes.Buffer) {
	var screen bytes.Buffer
	return &Progress{to: &screen, columns: func() int { return columns }, total: 4, began: time.Now()}, &screen
}

// A line that is longer than the terminal breaks, and could not be written over.
func TestProgressFitsTheTerminal(t *testing.T) {
	for _, columns := range []int{1, 2, 20, 40} {
		p, screen := narrow(columns)
		p.Step("uncontended", "retained", time.Millisecond, "leasehold/no-retention", 1, 3)
		line := strings.TrimPrefix(screen.String(), clearLine)
		require.Len(t, []rune(line), columns-1)
		p.Done()
		require.True(t, strings.HasSuffix(screen.String(), clearLine), "nothing is left of it")
	}
}

func TestProgressTellsWhere(t *testing.T) {
	p, screen := narrow(200)
	p.Step("hot", "64", 0, "leasehold", 2, 3)
	require.Contains(t, screen.String(), "1/4 hot at 64, loopback, round 2 of 3: leasehold")
	require.NotContains(t, screen.String(), "to go", "nobody knows yet")
	p.Step("hot", "64", 0, "redsync", 2, 3)
	require.NotContains(t, screen.String(), "redsync", "nobody reads that fast")
}

// The scenarios that are still to come take as long as those before, as far as anybody knows.
func TestProgressTellsTheTimeLeft(t *testing.T) {
	p, _ := narrow(200)
	p.began = p.began.Add(-30 * time.Second)
	p.entered, p.number = p.began.Add(20*time.Second), 3
	for second, want := range map[int]string{20: ", about 20s to go", 25: ", about 15s to go", 39: ", about 1s to go", 500: ", about 0s to go"} {
		require.Equal(t, want, p.left(p.began.Add(time.Duration(second)*time.Second)))
	}
}
