package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/examples/internal/report"
)

// tokenRetention is short, so that a real server is soon as it was before.
const tokenRetention = time.Minute

// incrementer is one process's part of the work: one coordinator for all its goroutines.
type incrementer struct {
	locks *coordinator.Coordinator
	redis rueidis.Client
	done  atomic.Int64
}

func newIncrementer(addr string) (*incrementer, error) {
	option := rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true}
	redis, err := rueidis.NewClient(option)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", addr, err)
	}
	quiet := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	locks, err := coordinator.New(rueidis.ClientOption{InitAddress: []string{addr}},
		coordinator.WithTokenRetention(tokenRetention),
		coordinator.WithLogger(quiet)) // that miniredis can do less needs no line for each worker
	if err != nil {
		redis.Close()
		return nil, err
	}
	return &incrementer{locks: locks, redis: redis}, nil
}

// increment adds one to a counter, in the way that goes wrong without a lock, and returns how long it waited for it.
func (i *incrementer) increment(ctx context.Context, key string) (wait time.Duration, err error) {
	start := time.Now()
	hold, err := i.locks.Mutex(key).Lock(ctx)
	if err != nil {
		return 0, err
	}
	wait = time.Since(start)
	defer func() {
		if e := hold.Unlock(); err == nil {
			err = e
		}
	}()

	ctx = hold.Context() // ends the moment the lock is no longer ours
	n, err := i.redis.Do(ctx, i.redis.B().Get().Key(key).Build()).AsInt64()
	if err != nil && !rueidis.IsRedisNil(err) {
		return wait, fmt.Errorf("read %s: %w", key, err)
	}
	if err := i.redis.Do(ctx, i.redis.B().Set().Key(key).Value(strconv.FormatInt(n+1, 10)).Build()).Error(); err != nil {
		return wait, fmt.Errorf("write %s: %w", key, err)
	}
	return wait, nil
}

// run lets many goroutines increment counters drawn at random until stop is closed, ctx ends, or one of them fails.
// When it is told to stop, whoever waits for a lock still gets it, and counts.
func (i *incrementer) run(ctx context.Context, o order, stop <-chan struct{}) (report.Samples, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	waits := make([]report.Samples, o.Goroutines)
	var wg sync.WaitGroup
	for g := range o.Goroutines {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-ctx.Done():
					return
				default:
				}
				wait, err := i.increment(ctx, counter(o.Prefix, rand.IntN(o.Keys)))
				if err != nil {
					cancel(err) // the first one is the one to tell
					return
				}
				i.done.Add(1)
				waits[g].Add(wait)
			}
		})
	}
	wg.Wait()
	var all report.Samples
	for _, w := range waits {
		all.Merge(w)
	}
	return all, context.Cause(ctx)
}

// counter names one of a round's counters.
func counter(prefix string, n int) string { return prefix + strconv.Itoa(n) }

// close hands every lease over and leaves.
func (i *incrementer) close(ctx context.Context) error {
	err := i.locks.Close(ctx)
	i.redis.Close()
	return err
}
