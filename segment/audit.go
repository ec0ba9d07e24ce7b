package segment

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// auditTries is how often Audit looks for a moment in which nothing moves.
const auditTries = 5

// Books are what a segment, or all of them, have: Loaded = Sold + Reserved + Open + Left +
// UnderWay - Short. All are units.
type Books struct {
	Loaded   int64 // by Load and Restock
	Sold     int64 // deducted or confirmed, and not returned
	Reserved int64 // by reservations that are neither confirmed nor over
	Open     int64 // taken by orders over several stocks that are not decided yet
	Left     int64 // for sale
	// UnderWay is what has been given to other segments and has not come in there; of one
	// segment, what it ever gave less what it ever got, which may be negative.
	UnderWay int64
	// Short is what the books had twice after a failover that lost acknowledged writes: units
	// that were sold here and had been given away as well.
	Short int64
}

// balance is what the books are off by.
func (b *Books) balance() int64 {
	return b.Loaded + b.Short - b.Sold - b.Reserved - b.Open - b.Left - b.UnderWay
}

func (b *Books) add(o *Books) {
	b.Loaded += o.Loaded
	b.Sold += o.Sold
	b.Reserved += o.Reserved
	b.Open += o.Open
	b.Left += o.Left
	b.UnderWay += o.UnderWay
	b.Short += o.Short
}

func (b *books) public() Books {
	return Books{
		Loaded: b.loaded, Sold: b.took, Reserved: b.reserved, Open: b.parts, Left: b.left,
		UnderWay: b.gave - b.gotten, Short: b.short,
	}
}

// Audit is what [Stock.Audit] found.
type Audit struct {
	Books    // of all segments together
	Segments []Books
	// Still: nothing was sold, moved or given back while it looked, so that the sum is that of
	// one moment. Otherwise each segment's books are exact, and each of another moment.
	Still bool
}

// Audit looks at all books and proves that they balance, in each segment and in sum: [ErrAudit] where they
// don't, with what was found. First it ends what a crash has left half done: units on their way
// between segments come in, reservations past their deadline go back, and orders over several
// stocks are decided. It may run beside a sale, any number of times.
func (s *Stock) Audit(ctx context.Context) (Audit, error) {
	if ctx == nil {
		return Audit{}, s.about(invalid("the context is nil"), nil)
	}
	if ctx.Err() != nil {
		return Audit{}, s.about(ended(ErrNotDone, ctx), nil)
	}
	var audit Audit
	for try := range auditTries {
		first, second, err := s.twice(ctx, try == 0)
		if err != nil {
			return Audit{}, s.about(err, nil)
		}
		audit = Audit{Segments: make([]Books, len(second)), Still: first.same(second)}
		for i := range second {
			b := second[i].public()
			if off := b.balance(); off != 0 || b.Left < 0 || b.Sold < 0 || b.Reserved < 0 || b.Open < 0 {
				return audit, s.about(fmt.Errorf("%w: segment %d is off by %d: %+v", ErrAudit, i, off, b), nil)
			}
			audit.Segments[i] = b
			audit.add(&b)
		}
		if audit.Still && audit.UnderWay < 0 {
			return audit, s.about(fmt.Errorf("%w: segments have received %d units that none has given", ErrAudit, -audit.UnderWay), nil)
		}
		if audit.Still && audit.UnderWay == 0 {
			return audit, nil
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return audit, s.about(ended(ErrNotDone, ctx), nil)
		}
	}
	return audit, nil
}

// twice settles what is half done, or may be, and looks two times.
func (s *Stock) twice(ctx context.Context, settle bool) (first, second survey, err error) {
	if first, err = s.lookWithin(ctx); err != nil {
		return nil, nil, err
	}
	if settle || first.unsettled() {
		if err = s.settle(); err != nil {
			return nil, nil, err
		}
		if first, err = s.lookWithin(ctx); err != nil {
			return nil, nil, err
		}
	}
	second, err = s.lookWithin(ctx)
	return first, second, err
}

// unsettled says that something may be half done.
func (v survey) unsettled() bool {
	for i := range v {
		if v[i].more {
			return true
		}
	}
	return v.underWay() != 0
}

// same says that nothing has changed from one survey to the other.
func (v survey) same(then survey) bool {
	for i := range v {
		if v[i].rev != then[i].rev || v[i].more || then[i].more {
			return false
		}
	}
	return true
}

// pause waits for about d, or for the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d/2 + rand.N(d))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Remaining is how many units can be sold now: what is left in all segments, and on its way between
// them. Of a running sale it is a figure of the recent past. It costs a script at each
// segment: a page that everybody looks at should keep it for a moment.
func (s *Stock) Remaining(ctx context.Context) (int64, error) {
	if ctx == nil {
		return 0, s.about(invalid("the context is nil"), nil)
	}
	if ctx.Err() != nil {
		return 0, s.about(ended(ErrNotDone, ctx), nil)
	}
	all, err := s.lookWithin(ctx)
	if err != nil {
		return 0, s.about(err, nil)
	}
	return max(all.available()-all.undecided(), 0), nil
}
