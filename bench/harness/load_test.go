package harness

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/go-leasehold/leasehold/bench/result"
)

func sumOf(counts []int64) (sum int64) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// What is counted was granted, and nothing that was granted outside of the window is counted.
func TestCountsAreOfTheWindow(t *testing.T) {
	w := openWorker(t, "test/mutex")
	grants := &w.process.(*memory).grants
	require.NoError(t, w.Prepare(LoadArgs{Action: Lock, Goroutines: 4, Work: 100 * time.Microsecond}, &Nothing{}))
	var tally Tally
	require.NoError(t, w.Load(Window{
		Start: time.Now(), Warm: 20 * time.Millisecond, For: 100 * time.Millisecond, Tail: 20 * time.Millisecond, Drain: drainFor,
	}, &tally))
	require.Len(t, tally.Counts, 4)
	require.NotZero(t, sumOf(tally.Counts))
	require.Less(t, sumOf(tally.Counts), grants.Load(), "warm-up and tail are left out")
	require.GreaterOrEqual(t, tally.Took, 50*time.Millisecond)
}

// The waits of all operations are there, those that were not timed by those that were.
func TestATimedWaitStandsForMany(t *testing.T) {
	tally, err := runLoad(openWorker(t, "test/nobody"), LoadArgs{Action: Lock, Goroutines: 1}, drainFor)
	require.NoError(t, err)
	waits := hdrhistogram.Import(tally.Waits)
	require.InEpsilon(t, sumOf(tally.Counts), waits.TotalCount(), 0.5)
}

// A lock that is slow in the rhythm of the timing does not look slow, nor quick, each time.
func TestTimingHasNoRhythm(t *testing.T) {
	w := openWorker(t, "test/rhythm")
	require.NoError(t, w.Prepare(LoadArgs{Action: Lock, Goroutines: 1}, &Nothing{}))
	var tally Tally
	require.NoError(t, w.Load(Window{Start: time.Now(), For: 300 * time.Millisecond, Drain: drainFor}, &tally))
	waits := hdrhistogram.Import(tally.Waits)
	require.Less(t, waits.ValueAtQuantile(50), int64(slow), "most are not slow")
	require.GreaterOrEqual(t, waits.Max(), int64(slow)*9/10)
}

// One goroutine has all: the index says so, and the waits of the others are told though they came to nothing.
func TestTheStarvedAreTold(t *testing.T) {
	const goroutines = 8
	tally, err := runLoad(openWorker(t, "test/greedy"), LoadArgs{Action: Lock, Goroutines: goroutines}, drainFor)
	require.NoError(t, err)
	round, err := (&Cast{}).summary([]Tally{tally}, Reading{})
	require.NoError(t, err)
	require.InDelta(t, 1.0/goroutines, round[result.Jain], 1e-9)
	require.Zero(t, round[result.MinMax])
	require.GreaterOrEqual(t, round[result.WaitMax], 40e3, "microseconds, of those who had nothing")
}

func TestErrorsAreToldWithTheirText(t *testing.T) {
	tally, err := runLoad(openWorker(t, "test/errs"), LoadArgs{Action: Lock, Goroutines: 2}, drainFor)
	require.NoError(t, err)
	require.NotZero(t, tally.Errors)
	require.Equal(t, "each second one fails", tally.FirstError)
	cast := &Cast{}
	_, err = cast.summary([]Tally{tally}, Reading{})
	require.NoError(t, err)
	require.Equal(t, "each second one fails", cast.failed, "it is told beside what came of the others")
	tally.Counts = make([]int64, 2)
	_, err = (&Cast{}).summary([]Tally{tally}, Reading{})
	require.EqualError(t, err, "each second one fails", "a round of nothing but errors is none")
}

// A lock that does not heed its context makes an error, in time.
func TestALockThatHangsIsAnError(t *testing.T) {
	w := openWorker(t, "test/mutex")
	stuck := &stubborn{until: make(chan struct{}), done: make(chan struct{}, 1)}
	w.process.(*memory).locker = stuck
	_, err := runLoad(w, LoadArgs{Action: Lock, Goroutines: 1}, 20*time.Millisecond)
	require.ErrorContains(t, err, "test/mutex: calls did not come back within 20ms after their context had ended")
	close(stuck.until)
	<-stuck.done
}

