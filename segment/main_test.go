package segment_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/go-leasehold/leasehold/internal/faults"
)

// roles are what this test binary can be as a child. Each file adds its own in an init.
var roles = faults.Roles{}

func TestMain(m *testing.M) {
	// The client asks a server once whether it is a cluster, and leaves a goroutine asleep for a moment.
	faults.Main(m, roles, goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
}
