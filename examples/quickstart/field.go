package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/go-leasehold/leasehold/examples/internal/meter"
)

const (
	// fieldLimit bounds a command for many counters.
	fieldLimit = 30 * time.Second
	// batch is how many keys one command names.
	batch = 500
)

// field is the Redis that the counters are in.
type field struct {
	redis rueidis.Client
	id    string
	used  []series
}

// series is the counters of one round.
type series struct {
	prefix string
	keys   int
}

func newField(addr string) (*field, error) {
	redis, err := meter.Connect(addr)
	if err != nil {
		return nil, err
	}
	return &field{redis: redis, id: rand.Text()[:8]}, nil
}

// counters returns the prefix of n counters that nobody used so far.
func (f *field) counters(n int) string {
	prefix := fmt.Sprintf("quickstart:%s:%d:", f.id, len(f.used)+1)
	f.used = append(f.used, series{prefix, n})
	return prefix
}

// sum adds up the counters of a round.
func (f *field) sum(prefix string, keys int) (int64, error) {
	var sum int64
	err := inBatches(series{prefix, keys}, func(ctx context.Context, names []string) error {
		values, err := rueidis.MGet(f.redis, ctx, names) // which knows the slots of a cluster
		if err != nil {
			return fmt.Errorf("read the counters: %w", err)
		}
		for _, v := range values {
			n, err := v.AsInt64()
			if err != nil && !rueidis.IsRedisNil(err) {
				return fmt.Errorf("read the counters: %w", err)
			}
			sum += n
		}
		return nil
	})
	return sum, err
}

// close takes the counters away and leaves.
func (f *field) close() {
	for _, s := range f.used {
		err := inBatches(s, func(ctx context.Context, names []string) error {
			for _, err := range rueidis.MDel(f.redis, ctx, names) {
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			break // the server is gone, and the counters with it, or it will not be reached for the next ones either
		}
	}
	f.redis.Close()
}

// inBatches calls do with some of a round's counters at a time.
func inBatches(s series, do func(ctx context.Context, names []string) error) error {
	for from := 0; from < s.keys; from += batch {
		names := make([]string, 0, batch)
		for n := from; n < min(from+batch, s.keys); n++ {
			names = append(names, counter(s.prefix, n))
		}
		ctx, cancel := context.WithTimeout(context.Background(), fieldLimit)
		err := do(ctx, names)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}
