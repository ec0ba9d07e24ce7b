package segment

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/redis/rueidis"

	"github.com/go-leasehold/leasehold/coordinator"
)

// Load sets the stock up with a number of units (0 is one, too), spread evenly, once: where it is loaded
// already the error is [ErrLoaded] ([ErrEpoch] where that was with other settings), so every process of a fleet may call it when it
// starts. Where one has crashed half way, Load with the same units ends it. It may
// be sent again after an error. ctx is looked at between steps.
//
// A stock whose server has lost its data looks like one that was never loaded: where that can be (no
// persistence), load what the database says is left, or by hand.
func (s *Stock) Load(ctx context.Context, units int64) error {
	return s.about(s.load(ctx, units, false), nil)
}

// Reset sets the stock up anew, whatever it was: with other units, and, in processes that have another
// Config, other settings. Orders, reservations, and what users had are forgotten; calls that
// are under way get [ErrEpoch], or were before it. It is for a new sale, not for a running one: an order that is
// sent again after it takes again.
func (s *Stock) Reset(ctx context.Context, units int64) error {
	return s.about(s.load(ctx, units, true), nil)
}

func (s *Stock) load(ctx context.Context, units int64, reset bool) error {
	if ctx == nil {
		return invalid("the context is nil")
	}
	if ctx.Err() != nil {
		return ended(ErrNotDone, ctx)
	}
	if units < 0 || units > MaxUnits {
		return invalid("a stock of %d units is not within 0 and %d", units, int64(MaxUnits))
	}
	if err := s.rights(); err != nil {
		return err
	}
	defer s.sold.forget()
	by := rand.Text() // names this call
	epoch, most, err := s.begin(by, units, reset)
	if err != nil || epoch == "" {
		return err
	}
	set := epoch + ":" + s.conf.terms()
	if err := s.loadSegments(ctx, epoch, set, units); err != nil {
		return err
	}
	if err := s.dropSegments(ctx, epoch, len(s.homes), most); err != nil {
		return err
	}
	if a := s.run(call{script: loadEndScript, keys: []string{s.meta}, args: []string{set, by}})[0]; a.err != nil {
		return a.err
	}
	s.epoch.Store(&set)
	return nil
}

// begin begins a new epoch, or finds the one that is to be gone on with; empty: it is loaded, by this very call.
func (s *Stock) begin(by string, units int64, reset bool) (epoch string, most int, err error) {
	for range tries {
		flag, last := "0", ""
		if reset {
			m, err := s.readMeta()
			if err != nil {
				return "", 0, err
			}
			flag, last = "1", m.last
		}
		a := s.run(call{
			script: loadBeginScript, keys: []string{s.meta}, args: []string{s.conf.terms(), number(units), by, flag, last},
		})[0]
		if reset && errors.Is(a.err, ErrEpoch) {
			err = a.err
			continue // somebody was quicker
		}
		if a.err != nil {
			return "", 0, a.err
		}
		epoch, most, ok := parseBegun(&a.message)
		if !ok {
			return "", 0, fmt.Errorf("%w: load: %w", coordinator.ErrUnavailable, errUnreadable)
		}
		return epoch, most, nil
	}
	return "", 0, err
}

// parseBegun reads an epoch and the largest number of segments that there may be, or nothing.
func parseBegun(m *rueidis.RedisMessage) (epoch string, most int, ok bool) {
	values, err := m.ToArray()
	if err == nil && len(values) == 0 {
		return "", 0, true
	}
	if err != nil || len(values) != 2 {
		return "", 0, false
	}
	n, ok := count(&values[0])
	segments, also := count(&values[1])
	if !ok || !also || segments > MaxSegments {
		return "", 0, false
	}
	return number(n), int(segments), true
}

// share is how many of units segment i of n gets.
func share(units int64, i, n int) int64 {
	part := units / int64(n)
	if int64(i) < units%int64(n) {
		part++
	}
	return part
}

