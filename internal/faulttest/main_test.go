package faulttest

import (
	"os"
	"testing"
	"time"

	"github.com/go-leasehold/leasehold/internal/faults"
)

// roles are what this test binary can be as a child. Each file adds its own in an init.
var roles = faults.Roles{}

func TestMain(m *testing.M) { faults.Main(m, roles) }

// torture asks for full rounds; without it each test takes a few seconds at most.
var torture = os.Getenv("LEASEHOLD_TORTURE") == "1"

// rounds is how often a scenario runs.
func rounds(normal, full int) int {
	if torture {
		return full
	}
	return normal
}

// lasting is how long a scenario runs.
func lasting(normal, full time.Duration) time.Duration {
	if torture {
		return full
	}
	return normal
}
