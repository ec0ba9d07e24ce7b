package render

import (
	"encoding/json"
	"errors"
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

// ReadJSON reads what JSON wrote. What has other fields, or no time, is something else.
func ReadJSON(r io.Reader) (report result.Report, err error) {
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	if err := d.Decode(&report); err != nil {
		return report, fmt.Errorf("no report: %w", err)
	}
	if report.Started.IsZero() {
		return report, errors.New("no report: it does not say when it was measured")
	}
	return report, nil
}
