package segment_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/segment"
)

// The server of these examples is a miniredis, so that they run with nothing installed; it has no
// client-side caching. Nothing else is different.
func connect(ctx context.Context) (*coordinator.Coordinator, func()) {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		panic(err)
	}
	c, err := coordinator.New(rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true},
		coordinator.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		panic(err)
	}
	return c, func() {
		_ = c.Close(ctx) // the server goes away with it
		server.Close()
	}
}

// An order that is sent again, after a lost answer or by another process, takes nothing more.
func ExampleStock_Deduct() {
	ctx := context.Background()
	c, end := connect(ctx)
	defer end()

	stock, err := segment.NewStock(c, "sku:9", segment.Config{Segments: 4, PerUser: 3})
	if err != nil {
		fmt.Println(err)
		return
	}
	// Every process may load when it starts: one of them does.
	if err := stock.Load(ctx, 5); err != nil && !errors.Is(err, segment.ErrLoaded) {
		fmt.Println(err)
		return
	}

	order := segment.Order{ID: "o-1", User: "ann", Quantity: 3}
	for range 2 {
		r, err := stock.Deduct(ctx, order)
		fmt.Println("ann:", r.Quantity, "units, sent before:", r.Repeated, err)
	}
	_, err = stock.Deduct(ctx, segment.Order{ID: "o-2", User: "ann", Quantity: 1})
	fmt.Println("ann once more:", errors.Is(err, segment.ErrUserLimit))
	_, err = stock.Deduct(ctx, segment.Order{ID: "o-3", User: "bob", Quantity: 3})
	fmt.Println("bob, three:", errors.Is(err, segment.ErrSoldOut))
	_, err = stock.Deduct(ctx, segment.Order{ID: "o-4", User: "bob", Quantity: 2})
	fmt.Println("bob, two:", err)

	audit, err := stock.Audit(ctx)
	fmt.Println(audit.Loaded, "loaded,", audit.Sold, "sold,", audit.Left, "left,", err)
	// Output:
	// ann: 3 units, sent before: false <nil>
	// ann: 3 units, sent before: true <nil>
	// ann once more: true
	// bob, three: true
	// bob, two: <nil>
	// 5 loaded, 5 sold, 0 left, <nil>
}

// Units are held while a customer pays. What is not confirmed in time goes back by
// itself.
func ExampleStock_Reserve() {
	ctx := context.Background()
	c, end := connect(ctx)
	defer end()

	seats, err := segment.NewStock(c, "concert", segment.Config{Segments: 4})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(seats.Load(ctx, 10))

	reservation, err := seats.Reserve(ctx, segment.Order{ID: "o-1", User: "ann", Quantity: 2}, 10*time.Minute)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("time to pay:", time.Until(reservation.Deadline) > 9*time.Minute)
	fmt.Println("paid:", reservation.Confirm(ctx))

	// Another process confirms, or cancels, with the order's user and ID alone.
	_, _ = seats.Reserve(ctx, segment.Order{ID: "o-2", User: "bob", Quantity: 4}, 10*time.Minute)
	fmt.Println("cancelled:", seats.Cancel(ctx, segment.Order{ID: "o-2", User: "bob"}))
	_, err = seats.Confirm(ctx, segment.Order{ID: "o-2", User: "bob"})
	fmt.Println("and then paid:", errors.Is(err, segment.ErrReturned))

	left, err := seats.Remaining(ctx)
	fmt.Println(left, err)
	// Output:
	// <nil>
	// time to pay: true
	// paid: <nil>
	// cancelled: <nil>
	// and then paid: true
	// 8 <nil>
}

// Work under a segment's lock: the units are sold if it succeeds, and back if it
// fails. The token goes into whatever is written.
func ExampleStock_WithSegment() {
	ctx := context.Background()
	c, end := connect(ctx)
	defer end()

	stock, err := segment.NewStock(c, "sku:9", segment.Config{Segments: 4})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(stock.Load(ctx, 10))

	err = stock.WithSegment(ctx, "ann", 3, func(_ context.Context, seg segment.Held) error {
		fmt.Println("shelf", seg.Index, "has", seg.Quantity, "units less, with a token:", seg.Token > 0)
		return nil
	})
	fmt.Println(err)
	err = stock.WithSegment(ctx, "bob", 5, func(context.Context, segment.Held) error {
		return errors.New("the shelf is locked")
	})
	fmt.Println(err)

	audit, err := stock.Audit(ctx)
	fmt.Println(audit.Sold, "sold,", audit.Left, "left,", err)
	// Output:
	// <nil>
	// shelf 1 has 3 units less, with a token: true
	// <nil>
	// the shelf is locked
	// 3 sold, 7 left, <nil>
}
