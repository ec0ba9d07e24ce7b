package memlease_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/lease/leasetest"
	"github.com/go-leasehold/leasehold/lease/memlease"
)

func newEnv(opts ...memlease.Option) func(t testing.TB) leasetest.Env {
	return func(t testing.TB) leasetest.Env {
		server := memlease.NewServer(opts...)
		t.Cleanup(server.Close)
		return leasetest.Env{
			NewStore: func(testing.TB) lease.Store { return server.Store() },
			Delete:   server.Delete,
			Put:      server.Put,
			Intact:   server.Foreign,
			Flush:    server.Flush,
		}
	}
}

func TestConformance(t *testing.T) { leasetest.Run(t, newEnv()) }

func TestConformanceInVirtualTime(t *testing.T) { leasetest.RunVirtual(t, newEnv()) }

func TestConformanceWithLatency(t *testing.T) {
	leasetest.RunVirtual(t, newEnv(memlease.WithLatency(3*time.Millisecond, 5*time.Millisecond, 9*time.Millisecond)))
}

func TestConformanceWithJitter(t *testing.T) {
	leasetest.RunVirtual(t, newEnv(memlease.WithLatencyFunc(func(memlease.Leg) time.Duration {
		return rand.N(10 * time.Millisecond)
	})))
}

func TestConformanceWithoutTracking(t *testing.T) {
	leasetest.RunVirtual(t, newEnv(memlease.WithoutTracking()))
}

func TestConformanceWithoutReceipts(t *testing.T) {
	leasetest.RunVirtual(t, newEnv(memlease.WithoutReceipts()))
}

func TestConformanceWithoutNotices(t *testing.T) {
	leasetest.RunVirtual(t, newEnv(memlease.WithoutNotices()))
}
