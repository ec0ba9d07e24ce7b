package segment_test

import (
	"encoding/hex"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/segment"
)

// The vectors in testdata were made by another implementation, in another language.
func TestIndexVectors(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/index.tsv")
	require.NoError(t, err)
	var segments []int
	vectors := 0
	for line := range strings.Lines(string(text)) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		switch {
		case strings.HasPrefix(line, "#"):
		case fields[0] == "key":
			for _, head := range fields[2:] {
				n, err := strconv.Atoi(strings.TrimPrefix(head, "of "))
				require.NoError(t, err)
				segments = append(segments, n)
			}
		default:
			key, err := hex.DecodeString(fields[0])
			require.NoError(t, err)
			require.Len(t, fields, 2+len(segments))
			for i, n := range segments {
				require.Equal(t, fields[2+i], strconv.Itoa(segment.Index(string(key), n)), "%q of %d", key, n)
			}
			vectors++
		}
	}
	require.Equal(t, 15, vectors)
	require.Equal(t, []int{1, 16, 100, segment.MaxSegments}, segments)
}

// mixed is the hash once more, with what the standard library has of it.
func mixed(key string) uint64 {
	f := fnv.New64a()
	_, _ = f.Write([]byte(key)) // never fails
	h := f.Sum64()
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	return (h ^ h>>33) * 0xc4ceb9fe1a85ec53
}

func FuzzIndex(f *testing.F) {
	for _, key := range []string{"", "a", "user-1", "\x00\xff", strings.Repeat("k", 1000)} {
		for _, n := range []int{1, 2, 16, 100, segment.MaxSegments, math.MaxInt32} {
			f.Add(key, n)
		}
	}
	f.Fuzz(func(t *testing.T, key string, n int) {
		if n = n & math.MaxInt32; n == 0 {
			n = 1
		}
		i := segment.Index(key, n)
		require.GreaterOrEqual(t, i, 0)
		require.Less(t, i, n)
		require.EqualValues(t, mixed(key)>>33%uint64(n), i)
		require.Equal(t, i, segment.Index(strings.Clone(key), n))
		require.Zero(t, segment.Index(key, 1))
	})
}

// With one segment there is no choice; with the most there can be, all are used.
func TestIndexOfTheFewestAndTheMost(t *testing.T) {
	t.Parallel()
	used := make([]int, segment.MaxSegments)
	for i := range 100_000 {
		key := "user-" + strconv.Itoa(i)
		require.Zero(t, segment.Index(key, 1))
		used[segment.Index(key, segment.MaxSegments)]++
	}
	require.NotContains(t, used, 0)
}

// upper is the probability that a chi-square variable of k degrees of freedom is at least x, by the approximation of
// Wilson and Hilferty: (x/k)^(1/3) is nearly normal, with a mean of 1-2/(9k) and a variance of 2/(9k). With 15 degrees or more
// that is off by less than a thousandth, and by a sixth of a tail of one in a thousand.
func upper(x float64, k int) float64 {
	v := 2 / (9 * float64(k))
	z := (math.Cbrt(x/float64(k)) - (1 - v)) / math.Sqrt(v)
	return math.Erfc(z/math.Sqrt2) / 2
}

// The quantiles are those of the printed tables.
func TestUpperAgreesWithTheTables(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		k     int
		x     float64
		upper float64
	}{
		{15, 3.483, 0.999},
		{15, 7.261, 0.95},
		{15, 14.339, 0.5},
		{15, 24.996, 0.05},
		{15, 37.697, 0.001},
		{100, 61.918, 0.999},
		{100, 77.929, 0.95},
		{100, 99.334, 0.5},
		{100, 124.342, 0.05},
		{100, 149.449, 0.001},
	} {
		require.InEpsilon(t, row.upper, upper(row.x, row.k), 0.08, "of %v and %d", row.x, row.k)
	}
}

// over are the numbers of segments that are tried.
var over = []int{16, 100}

