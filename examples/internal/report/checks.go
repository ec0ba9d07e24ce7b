package report

import (
	"errors"
	"fmt"
	"io"
)

// Check is one thing that a program promises and has looked at itself.
type Check struct {
	Name string
	Fact string // what was found
	Err  error  // it is not so
}

// Checks are a program's proof of what it promises.
type Checks []Check

// Verdict is an error where something is not as it has to be.
func (c Checks) Verdict() error {
	var errs []error
	for _, one := range c {
		if one.Err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", one.Name, one.Err))
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("THE PROOF FAILED:\n%w", errors.Join(errs...))
	}
	return nil
}

// Print prints the proof.
func (c Checks) Print(out io.Writer) {
	fmt.Fprintln(out, "\nthe proof")
	for _, one := range c {
		mark := "ok"
		if one.Err != nil {
			mark = "FAILED: " + one.Err.Error()
		}
		fmt.Fprintf(out, "%-46s %-36s %s\n", one.Name, one.Fact, mark)
	}
}
