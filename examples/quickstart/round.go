package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/go-leasehold/leasehold/examples/internal/meter"
	"github.com/go-leasehold/leasehold/examples/internal/report"
)

// ownCommands is what one increment costs without the lock: a GET and a SET.
const ownCommands = 2

// answerLimit bounds the wait for the workers at a round's end.
const answerLimit = time.Minute

// result is what a round came to.
type result struct {
	name     string
	duration time.Duration
	locks    int64
	counted  int64   // what the counters say
	commands float64 // Redis commands a lock; negative where the server doesn't tell
	scripts  float64 // scripts among them, each a round trip; likewise
	waits    report.Samples
	shares   []float64 // of the locks, by process
}

// exact tells whether no increment was lost, and none counted twice.
func (r result) exact() bool { return r.counted == r.locks }

// play lets the team work on so many keys for a while, and counts.
func play(ctx context.Context, t *team, f *field, s settings, keys int, progress io.Writer) (result, error) {
	r := result{name: "one key"}
	if keys > 1 {
		r.name = report.Thousands(int64(keys)) + " keys"
	}
	fmt.Fprintf(progress, "round %d: %s, for %v\n", len(f.used)+1, r.name, s.duration)
	prefix := f.counters(keys)
	before := meter.Read(f.redis)
	start := time.Now()
	t.Order(order{Prefix: prefix, Keys: keys, Goroutines: s.goroutines})
	words, err := watch(ctx, t, s.duration, r.name, progress)
	if err != nil {
		return r, err
	}
	r.duration = time.Since(start)
	after := meter.Read(f.redis)
	for _, w := range words {
		r.locks += w.Locks
		r.waits.Merge(w.Waits)
	}
	r.shares = make([]float64, len(words))
	for i, w := range words {
		r.shares[i] = float64(w.Locks) / float64(max(r.locks, 1))
	}
	r.commands, r.scripts = meter.Per(r.locks, before, after)
	if r.commands >= 0 {
		r.commands = max(r.commands-ownCommands, 0)
	}
	r.counted, err = f.sum(prefix, keys)
	return r, err
}

// watch shows progress until the round is over, ends it, and returns what the workers say. Workers that answer
// before they are told to stop have failed.
func watch(ctx context.Context, t *team, d time.Duration, name string, progress io.Writer) (words []word, err error) {
	answered := make(chan struct{})
	// An interrupted round is ended and counted like any other, so its end has a limit of its own.
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), d+answerLimit)
	defer cancel()
	go func() {
		defer close(answered)
		words, err = t.Answers(limit)
	}()
	report.Progress{Out: progress, Round: name, Length: d, Unit: "locks"}.Watch(ctx, answered, t.locks)
	select {
	case <-answered:
	default:
		t.Order(order{})
		<-answered
	}
	return words, err
}
