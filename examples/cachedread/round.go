package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

const (
	// answerLimit bounds the wait for what is under way at a round's end.
	answerLimit = time.Minute
	// showEvery is how often the progress is shown.
	showEvery = 200 * time.Millisecond
)

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
	waits    samples
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
func play(ctx context.Context, t *team, m *meter, s settings, locked bool, progress io.Writer) (result, error) {
	r := result{name: roundName(locked), locked: locked, commands: -1, scripts: -1}
	db, err := startDatabase(s.keys, s.delay)
	if err != nil {
		return r, err
	}
	defer db.close()
	// An interrupted round is ended and counted like any other, so what it takes has a limit of its own.
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.duration+answerLimit)
	defer cancel()
	_, err = t.order(limit, order{
		Locked: locked, Prefix: "cachedread:" + rand.Text()[:8] + ":", Database: db.url, Products: s.keys, Expiry: s.expiry,
	})
	if err != nil {
		return r, err
	}
	l := newLoad(t.urls(), s)
	before := m.stats()
	start := time.Now()
	r.waits, err = watch(ctx, limit, l, s, r.name, progress)
	if err != nil {
		return r, err
	}
	r.duration = time.Since(start)
	after := m.stats()
	words, err := t.order(limit, order{})
	if err != nil {
		return r, err
	}
	for _, w := range words {
		r.add(w.Counts)
	}
	r.reads, r.writes, r.stale = l.reads.Load(), l.writ.Load(), l.stale.Load()
	r.queries, r.overlaps = db.queries.Load(), db.overlaps.Load()
	if r.reads > 0 && before.commands >= 0 && after.commands >= 0 {
		r.commands = float64(after.commands-before.commands) / float64(r.reads)
	}
	if r.reads > 0 && before.scripts >= 0 && after.scripts >= 0 {
		r.scripts = float64(after.scripts-before.scripts) / float64(r.reads)
	}
	return r, nil
}

// watch lets the clients ask until the round is over, and shows progress meanwhile. ctx ends the round early, limit
// what is still under way then.
func watch(ctx, limit context.Context, l *load, s settings, name string, progress io.Writer) (samples, error) {
	stop, ended := make(chan struct{}), make(chan struct{})
	var waits samples
	var err error
	go func() {
		defer close(ended)
		waits, err = l.run(limit, s.clients, stop)
	}()
	end := time.NewTimer(s.duration)
	defer end.Stop()
	bar := newBar(progress, name, s.duration)
	defer bar.clear()
	for running := true; running; {
		select {
		case <-bar.ticks():
			bar.show(l.reads.Load())
		case <-ended: // with an error
			running = false
		case <-end.C:
			running = false
		case <-ctx.Done():
			running = false
		}
	}
	close(stop)
	<-ended
	return waits, err
}

// bar is the line that shows how far a round is; on anything but a terminal there is none.
type bar struct {
	out    io.Writer
	name   string
	length time.Duration
	start  time.Time
	ticker *time.Ticker // nil: not shown
}

func newBar(out io.Writer, name string, length time.Duration) *bar {
	b := &bar{out: out, name: name, length: length, start: time.Now()}
	if file, ok := out.(*os.File); ok {
		if info, err := file.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			b.ticker = time.NewTicker(showEvery)
		}
	}
	return b
}

func (b *bar) ticks() <-chan time.Time {
	if b.ticker == nil {
		return nil
	}
	return b.ticker.C
}

func (b *bar) show(reads int64) {
	const width = 24
	done := min(int(time.Since(b.start)*width/b.length), width)
	fmt.Fprintf(b.out, "\r%-12s [%s%s] %s reads ", b.name, strings.Repeat("#", done), strings.Repeat(".", width-done), thousands(reads))
}

func (b *bar) clear() {
	if b.ticker != nil {
		b.ticker.Stop()
		fmt.Fprintf(b.out, "\r%79s\r", "")
	}
}
