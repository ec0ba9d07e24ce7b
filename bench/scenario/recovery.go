package scenario

import (
	"context"
	"errors"
	"fmt"
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
	scenario.Method = "The time to live is 1 s. A process takes 20 locks, each of which one goroutine of another process waits for, and is killed a twentieth of a second later, " +
		"before anybody renews. Measured is from then until each of the waiters has its lock, and by how much the last of them is later than the end of its lock's time to live."
	scenario.Headline = result.OverTTL
	scenario.Points = func(bool) []harness.Point { return []harness.Point{{Label: "holder killed", X: 1}} }
	scenario.Round = crash
	register(scenario)
	scenario.Headline = result.Latency

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

// contention is keys that one process has and another one waits for.
type contention struct {
	holder  *harness.ChildProcess
	keys    []string
	held    []time.Duration // when each was had, at the latest
	done    chan error
	granted []time.Duration // when the waiters had them; once done
}

// contended has one process hold keys that another one waits for, for some time.
func contended(ctx context.Context, c *harness.Cast, stay time.Duration) (*contention, error) {
	x := &contention{holder: c.Children[len(c.Children)-1], done: make(chan error, 1)}
	waiter := c.Children[0]
	for i := range recoveryKeys {
		x.keys = append(x.keys, c.Key(i))
		if err := x.holder.Call(ctx, "Worker.Hold", x.keys[i], &harness.Nothing{}); err != nil {
			return nil, err
		}
		x.held = append(x.held, harness.Now())
	}
	go func() { x.done <- waiter.Call(ctx, "Recovery.Wait", x.keys, &x.granted) }()
	time.Sleep(stay) // the waiters are there by then
	return x, nil
}

// wait waits until the waiters are through.
func (x *contention) wait() error { return errors.Join(<-x.done, forgotten(x.granted)) }

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
	x, err := contended(ctx, c, recoveryTTL/20)
	if err != nil {
		return nil, err
	}
	killed := harness.Now()
	c.Kill(x.holder)
	if err := x.wait(); err != nil {
		return nil, err
	}
	if _, err := c.Join(ctx); err != nil { // the next round's holder
		return nil, err
	}
	early, late := 0, -recoveryTTL
	var latencies []time.Duration
	for i, granted := range x.granted {
		if granted < killed {
			early++
		}
		late = max(late, granted-x.held[i]-recoveryTTL)
		latencies = append(latencies, granted-killed)
	}
	round := recovered(latencies)
	round[result.Violations] = float64(early) // who had the lock while its holder lived
	round[result.OverTTL] = float64(late) / float64(time.Microsecond)
	return round, nil
}

// deletion is what an operator does to free a key. It fails where there is none, for then nothing would be measured.
const deletion = `return redis.call("DEL", KEYS[1]) == 1 or redis.error_reply("ERR there is no key " .. KEYS[1])`

func deleted(ctx context.Context, c *harness.Cast) (result.Round, error) {
	x, err := contended(ctx, c, recoveryTTL/5)
	if err != nil {
		return nil, err
	}
	var gone []time.Duration
	for _, key := range x.keys {
		gone = append(gone, harness.Now())
		if err := c.Server.Do(ctx, "EVAL", deletion, "1", c.Contender.Prefix+key); err != nil {
			return nil, err
		}
	}
	if err := x.wait(); err != nil {
		return nil, err
	}
	var latencies []time.Duration
	for i, key := range x.keys {
		latencies = append(latencies, x.granted[i]-gone[i])
		// That it was lost is the right answer, and any other one is not what is measured here.
		_ = x.holder.Call(ctx, "Worker.Release", key, &harness.Nothing{})
	}
	return recovered(latencies), nil
}
