package scenario

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-leasehold/leasehold/bench/contender"
	"github.com/go-leasehold/leasehold/bench/harness"
	"github.com/go-leasehold/leasehold/bench/result"
)

const (
	recoveryTTL  = time.Second
	recoveryKeys = 20 // that each round loses at the same moment
)

func init() {
	serve("Recovery", func(w *harness.Worker) any { return &Recovery{worker: w} })
	scenario := harness.Scenario{
		Axis:      "lost",
		Headline:  result.Latency,
		Processes: func(harness.Point) int { return 2 },
		TTL:       recoveryTTL,
		Rounds:    5, QuickRounds: 1,
		Enters: func(info contender.Info, _ harness.Point) bool { return locks(info) },
	}
	scenario.Name, scenario.Title = "crash", "The holder is killed"
	scenario.Question = "When does a waiting process get the lock of a holder that was killed (SIGKILL)?"
	scenario.Method = "The time to live is 1 s. A process holds 20 locks for less than that, each of which one goroutine of another process waits for, " +
		"and is killed. Measured is from then until each of the waiters has its lock."
	scenario.Points = func(bool) []harness.Point { return []harness.Point{{Label: "holder killed", X: 1}} }
	scenario.Round = crash
	register(scenario)

	scenario.Name, scenario.Title = "deleted", "The lock is deleted in Redis"
	scenario.Question = "When does a waiting process get a lock that an operator has deleted under its holder?"
	scenario.Method = "As before, but the holder lives, and the locks are deleted in Redis, one after the other. Measured is from sending DEL until the waiter has the lock."
	scenario.Points = func(bool) []harness.Point { return []harness.Point{{Label: "lock deleted", X: 1}} }
	scenario.Round = deleted
	register(scenario)
}

// Recovery is the part of a process that waits.
type Recovery struct{ worker *harness.Worker }

// waitLimit is how long a waiter waits. Who has no lock by then has been forgotten.
const waitLimit = 10 * recoveryTTL

// Wait has a goroutine wait for each key, and tells when each of them had it, by the clock that all processes share; zero
// for one that did not get it.
func (r *Recovery) Wait(keys []string, granted *[]time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	at, errs := make([]time.Duration, len(keys)), make([]error, len(keys))
	var wg sync.WaitGroup
	for i, key := range keys {
		wg.Go(func() {
			hold, err := r.worker.Process().Mutex(key).Lock(ctx)
			if err != nil && ctx.Err() != nil {
				return
			}
			if err == nil {
				at[i] = harness.Now()
				err = hold.Unlock()
			}
			errs[i] = err
		})
	}
	wg.Wait()
	*granted = at
	return errors.Join(errs...)
}

// contended has one process hold keys that another one waits for. It returns the holder, and what brings the times at which
// the waiters had them.
func contended(ctx context.Context, c *harness.Cast) (holder *harness.ChildProcess, keys []string, wait func() ([]time.Duration, error), err error) {
	holder, waiter := c.Children[len(c.Children)-1], c.Children[0]
	for i := range recoveryKeys {
		keys = append(keys, c.Key(i))
		if err := holder.Call(ctx, "Worker.Hold", keys[i], &harness.Nothing{}); err != nil {
			return nil, nil, nil, err
		}
	}
	var granted []time.Duration
	done := make(chan error, 1)
	go func() { done <- waiter.Call(ctx, "Recovery.Wait", keys, &granted) }()
	// The waiters are there by then, and the holder is at another moment of its renewals each time.
	time.Sleep(recoveryTTL/5 + rand.N(recoveryTTL/2))
	return holder, keys, func() ([]time.Duration, error) { err := <-done; return granted, errors.Join(err, forgotten(granted)) }, nil
}

// forgotten tells who did not get the lock.
func forgotten(granted []time.Duration) error {
	n := 0
	for _, at := range granted {
		if at == 0 {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d waiters did not get the lock within %v", n, len(granted), waitLimit)
}

func crash(ctx context.Context, c *harness.Cast) (result.Round, error) {
	holder, _, wait, err := contended(ctx, c)
	if err != nil {
		return nil, err
	}
	killed := harness.Now()
	c.Kill(holder)
	granted, err := wait()
	if err != nil {
		return nil, err
	}
	if _, err := c.Join(ctx); err != nil { // the next round's holder
		return nil, err
	}
	early := 0
	for i := range granted {
		granted[i] -= killed
		if granted[i] < 0 {
			early++
		}
	}
	round := recovered(granted)
	round[result.Violations] = float64(early) // who had the lock while its holder lived
	round[result.OverTTL] = round[result.LatencyMax] - float64(recoveryTTL/time.Microsecond)
	return round, nil
}

// deletion is what an operator does to free a key. It fails where there is none, for then nothing would be measured.
const deletion = `return redis.call("DEL", KEYS[1]) == 1 or redis.error_reply("ERR there is no key " .. KEYS[1])`

func deleted(ctx context.Context, c *harness.Cast) (result.Round, error) {
	holder, keys, wait, err := contended(ctx, c)
	if err != nil {
		return nil, err
	}
	var gone []time.Duration
	for _, key := range keys {
		gone = append(gone, harness.Now())
		if err := c.Server.Do(ctx, "EVAL", deletion, "1", c.Contender.Prefix+key); err != nil {
			return nil, err
		}
	}
	granted, err := wait()
	if err != nil {
		return nil, err
	}
	for i, key := range keys {
		granted[i] -= gone[i]
		// That it was lost is the right answer, and any other one is not what is measured here.
		_ = holder.Call(ctx, "Worker.Release", key, &harness.Nothing{})
	}
	return recovered(granted), nil
}