type stubborn struct{ until, done chan struct{} }

func (s *stubborn) lock(context.Context) (func() error, error) {
	<-s.until
	s.done <- struct{}{}
	return nil, errors.New("too late")
}

func TestPrepareSaysWhatIsWrong(t *testing.T) {
	w := openWorker(t, "test/mutex")
	for want, args := range map[string]LoadArgs{
		"a load of 0 goroutines: there has to be one":                      {Action: Lock},
		"a load of 2000000 keys: 1048574 are the most that can be guarded": {Action: Lock, Goroutines: 1, Keys: 2_000_000},
		"test/mutex sells no stock":                                        {Action: Sell, Goroutines: 1},
		"test/mutex has no segmented locks":                                {Action: Lock, Goroutines: 1, Segments: 2},
	} {
		require.EqualError(t, w.Prepare(args, &Nothing{}), want)
	}
	require.ErrorContains(t, w.Load(Window{}, &Tally{}), "there is no load: Prepare makes one ready")
}

func shares(least int) *rapid.Generator[[]float64] {
	return rapid.SliceOfN(rapid.Map(rapid.IntRange(0, 1_000_000), func(n int) float64 { return float64(n) }), least, 50)
}

func TestFairnessHasItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		of := shares(1).Draw(t, "shares")
		n := float64(len(of))
		require.GreaterOrEqual(t, jain(of), 1/n-1e-9)
		require.LessOrEqual(t, jain(of), 1+1e-9)
		require.GreaterOrEqual(t, evenness(of), 0.0)
		require.LessOrEqual(t, evenness(of), 1.0)
		other := rapid.Permutation(of).Draw(t, "in another order")
		require.InDelta(t, jain(of), jain(other), 1e-9)
		require.InDelta(t, evenness(of), evenness(other), 1e-9)
	})
}

func TestFairnessOfOneWhoHasAllAndOfEqualShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, share := rapid.IntRange(2, 50).Draw(t, "n"), float64(rapid.IntRange(1, 1000).Draw(t, "share"))
		one, equal := make([]float64, n), make([]float64, n)
		one[rapid.IntRange(0, n-1).Draw(t, "who")] = share
		for i := range equal {
			equal[i] = share
		}
		require.InDelta(t, 1/float64(n), jain(one), 1e-9)
		require.Zero(t, evenness(one))
		require.InDelta(t, 1, jain(equal), 1e-9)
		require.InDelta(t, 1, evenness(equal), 1e-9)
	})
	require.InDelta(t, 1, jain(nil), 0)
	require.InDelta(t, 1, evenness(nil), 0)
}

// Whatever the processes tell, JSON can write it, and fairness is told where there was enough to share.
func TestSummaryHasNumbersOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tallies []Tally
		each, total := 0, int64(0)
		for range rapid.IntRange(1, 4).Draw(t, "processes") {
			counts := rapid.SliceOfN(rapid.Int64Range(0, 20), 1, 8).Draw(t, "counts")
			tallies = append(tallies, Tally{
				Counts: counts, Took: time.Duration(rapid.Int64Range(1, int64(time.Second)).Draw(t, "took")),
				Waits: hdrhistogram.New(1, waitMax, waitDigits).Export(), Sent: 3, CPU: 5,
			})
			each, total = each+len(counts), total+sumOf(counts)
		}
		server := Reading{Commands: -1, Took: time.Duration(rapid.Int64Range(0, 10).Draw(t, "between readings"))}
		round, err := (&Cast{}).summary(tallies, server)
		require.NoError(t, err)
		require.InDelta(t, total, round[result.Operations], 0)
		for name, value := range round {
			require.False(t, math.IsNaN(value) || math.IsInf(value, 0), "%s is %v", name, value)
		}
		_, told := round[result.Jain]
		require.Equal(t, total >= int64(fairAbove*each), told)
	})
	_, err := (&Cast{}).summary([]Tally{{Counts: []int64{1}, Waits: hdrhistogram.New(1, waitMax, waitDigits).Export()}}, Reading{})
	require.ErrorContains(t, err, "began when it was over")
}
