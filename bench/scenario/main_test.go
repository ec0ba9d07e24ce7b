package scenario_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/go-leasehold/leasehold/bench/harness"
	"github.com/go-leasehold/leasehold/bench/scenario"
)

// Children are this binary, started again.
func TestMain(m *testing.M) {
	if harness.IsChild() {
		if err := harness.Child(scenario.Services()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}
