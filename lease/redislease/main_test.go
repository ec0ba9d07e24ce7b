package redislease_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/go-leasehold/leasehold/internal/redistest"
)

func TestMain(m *testing.M) {
	redistest.Main(m,
		// A client whose first connection fails leaves a goroutine that sleeps for
		// up to a second and then finds the client closed. Nothing can wake it.
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
}
