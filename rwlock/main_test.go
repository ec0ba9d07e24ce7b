package rwlock_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/go-leasehold/leasehold/internal/redistest"
)

func TestMain(m *testing.M) {
	// The client asks a server once whether it is a cluster, and leaves a goroutine asleep for a moment.
	redistest.Main(m, goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
}
