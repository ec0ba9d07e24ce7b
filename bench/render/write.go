package render

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/go-leasehold/leasehold/bench/result"
)

// The files of a report, beside its plots.
const (
	MarkdownFile = "report.md"
	JSONFile     = "report.json"
)

// Write writes a report into a directory: Markdown, JSON, and plots. Plots of an earlier one go; whatever else is there
// stays, and what would be written over it is refused. A report whose plots can't be drawn is written without them, and the
// error says so.
func Write(dir string, r result.Report) error {
	if err := valid(r); err != nil {
		return err
	}
	drawn, undrawn := Plots(r)
	var data bytes.Buffer
	if err := JSON(&data, r); err != nil {
		return err
	}
	files := map[string][]byte{MarkdownFile: []byte(Markdown(r, drawn))}
	for _, p := range drawn {
		files[p.Name+".svg"] = p.SVG
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	old, err := earlier(dir, files)
	if err != nil {
		return err
	}
	for _, name := range old {
		if _, ok := files[name]; ok {
			continue
		}
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	// The first, for it tells the next run which files are of a report.
	if err := replace(filepath.Join(dir, JSONFile), data.Bytes()); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := replace(filepath.Join(dir, name), files[name]); err != nil {
			return err
		}
	}
	return undrawn
}

// replace writes a file that is either as before or as it should be, and never a half of it.
func replace(path string, content []byte) error {
	part, err := os.CreateTemp(filepath.Dir(path), ".part-*")
	if err != nil {
		return err
	}
	_, err = part.Write(content)
	err = errors.Join(err, part.Chmod(0o644), part.Close())
	if err == nil {
		err = os.Rename(part.Name(), path)
	}
	if err != nil {
		_ = os.Remove(part.Name()) // the first error tells more
	}
	return err
}

// named is what a scenario may be called: its plots are files of that name.
var named = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// valid tells whether the scenarios of a report can be files of its own.
func valid(r result.Report) error {
	seen := map[string]bool{HeroPlot: true}
	for _, s := range r.Scenarios {
		if !named.MatchString(s.Name) {
			return fmt.Errorf("%q is no name of a scenario: it has small letters, digits and dashes", s.Name)
		}
		for _, plot := range []string{s.Name, s.Name + overDelay} {
			if seen[plot] {
				return fmt.Errorf("%q is no name of a scenario: there is another plot called so", s.Name)
			}
			seen[plot] = true
		}
	}
	return nil
}

// Ready returns the error that [Write] would return because of what is in a directory, for those who would rather know
// before they measure the scenarios.
func Ready(dir string, scenarios ...string) error {
	var r result.Report
	for _, name := range scenarios {
		r.Scenarios = append(r.Scenarios, result.Scenario{Name: name})
	}
	files := map[string][]byte{MarkdownFile: nil}
	for _, name := range plotFiles(r) {
		files[name] = nil
	}
	_, err := earlier(dir, files)
	return err
}

// earlier returns the plots that an earlier report may have, if there is one. In another directory nothing is of ours, and
// what would be written over is an error.
func earlier(dir string, files map[string][]byte) ([]string, error) {
	path := filepath.Join(dir, JSONFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, vacant(dir, files)
	}
	if err != nil {
		return nil, err
	}
	before, err := ReadJSON(bytes.NewReader(text))
	if err == nil {
		err = valid(before)
	}
	if err != nil {
		return nil, fmt.Errorf("%s is not of a report as they are now; choose another directory: %w", path, err)
	}
	return plotFiles(before), nil
}

// vacant tells whether files can be written where no report is.
func vacant(dir string, files map[string][]byte) error {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		switch _, err := os.Lstat(filepath.Join(dir, name)); {
		case err == nil:
			return fmt.Errorf("%s is there, and no %s that it belongs to; choose another directory", filepath.Join(dir, name), JSONFile)
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	return nil
}

// plotFiles are all files that the plots of a report may have.
func plotFiles(r result.Report) []string {
	all := []string{HeroPlot + ".svg"}
	for _, s := range r.Scenarios {
		all = append(all, s.Name+".svg", s.Name+overDelay+".svg")
	}
	return all
}

// names are the plots of a scenario.
func names(drawn []Plot, scenario string) []Plot {
	return slices.DeleteFunc(slices.Clone(drawn), func(p Plot) bool {
		return p.Name != scenario && strings.TrimSuffix(p.Name, overDelay) != scenario
	})
}
