package render

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/go-leasehold/leasehold/bench/result"
)

// JSON writes a report that [ReadJSON] reads again.
func JSON(w io.Writer, r result.Report) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(r)
}

// ReadJSON reads what JSON wrote.
func ReadJSON(r io.Reader) (report result.Report, err error) {
	if err := json.NewDecoder(r).Decode(&report); err != nil {
		return report, fmt.Errorf("no report: %w", err)
	}
	return report, nil
}
