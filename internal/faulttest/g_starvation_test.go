package faulttest

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/rwlock"
)

// visit is one wait of the test's own process among steady ones: from the call to the grant.
type visit struct{ called, entered int64 }

// visits locks again and again for a while, with a pause that lets the others come back in between.
func visits(t *testing.T, lock locking, d time.Duration) (all []visit) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		called := time.Now().UnixNano()
		hold := come(t, lock)
		all = append(all, visit{called, time.Now().UnixNano()})
		require.NoError(t, hold.Unlock())
	}
	require.Greater(t, len(all), 10, "it enters again and again")
	return all
}

// begunDuring counts, for each visit, the holds that began while it waited.
func begunDuring(all []visit, begun ...[]int64) (counts []int) {
	for _, v := range all {
		n := 0
		for _, at := range slices.Concat(begun...) {
			if at > v.called && at < v.entered {
				n++
			}
		}
		counts = append(counts, n)
	}
	slices.Sort(counts)
	return counts
}

// G3: readers of three processes overlap all the time, with every retention there is; one writer comes again and
// again. It enters when those that are inside are out: while it waits hardly anybody begins to read. The bound is in
// reads for each reader, and for most waits: a machine that stalls may delay the one or the other.
func TestSteadyReadersDoNotKeepAWriterOut(t *testing.T) {
	t.Parallel()
	const readers, hold = 8, 3 * time.Millisecond
	server := redistest.Start(t)
	order := throngOrder{Addr: server.Addr(), Readers: readers, Hold: hold, TTL: 30 * time.Second, Times: true}
	var orders []throngOrder
	for _, kept := range []time.Duration{0, 50 * time.Millisecond, time.Hour} {
		order.Shared = kept
		orders = append(orders, order)
	}
	all := startThrong(t, orders...)
	lock := rwlock.New(steady(t, server.Addr(), coordinator.WithTTL(30*time.Second)), "k")
	waits := visits(t, lock.Lock, lasting(3*time.Second, time.Minute))
	reports := all.end(t)
	for _, r := range reports {
		require.Greater(t, r.Reads, readers, "the readers of each process go on")
		counts := begunDuring(waits, r.ReadAt)
		t.Logf("%d reads; begun during a writer's wait: median %d, most %d (of %d waits)", r.Reads, counts[len(counts)/2], counts[len(counts)-1], len(counts))
		require.LessOrEqual(t, counts[len(counts)/2], 4*readers, "as a rule hardly a reader comes in anew")
		require.LessOrEqual(t, counts[len(counts)*9/10], 20*readers)
	}
}

// G3, the other way round: writers of three processes write all the time; one reader comes again and again. It waits
// for the turn of one process, so for a number of writes that is bounded.
func TestSteadyWritersDoNotKeepAReaderOut(t *testing.T) {
	t.Parallel()
	const writers, hold = 4, 2 * time.Millisecond
	server := redistest.Start(t)
	order := throngOrder{Addr: server.Addr(), Writers: writers, Hold: hold, TTL: 30 * time.Second, Times: true}
	all := startThrong(t, order, order, order)
	lock := rwlock.New(steady(t, server.Addr(), coordinator.WithTTL(30*time.Second)), "k")
	waits := visits(t, lock.RLock, lasting(3*time.Second, time.Minute))
	reports := all.end(t)
	var begun [][]int64
	for _, r := range reports {
		require.Greater(t, r.Writes, writers)
		begun = append(begun, r.WroteAt)
	}
	counts := begunDuring(waits, begun...)
	t.Logf("writes begun during a reader's wait: median %d, most %d (of %d waits)", counts[len(counts)/2], counts[len(counts)-1], len(counts))
	// A turn is over at its slice of 5 ms, so after four writes of 2 ms.
	require.LessOrEqual(t, counts[len(counts)/2], 8, "the turn of one process")
	require.LessOrEqual(t, counts[len(counts)*9/10], 60)
}
