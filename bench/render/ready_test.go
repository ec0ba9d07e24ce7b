package render_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/bench/render"
)

// What Write refuses because of a directory is known before anything was measured, and nothing is made or removed for it.
func TestReadyTellsWhatWriteWouldRefuse(t *testing.T) {
	for name, test := range map[string]struct{ file, text, refused string }{
		"nothing there":            {"", "", ""},
		"others beside it":         {"README.md", "mine", ""},
		"another page":             {render.MarkdownFile, "mine", "report.md is there"},
		"another plot":             {"hot.svg", "mine", "hot.svg is there"},
		"another plot over delays": {"hot-rtt.svg", "mine", "hot-rtt.svg is there"},
		"no report":                {render.JSONFile, "{}", "choose another directory"},
		"nothing at all":           {render.JSONFile, "null", "choose another directory"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if test.file != "" {
				put(t, dir, test.file, test.text)
			}
			before := files(t, dir)
			ready := render.Ready(dir, "hot", "uncontended")
			require.Equal(t, before, files(t, dir))
			if test.refused == "" {
				require.NoError(t, ready)
				require.NoError(t, render.Write(dir, madeUp()))
				return
			}
			require.ErrorContains(t, ready, test.refused)
			require.ErrorContains(t, render.Write(dir, madeUp()), test.refused)
			require.Equal(t, test.text, read(t, dir, test.file))
		})
	}
}

func TestReadyWhereThereIsNothingYet(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "report", "full")
	require.NoError(t, render.Ready(dir, "hot"))
	require.NoDirExists(t, dir)
	require.NoError(t, render.Write(dir, madeUp()))
	require.NoError(t, render.Ready(dir, "hot"), "its own report is written over")
}
