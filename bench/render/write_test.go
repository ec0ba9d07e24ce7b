package render_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/bench/render"
	"github.com/go-leasehold/leasehold/bench/result"
)

// files are the names of what is in a directory.
func files(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// put writes a file that is not of a report.
func put(t *testing.T, dir, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	return string(text)
}

func TestWriteMakesADirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "report", "quick")
	require.NoError(t, render.Write(dir, madeUp()))
	text := read(t, dir, render.MarkdownFile)
	links := regexp.MustCompile(`!\[[^]]*\]\(([^)]*)\)`).FindAllStringSubmatch(text, -1)
	require.Len(t, links, 3, "each plot is shown")
	for _, link := range links {
		require.FileExists(t, filepath.Join(dir, link[1]))
	}
	report, err := render.ReadJSON(bytes.NewBufferString(read(t, dir, render.JSONFile)))
	require.NoError(t, err)
	require.Equal(t, madeUp(), report)
}

// The same report, written again, changes no byte.
func TestWriteAgain(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	require.NoError(t, render.Write(first, madeUp()))
	require.NoError(t, render.Write(second, madeUp()))
	require.NoError(t, render.Write(second, madeUp()))
	require.Equal(t, files(t, first), files(t, second), "nothing else is left behind")
	for _, name := range files(t, first) {
		require.Equal(t, read(t, first, name), read(t, second, name), name)
	}
}

// The plots of an earlier report go, and whatever is somebody else's stays.
func TestWriteRemovesOnlyItsOwn(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, render.Write(dir, madeUp()))
	put(t, dir, "README.md", "mine")
	put(t, dir, "drawing.svg", "mine, too")

	r := madeUp()
	r.Scenarios = r.Scenarios[1:]
	require.NoError(t, render.Write(dir, r))
	require.NoFileExists(t, filepath.Join(dir, "hot.svg"))
	require.NoFileExists(t, filepath.Join(dir, "hot-rtt.svg"))
	require.FileExists(t, filepath.Join(dir, "uncontended.svg"))
	require.Equal(t, "mine", read(t, dir, "README.md"))
	require.Equal(t, "mine, too", read(t, dir, "drawing.svg"))
}

// A file of that name which is no report belongs to something else.
func TestWriteRefusesADirectoryOfSomethingElse(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, render.JSONFile, "coverage: 80 %")
	require.ErrorContains(t, render.Write(dir, madeUp()), "choose another directory")
	require.Equal(t, []string{render.JSONFile}, files(t, dir), "nothing was written")
	require.Equal(t, "coverage: 80 %", read(t, dir, render.JSONFile))
}

func TestWriteToWhatIsNoDirectory(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "file", "text")
	require.Error(t, render.Write(filepath.Join(dir, "file"), madeUp()))
	require.Equal(t, "text", read(t, dir, "file"))
}

// With -rtt 1 nothing is measured without a delay.
func TestWriteOfARunWithADelayOnly(t *testing.T) {
	r := madeUp()
	for i := range r.Scenarios {
		var cells []result.Cell
		for _, c := range r.Scenarios[i].Cells {
			if c.Delay == time.Millisecond {
				cells = append(cells, c)
			}
		}
		r.Scenarios[i].Cells = cells
	}
	r.Scenarios = r.Scenarios[:1]
	dir := t.TempDir()
	require.NoError(t, render.Write(dir, r))
	require.FileExists(t, filepath.Join(dir, render.MarkdownFile))
	require.FileExists(t, filepath.Join(dir, render.JSONFile))
}

// Where everybody failed, or nothing can be drawn, there is a report nevertheless: it took half an hour.
func TestWriteOfAScenarioInWhichEverybodyFailed(t *testing.T) {
	for name, spoil := range map[string]func(*result.Cell){
		"failed":  func(c *result.Cell) { c.Rounds, c.Failure = nil, "it did not start" },
		"nothing": func(c *result.Cell) { c.Rounds = []result.Round{{result.Throughput: 0, result.WaitP50: -3}} },
	} {
		t.Run(name, func(t *testing.T) {
			r := madeUp()
			for i := range r.Scenarios {
				for j := range r.Scenarios[i].Cells {
					spoil(&r.Scenarios[i].Cells[j])
				}
			}
			dir := t.TempDir()
			require.NoError(t, render.Write(dir, r))
			require.FileExists(t, filepath.Join(dir, render.MarkdownFile))
			require.FileExists(t, filepath.Join(dir, render.JSONFile))
		})
	}
}

// What is JSON, but of something else, is somebody else's.
func TestWriteRefusesADirectoryWithOtherJSON(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, render.JSONFile, `{"coverage": 80}`)
	require.Error(t, render.Write(dir, madeUp()))
	require.Equal(t, `{"coverage": 80}`, read(t, dir, render.JSONFile))
}

// An earlier report can't have files removed that are elsewhere.
func TestWriteStaysInItsDirectory(t *testing.T) {
	parent := t.TempDir()
	put(t, parent, "mine.svg", "mine")
	dir := filepath.Join(parent, "report")
	require.NoError(t, os.Mkdir(dir, 0o755))
	r := madeUp()
	r.Scenarios[0].Name = "../mine"
	var text bytes.Buffer
	require.NoError(t, render.JSON(&text, r))
	put(t, dir, render.JSONFile, text.String())
	_ = render.Write(dir, madeUp())
	require.Equal(t, "mine", read(t, parent, "mine.svg"))

	require.Error(t, render.Write(filepath.Join(parent, "another"), r), "a plot outside of the directory")
	require.Equal(t, "mine", read(t, parent, "mine.svg"))
}

// In a file, as in CI, nobody wants to read how far a run was.
func TestProgressIsQuietWhereThereIsNoTerminal(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	p := render.NewProgress(file, 2)
	for round := range 100 {
		p.Step("hot", "64", 0, "leasehold", round+1, 100)
	}
	p.Step("keys", "100", 0, "leasehold", 1, 1)
	p.Done()
	info, err := file.Stat()
	require.NoError(t, err)
	require.Less(t, info.Size(), int64(200), "a line for each scenario, at most")
}

func ExampleOf() {
	cell := result.Cell{Rounds: []result.Round{{result.Throughput: 1.2e6}, {result.Throughput: 1.39e6}, {result.Throughput: 1.5e6}}}
	fmt.Println(render.Of(cell, result.Throughput))
	// Output: 1.39 M/s (1.2 M/s to 1.5 M/s)
}
