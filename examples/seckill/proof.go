package main

import (
	"fmt"

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

// prove compares the books.
func prove(e *evidence) report.Checks {
	return report.Checks{e.balance(), e.rows(), e.once(), e.yeses(), e.surplus(), e.contradictions(), e.limits()}
}

// balance: every unit is sold or left, when all reservations are over.
func (e *evidence) balance() report.Check {
	a := &e.audit
	c := report.Check{
		Name: "sold + left = loaded",
		Fact: fmt.Sprintf("%s + %s = %s", report.Thousands(a.Sold), report.Thousands(a.Left), report.Thousands(a.Loaded)),
	}
	switch {
	case e.audited != nil:
		c.Err = e.audited
	case a.Loaded != e.loaded:
		c.Err = fmt.Errorf("%d were loaded", e.loaded)
	case a.Sold+a.Left != a.Loaded || a.Reserved+a.Open+a.UnderWay+a.Short != 0 || a.Left < 0:
		c.Err = fmt.Errorf("%+v", a.Books)
	}
	return c
}

// rows: what the stock has sold is in the database, to the unit, and nothing is left half done.
func (e *evidence) rows() report.Check {
	units := int64(0)
	for _, o := range e.book {
		units += o.Quantity
	}
	c := report.Check{
		Name: "the database has what the stock has sold",
		Fact: fmt.Sprintf("%s units in %s orders", report.Thousands(units), report.Thousands(int64(len(e.book)))),
	}
	switch {
	case units != e.audit.Sold:
		c.Err = fmt.Errorf("the stock has sold %d units, the database has %d", e.audit.Sold, units)
	case e.unfinished > 0:
		c.Err = fmt.Errorf("%d payments were never finished", e.unfinished)
	}
	return c
}

// once: no order was taken, or written down, more than once.
func (e *evidence) once() report.Check {
	c := report.Check{Name: "no order twice"}
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
	c.Fact = fmt.Sprintf("%s orders taken", report.Thousands(int64(len(e.told))))
	if twice+again > 0 {
		c.Err = fmt.Errorf("%d orders are in the database twice, %d were taken twice", twice, again)
	}
	return c
}

// yeses: what somebody was told to have paid for is in the database.
func (e *evidence) yeses() report.Check {
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
	c := report.Check{Name: "every yes is in the database", Fact: fmt.Sprintf("%s yeses", report.Thousands(int64(paid)))}
	if missing > 0 {
		c.Err = fmt.Errorf("%d are not, or with another quantity: %+v", missing, first)
	}
	return c
}

// surplus: what is in the database somebody was told, or has not waited to be told.
func (e *evidence) surplus() report.Check {
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
	c := report.Check{
		Name: "every order in the database was a yes",
		Fact: fmt.Sprintf("but for %s that nobody waited for", report.Thousands(int64(silent))),
	}
	if surplus > 0 {
		c.Err = fmt.Errorf("%d were not: %+v", surplus, first)
	}
	return c
}

// contradictions: nobody was told two things.
func (e *evidence) contradictions() report.Check {
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
	c := report.Check{Name: "no yes was a no as well", Fact: fmt.Sprintf("%s cancelled or too late", report.Thousands(int64(other)))}
	switch {
	case twofold > 0:
		c.Err = fmt.Errorf("%d were: %+v", twofold, first)
	case e.odd > 0:
		c.Err = fmt.Errorf("GET /stock told what can't be, %d times", e.odd)
	}
	return c
}

// limits: nobody has more than a user may have.
func (e *evidence) limits() report.Check {
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
	c := report.Check{Name: "nobody has more than a user may have", Fact: fmt.Sprintf("at most %s, and may have %s", report.Thousands(most), limitText(e.limit))}
	if over > 0 {
		c.Err = fmt.Errorf("%d users are over the limit of %d", over, e.limit)
	}
	return c
}

func limitText(limit int64) string {
	if limit == 0 {
		return "any number"
	}
	return report.Thousands(limit)
}
