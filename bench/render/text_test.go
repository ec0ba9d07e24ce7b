package render_test

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/go-leasehold/leasehold/bench/render"
	"github.com/go-leasehold/leasehold/bench/result"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares a text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	wanted, lines := strings.Split(string(want), "\n"), strings.Split(got, "\n")
	for i := range min(len(wanted), len(lines)) {
		require.Equal(t, wanted[i], lines[i], "line %d of %s; if this is as it should be: go test ./render -update", i+1, path)
	}
	require.Len(t, lines, len(wanted), "%s; if this is as it should be: go test ./render -update", path)
}

func TestTable(t *testing.T) {
	var text bytes.Buffer
	require.NoError(t, render.Table(&text, madeUp()))
	golden(t, "table.txt", text.String())
}

func TestMarkdown(t *testing.T) {
	r := madeUp()
	drawn, err := render.Plots(r)
	require.NoError(t, err)
	page := render.Markdown(r, drawn)
	// The claims are others' matter, and change without it.
	before, rest, ok := strings.Cut(page, "## What was promised\n")
	require.True(t, ok)
	claims, after, ok := strings.Cut(rest, "## Who took part\n")
	require.True(t, ok)
	golden(t, "report.md", before+"## Who took part\n"+after)
	require.Contains(t, claims, "| at least 0.9 | 9001, beside semaphore | yes |")
	require.Contains(t, claims, "| at most 0.75 | not measured |  |")
}

// No row of a table has another number of cells than its head.
func TestMarkdownTablesAreRectangles(t *testing.T) {
	columns := 0
	for _, line := range strings.Split(render.Markdown(madeUp(), nil), "\n") {
		if !strings.HasPrefix(line, "|") {
			columns = 0
			continue
		}
		n := strings.Count(line, "|") - strings.Count(line, `\|`)
		if columns == 0 {
			columns = n
		}
		require.Equal(t, columns, n, line)
	}
}

// Whoever let two in, or failed, is named, and only the first line of why.
func TestTroublesAreNamed(t *testing.T) {
	s := madeUp().Scenarios[0]
	s.Cells[0].Rounds[0][result.Errors] = 5
	require.Equal(t, "leasehold at 1 (loopback): 5 calls failed", render.Troubles(s)[0])
	s.Cells[0].Error = "no more room\nat somewhere.go:3"
	require.Equal(t, "leasehold at 1 (loopback): 5 calls failed, the first: no more room", render.Troubles(s)[0])
	troubles := render.Troubles(s)
	require.Len(t, troubles, 3)
	require.Contains(t, troubles[0], "leasehold at 1 (loopback): 5 calls failed")
	require.Contains(t, troubles[1], "redsync at 1 (loopback): 2 times two had the lock")
	require.Contains(t, troubles[2], "redsync at 64 (loopback): round 1: it did not come back")
	require.NotContains(t, troubles[2], "long story")

	var text bytes.Buffer
	require.NoError(t, render.Table(&text, madeUp()))
	for _, trouble := range troubles[1:] {
		require.Contains(t, text.String(), trouble)
		require.Contains(t, render.Markdown(madeUp(), nil), trouble)
	}
}

// A terminal of 120 columns is wide enough.
func TestTableFitsATerminal(t *testing.T) {
	var text bytes.Buffer
	require.NoError(t, render.Table(&text, madeUp()))
	for _, line := range strings.Split(text.String(), "\n") {
		require.LessOrEqual(t, utf8.RuneCountInString(line), 120, line)
	}
}

// failing is a terminal that is gone.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestTableTellsThatItCouldNotWrite(t *testing.T) {
	require.ErrorContains(t, render.Table(failing{}, madeUp()), "broken pipe")
}

func TestNothingMeasuredIsTold(t *testing.T) {
	var text bytes.Buffer
	require.NoError(t, render.Table(&text, result.Report{}))
	require.Contains(t, render.Markdown(result.Report{}, nil), "not measured")
	drawn, err := render.Plots(result.Report{})
	require.NoError(t, err)
	require.Empty(t, drawn)
}

// Any report can be told, whoever wrote it.
func TestAnyReportCanBeTold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := reports().Draw(t, "report")
		var text bytes.Buffer
		require.NoError(t, render.Table(&text, r))
		drawn, err := render.Plots(r)
		require.NoError(t, err)
		_ = render.Markdown(r, drawn)
	})
}

// The median of 0, 2, 0 is 0, and a lock that let two in once must not look as one that never did.
func TestViolationsAreNotHiddenByAMedian(t *testing.T) {
	r := madeUp()
	r.Scenarios = r.Scenarios[:1]
	for i := range r.Scenarios[0].Cells {
		r.Scenarios[0].Cells[i].Point, r.Scenarios[0].Cells[i].X = "64", 64
	}
	r.Scenarios[0].Cells = r.Scenarios[0].Cells[2:3]
	var text bytes.Buffer
	require.NoError(t, render.Table(&text, r))
	lines := strings.Split(text.String(), "\n")
	for i, line := range lines {
		if strings.Contains(line, "violations") {
			require.Contains(t, strings.Fields(lines[i+1]), "2")
		}
	}
}
