package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/go-leasehold/leasehold/bench/render"
)

// pages are those with numbers of the full report in them, from this directory.
var pages = []string{filepath.Join("..", "docs", "performance.md"), filepath.Join("..", "README.md")}

// fill makes the blocks of pages anew from a report that was written before.
func fill(report string, pages []string) error {
	file, err := os.Open(report)
	if err != nil {
		return fmt.Errorf("there is no full report yet; -full makes one: %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	r, err := render.ReadJSON(file)
	if err != nil {
		return fmt.Errorf("%s: %w", report, err)
	}
	filled := map[string]string{}
	for _, path := range pages {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if filled[path], err = render.Fill(string(text), r); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	for path, text := range filled { // all of them can be
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