// loadSegments gives each segment its share.
func (s *Stock) loadSegments(ctx context.Context, epoch, set string, units int64) error {
	type target struct {
		home           *home
		bucket, stored int64
	}
	todo := make([]target, len(s.homes))
	for i, h := range s.homes {
		todo[i].home = h
	}
	for range tries {
		if ctx.Err() != nil {
			return ended(ErrUncertain, ctx)
		}
		calls := make([]call, len(todo))
		for i, t := range todo {
			k := &t.home.keys
			calls[i] = call{
				script: loadScript,
				keys: []string{
					k.books, k.orders(t.bucket), k.orders(t.bucket - 1), k.open, k.due, k.users,
					k.orders(t.stored), k.orders(t.stored - 1), k.parts, k.raised,
				},
				args: []string{
					set, epoch, s.remember(), number(share(units, t.home.index, len(s.homes))),
					number(t.bucket), number(t.stored),
				},
			}
		}
		var again []target
		for i, a := range s.run(calls...) {
			if a.err != nil {
				return a.err
			}
			values, _ := a.message.ToArray()
			stored, bucket, other := another(values)
			switch {
			case other:
				again = append(again, target{todo[i].home, bucket, stored})
			case len(values) == 1 && word(values) == "set":
				todo[i].home.bucket.Store(todo[i].bucket)
			default:
				return fmt.Errorf("%w: load: %w", coordinator.ErrUnavailable, errUnreadable)
			}
		}
		if len(again) == 0 {
			return nil
		}
		todo = again
	}
	return fmt.Errorf("%w: load: the server names another bucket each time", coordinator.ErrUnavailable)
}

// dropSegments drops segments from one index to another, of an epoch that is at most the one given.
func (s *Stock) dropSegments(ctx context.Context, epoch string, from, to int) error {
	for i := from; i < to; i++ {
		if ctx.Err() != nil {
			return ended(ErrUncertain, ctx)
		}
		k := newKeys(s.settings.KeyPrefix, s.name, i)
		bucket, err := s.bucketOf(k.books)
		if err != nil {
			return err
		}
		a := s.run(call{
			script: dropScript,
			keys:   []string{k.books, k.orders(bucket), k.orders(bucket - 1), k.open, k.due, k.users, k.raised, k.parts},
			args:   []string{epoch},
		})[0]
		if a.err != nil {
			return a.err
		}
	}
	return nil
}

// bucketOf reads which bucket a segment has stored.
func (s *Stock) bucketOf(books string) (int64, error) {
	client, err := s.c.Plain()
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	n, err := client.Do(ctx, client.B().Hget().Key(books).Field("bucket").Build()).AsInt64()
	if err != nil && !rueidis.IsRedisNil(err) {
		return 0, explain(err)
	}
	return n, nil
}

// Drop removes the stock from the server, with everything that is known of it. It must not be in use: calls
// under way get [ErrNotLoaded] or [ErrEpoch]. It may be sent again after an error.
func (s *Stock) Drop(ctx context.Context) error {
	if ctx == nil {
		return s.about(invalid("the context is nil"), nil)
	}
	if ctx.Err() != nil {
		return s.about(ended(ErrNotDone, ctx), nil)
	}
	defer s.sold.forget()
	defer s.epoch.Store(nil)
	m, err := s.readMeta()
	if err != nil {
		return s.about(err, nil)
	}
	newest := "0"
	for _, set := range []string{m.set, m.loading} {
		if epoch, _, ok := cut(set); ok {
			newest = epoch
		}
	}
	n := max(len(s.homes), m.most)
	// Last, what knows of all the others.
	if err := s.dropSegments(ctx, newest, 0, n); err != nil {
		return s.about(err, nil)
	}
	a := s.run(call{script: forgetScript, keys: []string{s.meta}, args: []string{m.set, m.loading}})[0]
	return s.about(a.err, nil)
}
