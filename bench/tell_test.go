package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/bench/claim"
	"github.com/go-leasehold/leasehold/bench/harness"
	"github.com/go-leasehold/leasehold/bench/render"
	"github.com/go-leasehold/leasehold/bench/result"
)

// A claim looks for cells by the names of scenarios, points and contenders: a full run has to have them all.
func TestAFullRunMeasuresEachClaim(t *testing.T) {
	for _, v := range claim.Judge(supposed(asked(t, "-full"))) {
		require.True(t, v.Known, "%s: %s", v.Name, v.Text)
	}
}

// What a quick run does not measure are only those with a network delay.
func TestAQuickRunMeasuresEachClaimOfTheLoopback(t *testing.T) {
	for _, v := range claim.Judge(supposed(asked(t))) {
		require.Equal(t, !strings.HasSuffix(v.Name, "-1ms"), v.Known, "%s: %s", v.Name, v.Text)
	}
}

func TestACheckMeasuresWhatHasAFloor(t *testing.T) {
	report := supposed(asked(t, "-check"))
	for _, v := range claim.Judge(report) {
		require.True(t, v.Known || v.Floor == 0, "%s: %s", v.Name, v.Text)
	}
}

// told is what a run says at its end.
func told(t *testing.T, o options, report result.Report) (string, error) {
	t.Helper()
	var output bytes.Buffer
	err := tell(o, report, &output)
	return output.String(), err
}

// entries are the names in a directory.
func entries(t *testing.T, dir string) []string {
	t.Helper()
	found, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range found {
		names = append(names, e.Name())
	}
	return names
}

func TestTellWritesTheReportAndSaysWhere(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "report")
	o := asked(t, "-scenario", "hot,handoff", "-out", dir)
	report := supposed(o)
	text, err := told(t, o, report)
	require.NoError(t, err)
	require.Contains(t, text, "One hot key in one process")
	require.Contains(t, text, "64 goroutines of a process on one key")
	require.Contains(t, text, filepath.Join(dir, render.MarkdownFile))
	require.NotContains(t, text, "floor", "that is for -check")
	require.Subset(t, entries(t, dir), []string{render.MarkdownFile, render.JSONFile, "hot.svg", "handoff.svg"})

	file, err := os.Open(filepath.Join(dir, render.JSONFile))
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	read, err := render.ReadJSON(file)
	require.NoError(t, err)
	require.Equal(t, report, read)
}

func TestTellWritesNothingWhereNothingIsWanted(t *testing.T) {
	t.Chdir(t.TempDir())
	o := asked(t, "-scenario", "hot", "-out", "-")
	text, err := told(t, o, supposed(o))
	require.NoError(t, err)
	require.NotContains(t, text, render.MarkdownFile)
	require.Empty(t, entries(t, "."))
}

// A claim that was not measured is left out.
func TestTellTellsOnlyClaimsThatWereMeasured(t *testing.T) {
	o := asked(t, "-scenario", "hot", "-contender", "leasehold,semaphore", "-out", "-")
	text, err := told(t, o, supposed(o))
	require.NoError(t, err)
	require.Regexp(t, `(?m)^(not met|met) +64 goroutines of a process on one key.*:\n.*; asked: at least 0\.9$`, text)
	require.NotContains(t, text, "PING", "nobody measured one")
}

func TestTellOfACheckFailsBelowAFloor(t *testing.T) {
	o := asked(t, "-check")
	report := supposed(o)
	text, err := told(t, o, report)
	require.Contains(t, text, "floor: ")
	require.NotContains(t, text, "wait p99", "tables are not for a check")
	require.Error(t, err, "the numbers are made up, so that each contender is slower than the one before it")
	require.ErrorContains(t, err, "floor")

	faster(report, "leasehold", 1000)
	_, err = told(t, o, report)
	require.NoError(t, err)
}

// faster makes all numbers of a contender better.
func faster(r result.Report, contender string, factor float64) {
	for _, s := range r.Scenarios {
		for _, c := range s.Cells {
			if c.Contender != contender {
				continue
			}
			for _, round := range c.Rounds {
				for name, value := range round {
					m, _ := result.MetricOf(name)
					if m.Higher {
						round[name] = value * factor
					} else {
						round[name] = value / factor
					}
				}
			}
		}
	}
}

// Where a report can't be written the run still has told its tables, and it says so.
func TestTellSaysThatAReportCouldNotBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	o := asked(t, "-scenario", "hot", "-out", filepath.Join(file, "report"))
	text, err := told(t, o, supposed(o))
	require.ErrorContains(t, err, "report")
	require.Contains(t, text, "One hot key in one process")
}

// In a log of a CI machine nothing is told.
func TestProgressIsQuietInALog(t *testing.T) {
	read, write, err := os.Pipe()
	require.NoError(t, err)
	p := progress{render.NewProgress(write, 1)}
	p.Step("hot", harness.Point{Label: "64"}, time.Millisecond, "leasehold", 1, 3)
	p.Done()
	require.NoError(t, write.Close())
	text, err := io.ReadAll(read)
	require.NoError(t, err)
	require.LessOrEqual(t, strings.Count(string(text), "\n"), 1, "at most a line for each scenario")
	require.NotContains(t, string(text), "\x1b")
}
