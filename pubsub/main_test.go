package pubsub_test

import (
	"testing"

	"github.com/go-leasehold/leasehold/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }
