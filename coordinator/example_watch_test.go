package coordinator_test

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/redis/rueidis"

	"github.com/go-leasehold/leasehold/coordinator"
)

// cached returns a function that reads a key from memory, until Redis says that
// somebody has changed it.
func cached(locks *coordinator.Coordinator, key string) (get func(context.Context) (string, error), stop func(), err error) {
	redis, err := locks.Plain() // it makes the commands
	if err != nil {
		return nil, nil, err
	}
	var known atomic.Pointer[string]
	var changes atomic.Int64
	stop, err = locks.Watch(key, func() { // it must not block
		changes.Add(1)
		known.Store(nil)
	})
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context) (string, error) {
		if value := known.Load(); value != nil {
			return *value, nil
		}
		before := changes.Load()
		results, err := locks.Tracked(ctx, redis.B().Get().Key(key).Build())
		if err != nil {
			return "", err
		}
		value, err := results[0].ToString()
		if err != nil {
			return "", err
		}
		known.Store(&value)
		if changes.Load() != before { // we were told before we had stored it
			known.CompareAndSwap(&value, nil)
		}
		return value, nil
	}, stop, nil
}

// Data beside the locks, read from memory until Redis says that it was changed.
// The function cached is the whole of it.
func ExampleCoordinator_Watch() {
	ctx := context.Background()
	locks, err := coordinator.New(rueidis.ClientOption{InitAddress: []string{"127.0.0.1:6379"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = locks.Close(ctx) }() // nothing is held
	price, stop, err := cached(locks, "price:42")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()
	fmt.Println(price(ctx))
}
