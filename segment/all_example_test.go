package segment_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/segment"
)

// A phone and two cases, or neither. The server is a miniredis here, so that the
// example runs with nothing installed; nothing else is different.
func ExampleDeductAll() {
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
	stockOf := func(name string, units int64) *segment.Stock {
		stock, err := segment.NewStock(locks, name, segment.Config{Segments: 4})
		if err != nil {
			panic(err)
		}
		if err := stock.Load(ctx, units); err != nil {
			panic(err)
		}
		return stock
	}
	phones, cases := stockOf("phones", 10), stockOf("cases", 3)
	buy := func(id string) (segment.AllReceipt, error) {
		return segment.DeductAll(ctx, id, "u-7",
			segment.Line{Stock: phones, Quantity: 1}, segment.Line{Stock: cases, Quantity: 2})
	}

	fmt.Println(buy("o-1"))
	fmt.Println(buy("o-1")) // sent again, it takes nothing more
	_, err = buy("o-2")
	fmt.Println("sold out:", errors.Is(err, segment.ErrSoldOut))
	left, err := phones.Remaining(ctx)
	fmt.Println(left, "phones left", err) // the second order's is back

	err = segment.ReturnAll(ctx, "o-1", "u-7",
		segment.Line{Stock: phones, Quantity: 1}, segment.Line{Stock: cases, Quantity: 2})
	left, _ = cases.Remaining(ctx)
	fmt.Println(left, "cases left", err)
	// Output:
	// {false} <nil>
	// {true} <nil>
	// sold out: true
	// 9 phones left <nil>
	// 3 cases left <nil>
}
