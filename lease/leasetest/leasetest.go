package leasetest

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
)

const (
	// long is a lease that does not end within a test, on any machine.
	long = 10 * time.Minute
	// short is the first try for a lease whose end is waited for.
	short = 250 * time.Millisecond
	// patience is how long something may take that should come at once.
	patience = 20 * time.Second
	// slowRuns is how many runs a random model makes where Env.Slow is set.
	slowRuns = 8
)

// Env is a server with nothing on it that matters to others. Only NewStore is
// needed; tests that need another hook are skipped where it is nil.
type Env struct {
	// NewStore makes one more store on the server that the stores of this Env
	// share. The suite opens it, and closes it.
	NewStore func(t testing.TB) lease.Store

	// Sleep lets time pass for the server; time.Sleep unless set.
	Sleep func(d time.Duration)

	// Delete deletes a key behind the stores' backs (its holders, not its queue).
	Delete func(key string)

	// Put puts a value that is no lock at a key, and Intact says whether it is
	// still there, unchanged.
	Put    func(key string)
	Intact func(key string) bool

	// Slow says that a command takes milliseconds: the random models then make
	// eight runs instead of rapid's hundred.
	Slow bool

	// Flush empties the whole server. Leave it nil where others use it.
	Flush func()
}

// Run tests the stores that newEnv's environments make, in real time.
func Run(t *testing.T, newEnv func(t testing.TB) Env) {
	t.Helper()
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(newSuite(t, newEnv))
		})
	}
}

// RunVirtual is Run with every test in a bubble of [testing/synctest], where
// time passes when all is quiet: for stores that wait for nothing outside.
// newEnv is called inside the bubble.
func RunVirtual(t *testing.T, newEnv func(t testing.TB) Env) {
	t.Helper()
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { c.run(newSuite(t, newEnv)) })
		})
	}
}

// testCase is one test of the suite.
type testCase struct {
	name string
	run  func(s *suite)
}

func cases() []testCase {
	var all []testCase
	for _, some := range [][]testCase{
		acquireCases, queueCases, releaseCases, nextCases, renewCases, noticeCases, expiryCases,
		modeCases, downgradeCases, kindCases, watchCases, adminCases, sendCases,
		traceCases, passingCases, alreadyCases, keyCases, modelCases,
	} {
		all = append(all, some...)
	}
	return all
}

// suite is one test under way.
type suite struct {
	testing.TB

	env    Env
	run    string // unique: part of every key and id
	keys   int
	ledger ledger
}

// runs numbers the tests of this process.
var runs atomic.Uint64

func newSuite(t testing.TB, newEnv func(t testing.TB) Env) *suite {
	env := newEnv(t)
	if env.Sleep == nil {
		env.Sleep = time.Sleep
	}
	return &suite{TB: t, env: env, run: fmt.Sprintf("%08x-%d", rand.Uint32(), runs.Add(1))}
}

// mutex and readWrite name a key that nobody has used before.
func (s *suite) mutex() subject     { return s.subject(lease.Mutex, "") }
func (s *suite) readWrite() subject { return s.subject(lease.ReadWrite, "") }

func (s *suite) subject(kind lease.Kind, suffix string) subject {
	s.keys++
	return subject{kind: kind, key: s.run + "/" + strconv.Itoa(s.keys) + suffix}
}

// skipUnless skips a test of what this store, or this Env, does not have.
func (s *suite) skipUnless(has bool, what string) {
	if !has {
		s.Skip("the store has no " + what)
	}
}

// withShortLease runs a test with a short lease. The test returns false when the
// machine was so slow that the lease ended before it came to its point.
func (s *suite) withShortLease(test func(ttl time.Duration) bool) {
	s.Helper()
	for ttl := short; ttl < 10*time.Minute; ttl *= 5 {
		if test(ttl) {
			return
		}
		s.Logf("too slow for a lease of %v", ttl)
	}
	s.Fatal("too slow for any lease")
}

// eventually waits for a condition that time alone brings about.
func (s *suite) eventually(condition func() bool, what string) {
	s.Helper()
	start := time.Now()
	for !condition() {
		if time.Since(start) > patience {
			s.Fatalf("waited %v in vain: %s", patience, what)
		}
		s.env.Sleep(20 * time.Millisecond)
	}
}

// inspect is what the store tells of the key.
func (s *suite) inspect(c *client, k subject) lease.Info {
	s.Helper()
	info, err := c.store.Inspect(s.Context(), k.key)
	require.NoError(s, err)
	require.Equal(s, k.key, info.Key)
	return info
}

// requireHolders and requireWaiters compare owners with what the store tells.
func (s *suite) requireHolders(c *client, k subject, owners ...string) {
	s.Helper()
	found := []string{}
	for _, h := range s.inspect(c, k).Holders {
		found = append(found, h.Owner)
	}
	require.ElementsMatch(s, owners, found, "holders")
}

func (s *suite) requireWaiters(c *client, k subject, owners ...string) {
	s.Helper()
	found := []string{}
	for _, w := range s.inspect(c, k).Waiters {
		found = append(found, w.Owner)
	}
	if len(owners) == 0 {
		owners = []string{}
	}
	require.Equal(s, owners, found, "the queue")
}

// requireTTL says that a lease has between half of ttl and all of it to go. Rounding
// up to the next millisecond is fine.
func (s *suite) requireTTL(c *client, k subject, owner string, ttl time.Duration) {
	s.Helper()
	for _, h := range s.inspect(c, k).Holders {
		if h.Owner == owner {
			require.LessOrEqual(s, h.TTL, ttl+time.Millisecond)
			require.Greater(s, h.TTL, ttl/2)
			return
		}
	}
	require.Fail(s, "not a holder", owner)
}
