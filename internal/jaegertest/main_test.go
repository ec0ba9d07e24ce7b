package jaegertest

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/go-leasehold/leasehold/internal/faults"
)

// roles are what this test binary can be as a child.
var roles = faults.Roles{}

func TestMain(m *testing.M) {
	faults.Main(m, roles, goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
}
