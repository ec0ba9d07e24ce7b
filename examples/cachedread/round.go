package main

import (
	"context"
	"crypto/rand"
	"io"
	"time"

	"github.com/redis/rueidis"

	"github.com/go-leasehold/leasehold/examples/internal/meter"
	"github.com/go-leasehold/leasehold/examples/internal/report"
)

// answerLimit bounds the wait for what is under way at a round's end.
const answerLimit = time.Minute

// result is what a round came to.
type result struct {
	counts
	name     string
	locked   bool
	duration time.Duration
	reads    int64
	writes   int64
	stale    int64
	queries  int64   // of the database
	overlaps int64   // of these, beside another one for the same product
	commands float64 // Redis commands a read; negative where the server doesn't tell
	scripts  float64 // scripts among them, each a round trip; likewise
	waits    report.Samples
}

func roundName(locked bool) string {
	if locked {
		return "rwlock"
	}
	return "no lock"
}

// perExpiry is how often a product was rebuilt for each time that it was gone. A rebuild is one too many if the
// product was in the cache again when it was done.
func (r result) perExpiry() float64 {
	if r.Rebuilds == r.Surplus {
		return 0
	}
	return float64(r.Rebuilds) / float64(r.Rebuilds-r.Surplus)
}

// play has the servers serve for a while, and counts.
func play(ctx context.Context, t *team, redis rueidis.Client, s settings, locked bool, progress io.Writer) (result, error) {
	r := result{name: roundName(locked), locked: locked}
	db, err := startDatabase(s.keys, s.delay)
	if err != nil {
		return r, err
	}
	defer db.close()
	// An interrupted round is ended and counted like any other, so what it takes has a limit of its own.
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.duration+answerLimit)
	defer cancel()
	_, err = t.tell(limit, order{
		Locked: locked, Prefix: "cachedread:" + rand.Text()[:8] + ":", Database: db.url, Products: s.keys, Expiry: s.expiry,
	})
	if err != nil {
		return r, err
	}
	l := newLoad(t.urls, s)
	before := meter.Read(redis)
	start := time.Now()
	r.waits, err = watch(ctx, limit, l, s, r.name, progress)
	if err != nil {
		return r, err
	}
	r.duration = time.Since(start)
	after := meter.Read(redis)
	words, err := t.tell(limit, order{})
	if err != nil {
		return r, err
	}
	for _, w := range words {
		r.add(w.Counts)
	}
	r.reads, r.writes, r.stale = l.reads.Load(), l.writ.Load(), l.stale.Load()
	r.queries, r.overlaps = db.queries.Load(), db.overlaps.Load()
	r.commands, r.scripts = meter.Per(r.reads, before, after)
	return r, nil
}

// watch lets the clients ask until the round is over, and shows progress meanwhile. ctx ends the round early, limit
// what is still under way then.
func watch(ctx, limit context.Context, l *load, s settings, name string, progress io.Writer) (waits report.Samples, err error) {
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		waits, err = l.run(limit, s.clients, stop)
	}()
	report.Progress{Out: progress, Round: name, Length: s.duration, Unit: "reads"}.Watch(ctx, ended, l.reads.Load)
	close(stop)
	<-ended // earlier, with an error
	return waits, err
}
