package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/go-leasehold/leasehold/examples/internal/report"
	"github.com/go-leasehold/leasehold/segment"
)

// evidence is three books of one sale: what the stock says, what the database says, and what the buyers were told.
type evidence struct {
	loaded     int64 // what the sale began with
	limit      int64 // how many units a user may have; 0 is no limit
	audit      segment.Audit
	audited    error           // by the audit
	book       []segment.Order // what was paid, as the database's log has it
	unfinished int             // orders that the database has begun and not ended
	told       map[key]*told
	odd        int64 // answers to GET /stock that can't be
}

// check is one thing that has to be so.
type check struct {
	name string
	fact string // what was found
	err  error  // it is not so
}

// prove compares the books.
func prove(e *evidence) []check {
	return []check{e.balance(), e.rows(), e.once(), e.yeses(), e.surplus(), e.contradictions(), e.limits()}
}

// verdict is an error where something is not as it has to be.
func verdict(checks []check) error {
	var errs []error
	for _, c := range checks {
		if c.err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", c.name, c.err))
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("THE PROOF FAILED:\n%w", errors.Join(errs...))
	}
	return nil
}

func printProof(out io.Writer, checks []check) {
	fmt.Fprintln(out, "\nthe proof")
	for _, c := range checks {
		mark := "ok"
		if c.err != nil {
			mark = "FAILED: " + c.err.Error()
		}
		fmt.Fprintf(out, "%-46s %-36s %s\n", c.name, c.fact, mark)
	}
}

// balance: every unit is sold or left, when all reservations are over.
func (e *evidence) balance() check {
	a := &e.audit
	c := check{
		name: "sold + left = loaded",
		fact: fmt.Sprintf("%s + %s = %s", report.Thousands(a.Sold), report.Thousands(a.Left), report.Thousands(a.Loaded)),
	}
	switch {
	case e.audited != nil:
		c.err = e.audited
	case a.Loaded != e.loaded:
		c.err = fmt.Errorf("%d were loaded", e.loaded)
	case a.Sold+a.Left != a.Loaded || a.Reserved+a.Open+a.UnderWay+a.Short != 0 || a.Left < 0:
		c.err = fmt.Errorf("%+v", a.Books)
	}
	return c
}

// rows: what the stock has sold is in the database, to the unit, and nothing is left half done.
func (e *evidence) rows() check {
	units := int64(0)
	for _, o := range e.book {
		units += o.Quantity
	}
	c := check{
		name: "the database has what the stock has sold",
		fact: fmt.Sprintf("%s units in %s orders", report.Thousands(units), report.Thousands(int64(len(e.book)))),
	}
	switch {
	case units != e.audit.Sold:
		c.err = fmt.Errorf("the stock has sold %d units, the database has %d", e.audit.Sold, units)
	case e.unfinished > 0:
		c.err = fmt.Errorf("%d payments were never finished", e.unfinished)
	}
	return c
}

// once: no order was taken, or written down, more than once.
func (e *evidence) once() check {
	c := check{name: "no order twice"}
	rows := map[key]int{}
	twice := 0
	for _, o := range e.book {
		if rows[keyOf(o)]++; rows[keyOf(o)] == 2 {
			twice++
		}
	}
	again := 0
	for _, t := range e.told {
		if t.firsts > 1 {
			again++
		}
	}
	c.fact = fmt.Sprintf("%s orders taken", report.Thousands(int64(len(e.told))))
	if twice+again > 0 {
		c.err = fmt.Errorf("%d orders are in the database twice, %d were taken twice", twice, again)
	}
	return c
}

// yeses: what somebody was told to have paid for is in the database.
func (e *evidence) yeses() check {
	rows := map[key]int64{}
	for _, o := range e.book {
		rows[keyOf(o)] = o.Quantity
	}
	paid, missing, first := 0, 0, key{}
	for k, t := range e.told {
		if !t.paid {
			continue
		}
		paid++
		if rows[k] != t.quantity {
			missing++
			first = k
		}
	}
	c := check{name: "every yes is in the database", fact: fmt.Sprintf("%s yeses", report.Thousands(int64(paid)))}
	if missing > 0 {
		c.err = fmt.Errorf("%d are not, or with another quantity: %+v", missing, first)
	}
	return c
}

// surplus: what is in the database somebody was told, or has not waited to be told.
func (e *evidence) surplus() check {
	surplus, silent, first := 0, 0, key{}
	for _, o := range e.book {
		t := e.told[keyOf(o)]
		switch {
		case t == nil || !t.paid && !t.silent:
			surplus++
			first = keyOf(o)
		case !t.paid:
			silent++
		}
	}
	c := check{
		name: "every order in the database was a yes",
		fact: fmt.Sprintf("but for %s that nobody waited for", report.Thousands(int64(silent))),
	}
	if surplus > 0 {
		c.err = fmt.Errorf("%d were not: %+v", surplus, first)
	}
	return c
}

// contradictions: nobody was told two things.
func (e *evidence) contradictions() check {
	twofold, other, first := 0, 0, key{}
	for k, t := range e.told {
		if t.paid && (t.cancelled || t.expired) {
			twofold++
			first = k
		}
		if t.cancelled || t.expired {
			other++
		}
	}
	c := check{name: "no yes was a no as well", fact: fmt.Sprintf("%s cancelled or too late", report.Thousands(int64(other)))}
	switch {
	case twofold > 0:
		c.err = fmt.Errorf("%d were: %+v", twofold, first)
	case e.odd > 0:
		c.err = fmt.Errorf("GET /stock told what can't be, %d times", e.odd)
	}
	return c
}

// limits: nobody has more than a user may have.
func (e *evidence) limits() check {
	units, most, over := map[string]int64{}, int64(0), 0
	for _, o := range e.book {
		units[o.User] += o.Quantity
	}
	for _, n := range units {
		most = max(most, n)
		if e.limit > 0 && n > e.limit {
			over++
		}
	}
	c := check{name: "nobody has more than a user may have", fact: fmt.Sprintf("at most %s, and may have %s", report.Thousands(most), limitText(e.limit))}
	if over > 0 {
		c.err = fmt.Errorf("%d users are over the limit of %d", over, e.limit)
	}
	return c
}

func limitText(limit int64) string {
	if limit == 0 {
		return "any number"
	}
	return report.Thousands(limit)
}
