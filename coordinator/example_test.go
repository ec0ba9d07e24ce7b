package coordinator_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/go-leasehold/leasehold/coordinator"
)

// run is the code of the README, word for word: TestReadme holds the two
// together.
func run(ctx context.Context, redis string) (err error) {
	locks, err := coordinator.New(rueidis.ClientOption{InitAddress: []string{redis}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locks.Close(ctx)) }() // hands every lease over

	order := locks.Mutex("order:42") // a handle: costs nothing, holds nothing

	// Do locks, calls, unlocks. The inner ctx ends the moment the lock is no longer ours.
	err = order.Do(ctx, func(ctx context.Context) error {
		return pack(ctx)
	})
	if err != nil {
		return err
	}
	// The same by hand. The token goes along with the write, so that a late one can be refused.
	hold, err := order.Lock(ctx)
	if err != nil {
		return err
	}
	return errors.Join(ship(hold.Context(), hold.Token()), hold.Unlock())
}

// pack stands for work that stops when its context ends.
func pack(ctx context.Context) error {
	fmt.Println("packed")
	return ctx.Err()
}

// newest is what the store of orders has seen of tokens. In SQL it is a column.
var newest uint64

// ship stands for a write to a store that refuses a token lower than one it has seen.
func ship(ctx context.Context, token uint64) error {
	if token < newest {
		return errors.New("refused: somebody has written with a newer lock")
	}
	newest = token
	fmt.Println("shipped")
	return ctx.Err()
}

// The server is a miniredis here, so that the example runs with nothing
// installed; nothing else is different.
func Example() {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		panic(err)
	}
	defer server.Close()

	fmt.Println(run(context.Background(), server.Addr()))
	// Output:
	// packed
	// shipped
	// <nil>
}
