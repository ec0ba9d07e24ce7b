package segment_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/segment"
)

// sell is in README.md, word for word: TestReadmeCode holds the two together.
func sell(ctx context.Context, locks *coordinator.Coordinator) error {
	stock, err := segment.NewStock(locks, "sku:9", segment.Config{Segments: 16, PerUser: 3})
	if err != nil {
		return err
	}
	// Once. Whoever comes second is told that it is loaded.
	if err := stock.Load(ctx, 100_000); err != nil && !errors.Is(err, segment.ErrLoaded) {
		return err
	}
	// One for this user. Sent again, by whichever process, this order takes nothing more.
	order := segment.Order{ID: "o-1", User: "u-7", Quantity: 1}
	if _, err := stock.Deduct(ctx, order); err != nil {
		return err // segment.ErrSoldOut, segment.ErrUserLimit, ...
	}
	// Or first held, for ten minutes, and sold when it is paid. If nothing comes, it goes back by itself.
	order = segment.Order{ID: "o-2", User: "u-7", Quantity: 2}
	reserved, err := stock.Reserve(ctx, order, 10*time.Minute)
	if err != nil {
		return err
	}
	if err := pay(ctx, reserved.Deadline); err != nil {
		return errors.Join(err, reserved.Cancel(ctx))
	}
	if err := reserved.Confirm(ctx); err != nil {
		return err // segment.ErrExpired: it came too late, and the money has to go back
	}
	// The proof, at any time: loaded = sold + reserved + left + under way, in each segment and in sum.
	audit, err := stock.Audit(ctx)
	fmt.Println(audit.Loaded, "loaded,", audit.Sold, "sold,", audit.Left, "left")
	return err
}

// pay stands for a payment, which has to be over by the deadline.
func pay(ctx context.Context, deadline time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	return ctx.Err()
}

// addToCart is in README.md, word for word.
func addToCart(ctx context.Context, carts *segment.Locks, user, article string) error {
	return carts.Do(ctx, user, func(ctx context.Context) error { // the inner ctx ends when the lock is no longer ours
		return store(ctx, user, article, coordinator.HoldFrom(ctx).Token())
	})
}

// store stands for a write that takes its token along.
func store(ctx context.Context, user, article string, token uint64) error {
	fmt.Println(user, "has", article, "- with a token:", token > 0)
	return ctx.Err()
}

// The server is a miniredis here, so that the example runs with nothing
// installed; nothing else is different.
func Example_readme() {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		panic(err)
	}
	defer server.Close()
	ctx := context.Background()
	locks, err := coordinator.New(rueidis.ClientOption{InitAddress: []string{server.Addr()}})
	if err != nil {
		panic(err)
	}
	defer func() { _ = locks.Close(ctx) }() // the server goes with it

	fmt.Println(sell(ctx, locks))
	fmt.Println(addToCart(ctx, segment.NewLocks(locks, "cart", 64), "u-7", "sku:9"))
	// Output:
	// 100000 loaded, 3 sold, 99997 left
	// <nil>
	// u-7 has sku:9 - with a token: true
	// <nil>
}

// TestReadmeCode: what the README shows of this package runs above.
func TestReadmeCode(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("readme_example_test.go")
	require.NoError(t, err)
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	for _, name := range []string{"sell", "addToCart"} {
		_, code, found := strings.Cut(string(source), "\nfunc "+name+"(")
		require.True(t, found, name)
		code, _, found = strings.Cut(code, "\n}\n")
		require.True(t, found, name)
		require.Contains(t, string(readme), "func "+name+"("+code+"\n}\n", "README.md has not the code of %s, word for word", name)
	}
}
