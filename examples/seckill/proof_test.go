package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/segment"
)

// sound is the evidence of a small sale at which all went well: 10 units, of which ann has 2 and bob has 3, cid cancelled, dan
// paid too late, and eve went away before the answer.
func sound() *evidence {
	o := func(user string, quantity int64) segment.Order {
		return segment.Order{User: user, ID: "1", Quantity: quantity}
	}
	return &evidence{
		loaded: 10, limit: 3,
		audit: segment.Audit{Still: true, Books: segment.Books{Loaded: 10, Sold: 6, Left: 4}},
		book:  []segment.Order{o("ann", 2), o("bob", 3), o("eve", 1)},
		told: map[key]*told{
			{"ann", "1"}: {quantity: 2, firsts: 1, paid: true},
			{"bob", "1"}: {quantity: 3, paid: true}, // the first yes was lost
			{"cid", "1"}: {quantity: 1, firsts: 1, cancelled: true},
			{"dan", "1"}: {quantity: 1, firsts: 1, expired: true},
			{"eve", "1"}: {quantity: 1, firsts: 1, silent: true},
			{"fay", "1"}: {quantity: 1, firsts: 1}, // reserved, and never paid
		},
	}
}

func TestSoundBooksAreProved(t *testing.T) {
	t.Parallel()
	checks := prove(sound())
	require.NoError(t, checks.Verdict())
	var out strings.Builder
	checks.Print(&out)
	require.Equal(t, len(checks), strings.Count(out.String(), " ok\n"))
	require.Contains(t, out.String(), "6 + 4 = 10")
	require.Contains(t, out.String(), "6 units in 3 orders")
	unlimited := sound()
	unlimited.limit = 0
	require.NoError(t, prove(unlimited).Verdict())
}

// Whatever is wrong in one of the books is found, by one check or by several, and told.
func TestEveryPlantedFaultIsFound(t *testing.T) {
	t.Parallel()
	ann := key{"ann", "1"}
	for name, fault := range map[string]struct {
		plant func(*evidence)
		want  string
	}{
		"a unit is sold and not left": {func(e *evidence) { e.audit.Left-- }, "sold + left = loaded"},
		"a unit comes from nowhere":   {func(e *evidence) { e.audit.Left++; e.audit.Loaded++ }, "10 were loaded"},
		"the stock is oversold": {func(e *evidence) {
			e.audit.Left -= 5
			e.audit.Sold += 5
		}, "sold + left = loaded"},
		"a reservation is never over": {func(e *evidence) { e.audit.Left--; e.audit.Reserved++ }, "sold + left = loaded"},
		"units stay on their way":     {func(e *evidence) { e.audit.Left--; e.audit.UnderWay++ }, "sold + left = loaded"},
		"an order is never decided":   {func(e *evidence) { e.audit.Left--; e.audit.Open++ }, "sold + left = loaded"},
		"the audit says no":           {func(e *evidence) { e.audited = errors.New("no luck today") }, "no luck today"},
		"the stock sold to nobody":    {func(e *evidence) { e.audit.Sold++; e.audit.Left-- }, "the stock has sold 7 units, the database has 6"},
		"a payment is half done":      {func(e *evidence) { e.unfinished = 1 }, "1 payments were never finished"},
		"an order has two rows": {func(e *evidence) {
			e.book = append(e.book, e.book[0])
			e.audit.Sold += 2
			e.audit.Left -= 2
		}, "1 orders are in the database twice"},
		"an order was taken twice":  {func(e *evidence) { e.told[ann].firsts = 2 }, "1 were taken twice"},
		"a yes is not in the books": {func(e *evidence) { e.told[key{"fay", "1"}].paid = true }, "every yes is in the database: 1 are not"},
		"a yes has another quantity": {func(e *evidence) { e.told[ann].quantity = 1 },
			"every yes is in the database: 1 are not, or with another quantity"},
		"a row is of nobody":         {func(e *evidence) { delete(e.told, ann) }, "every order in the database was a yes: 1 were not"},
		"a no is in the books":       {func(e *evidence) { e.told[ann].paid = false }, "every order in the database was a yes: 1 were not"},
		"a cancelled order was paid": {func(e *evidence) { e.told[ann].cancelled = true }, "no yes was a no as well: 1 were"},
		"a late payment was taken":   {func(e *evidence) { e.told[ann].expired = true }, "no yes was a no as well: 1 were"},
		"GET /stock told nonsense":   {func(e *evidence) { e.odd = 1 }, "what can't be, 1 times"},
		"a user has too much":        {func(e *evidence) { e.limit = 2 }, "1 users are over the limit of 2"},
	} {
		e := sound()
		fault.plant(e)
		checks := prove(e)
		err := checks.Verdict()
		require.ErrorContains(t, err, "THE PROOF FAILED", name)
		require.ErrorContains(t, err, fault.want, name)
		var out strings.Builder
		checks.Print(&out)
		require.Contains(t, out.String(), "FAILED: ", name)
	}
}