// spread returns, of the chi-square test that all segments get the same, the probability of so much unevenness or more, over
// each number of segments.
func spread(index func(key string, n int) int, keys int, key func(i int) string) (p []float64) {
	counts := make([][]int, len(over))
	for i, n := range over {
		counts[i] = make([]int, n)
	}
	for k := range keys {
		key := key(k)
		for i, n := range over {
			counts[i][index(key, n)]++
		}
	}
	for i, n := range over {
		expected, x := float64(keys)/float64(n), 0.0
		for _, c := range counts[i] {
			x += (float64(c) - expected) * (float64(c) - expected) / expected
		}
		p = append(p, upper(x, n-1))
	}
	return p
}

// Ids as they are given out: one after the other, in steps (the users of one shard of sixteen), and at random.
func ids() map[string]func(i int) string {
	// They are the same in each run: the test must not fail by chance.
	random := func() *rand.Rand { return rand.New(rand.NewChaCha8([32]byte{'i', 'd'})) }
	numbers, users, words := random(), random(), random()
	every := func(prefix string, from, step int64) func(int) string {
		return func(i int) string { return prefix + strconv.FormatInt(from+int64(i)*step, 10) }
	}
	return map[string]func(i int) string{
		"user-0 ...":          every("user-", 0, 1),
		"0 ...":               every("", 0, 1),
		"from 10^12":          every("", 1_000_000_000_000, 1),
		"every 16th":          every("user-", 5, 16),
		"every 100th":         every("", 7, 100),
		"random numbers":      func(int) string { return strconv.FormatUint(numbers.Uint64(), 10) },
		"random user numbers": func(int) string { return "user-" + strconv.Itoa(users.IntN(1_000_000_000)) },
		"random hex":          func(int) string { return strconv.FormatUint(words.Uint64(), 16) },
	}
}

// Both tails count. Too much unevenness makes hot segments. Too little is no harm in itself: for ids that count up, a plain
// remainder is perfectly even. But it tells that the index follows the count, and then ids that have something in common (every
// 16th) all meet in one segment. A hash that is right is as uneven as chance has it, for ids that count up as for random
// ones. For random ones the counts are chance whatever the hash does, so that their lower tail tests the test.
//
// Each of these tests fails for one good hash in 500; but the hash and the ids are what they are, so it is the same each time.
func TestIndexSpreadsLikeChance(t *testing.T) {
	t.Parallel()
	const keys = 1_000_000
	for name, id := range ids() {
		for i, p := range spread(segment.Index, keys, id) {
			t.Logf("%s over %d: p = %.3f", name, over[i], p)
			require.Greater(t, p, 0.001, "%s over %d is skewed", name, over[i])
			require.Less(t, p, 0.999, "%s over %d is more even than chance", name, over[i])
		}
	}
}

// What the test above is for: it would find these.
func TestSpreadFindsPoorHashes(t *testing.T) {
	t.Parallel()
	const keys = 100_000
	number := func(key string) int {
		i, _ := strconv.Atoi(strings.TrimPrefix(key, "user-"))
		return i
	}
	remainder := func(key string, n int) int { return number(key) % n }
	p := spread(remainder, keys, ids()["0 ..."])
	require.Greater(t, p[0], 0.999, "the remainder, of ids that count up")
	p = spread(remainder, keys, ids()["every 16th"])
	require.Less(t, p[0], 0.001, "the remainder, of every 16th")

	unmixed := func(key string, n int) int {
		f := fnv.New64a()
		_, _ = f.Write([]byte(key)) // never fails
		return int(f.Sum64() % uint64(n))
	}
	found := false
	for _, name := range []string{"user-0 ...", "0 ...", "every 16th", "every 100th"} {
		for _, p := range spread(unmixed, keys, ids()[name]) {
			found = found || p < 0.001 || p > 0.999
		}
	}
	require.True(t, found, "FNV alone")

	skewed := func(key string, n int) int { // a hundredth of the keys goes to the first
		if h := mixed(key); h%100 == 0 {
			return 0
		}
		return segment.Index(key, n)
	}
	p = spread(skewed, keys, ids()["random numbers"])
	require.Less(t, p[0], 0.001)
}

func BenchmarkIndex(b *testing.B) {
	for _, key := range []string{"42", "user-1234567", "3f2504e0-4f89-11d3-9a0c-0305e82c3301"} {
		b.Run(strconv.Itoa(len(key))+"B", func(b *testing.B) {
			for b.Loop() {
				segment.Index(key, 16)
			}
		})
	}
}
