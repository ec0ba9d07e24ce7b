package render

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-leasehold/leasehold/bench/result"
)

// The files of a report, beside its plots.
const (
	MarkdownFile = "report.md"
	JSONFile     = "report.json"
)

// Write writes a report into a directory: Markdown, JSON, and plots. Plots of an earlier one go; whatever else is there stays.
func Write(dir string, r result.Report) error {
	drawn, err := Plots(r)
	if err != nil {
		return err
	}
	var data bytes.Buffer
	if err := JSON(&data, r); err != nil {
		return err
	}
	files := map[string][]byte{MarkdownFile: []byte(Markdown(r, drawn)), JSONFile: data.Bytes()}
	for _, p := range drawn {
		files[p.Name+".svg"] = p.SVG
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := clear(dir, files); err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// clear removes the plots of an earlier report, if there is one: in another directory there is nothing of ours.
func clear(dir string, keep map[string][]byte) error {
	text, err := os.ReadFile(filepath.Join(dir, JSONFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	before, err := ReadJSON(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("%s is not of a report; choose another directory: %w", filepath.Join(dir, JSONFile), err)
	}
	drawn, err := Plots(before)
	if err != nil {
		return nil // its plots can't be named
	}
	for _, p := range drawn {
		if _, ok := keep[p.Name+".svg"]; ok {
			continue
		}
		if err := os.Remove(filepath.Join(dir, p.Name+".svg")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// names are the plots of a scenario.
func names(drawn []Plot, scenario string) []Plot {
	return slices.DeleteFunc(slices.Clone(drawn), func(p Plot) bool {
		return p.Name != scenario && strings.TrimSuffix(p.Name, "-rtt") != scenario
	})
}
