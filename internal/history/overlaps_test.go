package history

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// lease of 1a is lost from 10 to 20, and 2a gets the lock at 15.
func lostLease(token uint64, more ...Event) []Event {
	return lines(append([]Event{
		shaken(token, 10, 20), locked("1a", Write, 5, 0, 1), locked("2a", Write, 9, 12, 15),
	}, more...)...)
}

func TestHoldsOfLostLeasesMeetOthers(t *testing.T) {
	t.Parallel()
	events := lostLease(5, said("1a", Alive, 30, 31), said("1a", Lost, 40, 41), said("2a", Unlocked, 50, 51))
	require.NoError(t, Check(events, rules))
	all, err := Overlaps(events, rules)
	require.NoError(t, err)
	require.Equal(t, []Overlap{{Key: "k", First: "1a", Then: "2a", Tokens: [2]uint64{5, 9}, For: 15, AfterTheLoss: 10}}, all)
}

func TestHoldsOfLostLeasesAreToldWithinATimeToLive(t *testing.T) {
	t.Parallel()
	events := lostLease(5, said("1a", Alive, 121, 122), said("1a", Lost, 123, 124), said("2a", Unlocked, 150, 151))
	require.NoError(t, Check(events, rules))
	_, err := Overlaps(events, rules)
	require.ErrorContains(t, err, "1ns longer than the lease of the first could be believed in")
}

func TestLostLeaseExcusesNobodyElse(t *testing.T) {
	t.Parallel()
	for name, events := range map[string][]Event{
		"two leases from after the loss": lostLease(5, said("1a", Lost, 16, 17), locked("1b", Write, 11, 22, 23),
			said("1b", Unlocked, 30, 31), said("2a", Unlocked, 50, 51)),
		"two leases from before it": lines(shaken(9, 100, 101), locked("1a", Write, 5, 0, 1), locked("2a", Write, 9, 2, 3),
			said("1a", Unlocked, 10, 11), said("2a", Unlocked, 10, 11)),
		"another key": lines(Event{What: Shaken, Key: "other", Call: 10, Return: 20}, locked("1a", Write, 5, 0, 1),
			locked("2a", Write, 9, 12, 15), said("1a", Unlocked, 30, 31), said("2a", Unlocked, 30, 31)),
		"a token that is too low": lostLease(5, said("1a", Lost, 16, 17), said("2a", Unlocked, 30, 31),
			locked("1b", Write, 8, 40, 41), said("1b", Unlocked, 50, 51)),
	} {
		require.ErrorContains(t, Check(events, rules), "no order", name)
	}
}

func TestDowngradeOfALostLeaseIsOneToo(t *testing.T) {
	t.Parallel()
	events := lostLease(5, downgraded("1a", "1b", 5, 16, 17), said("1b", Lost, 40, 41), said("2a", Unlocked, 50, 51))
	require.NoError(t, Check(events, rules))
}

func TestLeaseThatSurvivesALossIsFine(t *testing.T) {
	t.Parallel()
	events := lines(shaken(5, 10, 20), locked("1a", Write, 5, 0, 1), said("1a", Alive, 500, 501), said("1a", Unlocked, 510, 511),
		locked("2a", Write, 9, 505, 512), said("2a", Unlocked, 520, 521))
	require.NoError(t, Check(events, rules))
	all, err := Overlaps(events, rules)
	require.NoError(t, err)
	require.Empty(t, all)
	require.Equal(t, "key \"k\": 1a (token 5) and 2a (token 9), for 1s",
		Overlap{Key: "k", First: "1a", Then: "2a", Tokens: [2]uint64{5, 9}, For: time.Second}.String())
}
