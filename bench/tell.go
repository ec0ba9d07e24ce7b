package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/go-leasehold/leasehold/bench/claim"
	"github.com/go-leasehold/leasehold/bench/harness"
	"github.com/go-leasehold/leasehold/bench/render"
	"github.com/go-leasehold/leasehold/bench/result"
)

// tell tells what was measured: a table and a report, or, of a check, its four ratios.
func tell(o options, report result.Report, output io.Writer) error {
	if !o.check {
		if err := render.Table(output, report); err != nil {
			return err
		}
	}
	fmt.Fprintln(output)
	promises(o, report, output)
	if o.out != "" {
		if err := render.Write(o.out, report); err != nil {
			return fmt.Errorf("report: %w", err)
		}
		fmt.Fprintf(output, "\nreport: %s\n", filepath.Join(o.out, render.MarkdownFile))
	}
	if o.check {
		return claim.Check(report)
	}
	return nil
}

// promises tells what was promised and what was measured of it; of a check, that which has a floor.
func promises(o options, report result.Report, output io.Writer) {
	for _, v := range claim.Judge(report) {
		if !v.Known || o.check && v.Floor == 0 {
			continue
		}
		met := "not met"
		if v.Met {
			met = "met"
		}
		fmt.Fprintf(output, "%-8s%s:\n%8s%s; asked: %s %s", met, v.Text, "", render.Verdict(v), v.Bound(), render.Number(v.Unit, v.Asked))
		if o.check {
			fmt.Fprintf(output, "; floor: %s", render.Number(v.Unit, v.Floor))
		}
		fmt.Fprintln(output)
	}
}

// progress tells how far a run is.
type progress struct{ *render.Progress }

func newProgress(o options) progress {
	return progress{render.NewProgress(os.Stderr, len(o.scenarios))}
}

// Step is what a stage tells.
func (p progress) Step(scenario string, point harness.Point, delay time.Duration, contender string, round, rounds int) {
	p.Progress.Step(scenario, point.Label, delay, contender, round, rounds)
}
