package contender_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/go-leasehold/leasehold/internal/redistest"
)

func TestMain(m *testing.M) {
	redistest.Main(m,
		// The client first tries whether the server is a cluster, and what looks
		// after the cluster's layout then sleeps for up to a second.
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
}
