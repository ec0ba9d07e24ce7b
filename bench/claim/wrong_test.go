package claim_test

import (
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/bench/claim"
	"github.com/go-leasehold/leasehold/bench/result"
)

// A lock that lets two in has no ratio worth telling.
func TestCheckFailsOnViolations(t *testing.T) {
	r := passing()
	r.Scenarios[0].Cells[0].Rounds[1][result.Violations] = 3
	require.ErrorContains(t, claim.Check(r.Report), "violations")
}

func TestViolationsAreAClaim(t *testing.T) {
	r := passing()
	r.Contenders = []result.Contender{{Name: "leasehold", Kind: "ours"}}
	r.Scenarios[0].Cells[0].Rounds[1][result.Violations] = 3
	require.False(t, verdict(t, r.Report, "violations").Met)
}

// What failed on its way is not met by the rounds before.
func TestWhatFailedIsNotMet(t *testing.T) {
	r := passing()
	r.Scenarios[0].Cells[0].Failure = "round 3: the lock did not come back"
	require.False(t, verdict(t, r.Report, "hot").Met)
	require.ErrorContains(t, claim.Check(r.Report), "hot")
}

// The report's machine had those cores, not this one.
func TestReadsAreLookedUpByTheReportsMachine(t *testing.T) {
	var r made
	r.Machine.Cores = runtime.NumCPU() + 3
	point := strconv.Itoa(r.Machine.Cores)
	r.put("reads-local", point, 0, "leasehold", result.Throughput, 50)
	r.put("reads-local", point, 0, "mutex", result.Throughput, 100)
	require.True(t, verdict(t, r.Report, "read-mutex").Known)
}

// "the last of the waiters" is the last of all rounds.
func TestTheLastWaiterOfAllRounds(t *testing.T) {
	var r made
	r.put("crash", "holder killed", 0, "leasehold", result.OverTTL, 1000, 2_000_000, 1000)
	require.False(t, verdict(t, r.Report, "crash").Met)
}

// Calls that failed are no success.
func TestCheckFailsOnErrors(t *testing.T) {
	r := passing()
	r.Scenarios[0].Cells[0].Rounds[1][result.Errors] = 3
	require.ErrorContains(t, claim.Check(r.Report), "errors: hot at 64: 3 calls of leasehold failed")
}

// Where leasehold is the second of a ratio, its failure counts as well.
func TestWhatFailedIsNotMetOnTheOtherSide(t *testing.T) {
	var r made
	r.put("uncontended", "retained", 0, "semaphore", result.Throughput, 100, 100)
	r.put("uncontended", "retained", 0, "leasehold", result.Throughput, 100).Failure = "round 2: it did not come back"
	v := verdict(t, r.Report, "relock")
	require.False(t, v.Met)
	require.Contains(t, v.Missing(), "round 2")
}

// A check tells why there is nothing.
func TestCheckTellsWhyNothingWasMeasured(t *testing.T) {
	r := passing()
	r.Scenarios[0].Cells[0].Failure = "round 3: the lock did not come back"
	require.ErrorContains(t, claim.Check(r.Report), "hot: not measured: leasehold failed: round 3: the lock did not come back")
}

// What failed of a peer's is the peer's matter.
func TestCheckOverlooksAPeersFailure(t *testing.T) {
	r := passing()
	r.peers("rueidislock")
	failed := r.put("hot", "64", 0, "rueidislock", result.Violations, 7)
	failed.Failure = "round 3: it did not come back"
	require.NoError(t, claim.Check(r.Report))
}

// A writer may wait for the longest read as well.
func TestAWriterMayWaitForTheLongestRead(t *testing.T) {
	for waited, met := range map[float64]bool{15_000: true, 15_001: false} {
		var r made
		r.put("writer", "alone", 0, "leasehold", result.WaitP99, 1000)
		r.put("writer", "readers", 0, "leasehold", result.WaitP99, waited)
		v := verdict(t, r.Report, "writer")
		require.True(t, v.Known)
		require.Equal(t, met, v.Met, "%v", v.Spread)
	}
}
