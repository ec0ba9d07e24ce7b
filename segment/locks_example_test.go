package segment_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/coordinator/coordinatortest"
	"github.com/go-leasehold/leasehold/segment"
)

// These examples need no server: h.Coordinator is a coordinator in memory. In a
// program it comes from coordinator.New.

// A lock for each user would be as many keys in Redis as there are users, and one
// lock for all is one queue. Sixteen locks let sixteen work at a time, and the
// same user never twice.
func ExampleNewLocks() {
	h := coordinatortest.Start()
	defer h.Close()
	ctx := context.Background()
	carts := segment.NewLocks(h.Coordinator, "cart", 16)

	hold, err := carts.Lock(ctx, "user-7")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("locked:", hold.Key())

	_, err = carts.TryLock(ctx, "user-7")
	fmt.Println("the same user:", errors.Is(err, coordinator.ErrNotAcquired))
	other, err := carts.TryLock(ctx, "user-8")
	fmt.Println("another one:", err)

	fmt.Println(other.Unlock(), hold.Unlock())
	// Output:
	// locked: {cart/9}
	// the same user: true
	// another one: <nil>
	// <nil> <nil>
}

// The lock is held while the function runs, whose context ends when it isn't any
// more.
func ExampleLocks_Do() {
	h := coordinatortest.Start()
	defer h.Close()
	carts := segment.NewLocks(h.Coordinator, "cart", 16)

	err := carts.Do(context.Background(), "user-7", func(ctx context.Context) error {
		fmt.Println("a token to store beside what is written:", coordinator.HoldFrom(ctx).Token() > 0)
		return ctx.Err()
	})
	fmt.Println(err)
	// Output:
	// a token to store beside what is written: true
	// <nil>
}

// Who needs all to stand still locks all.
func ExampleLocks_LockAll() {
	h := coordinatortest.Start()
	defer h.Close()
	ctx := context.Background()
	carts := segment.NewLocks(h.Coordinator, "cart", 4)

	all, err := carts.LockAll(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range carts.Len() {
		info, err := h.Coordinator.Inspect(ctx, carts.Key(i))
		fmt.Println(carts.Key(i), "is held:", len(info.Holders) == 1, err)
	}
	fmt.Println(all.Unlock())
	// Output:
	// {cart/0} is held: true <nil>
	// {cart/1} is held: true <nil>
	// {cart/2} is held: true <nil>
	// {cart/3} is held: true <nil>
	// <nil>
}

// Two numbers of segments would be two locks for the same user: who comes second
// is refused. In Redis that is found between processes, too.
func ExampleNewLocks_segments() {
	h := coordinatortest.Start()
	defer h.Close()
	ctx := context.Background()

	hold, err := segment.NewLocks(h.Coordinator, "cart", 16).Lock(ctx, "user-7")
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = segment.NewLocks(h.Coordinator, "cart", 64).Lock(ctx, "user-7")
	fmt.Println(errors.Is(err, segment.ErrSegments))
	fmt.Println(err)
	fmt.Println(hold.Unlock())
	// Output:
	// true
	// leasehold: other processes use another number of segments: of "cart" they have "16", this process 64
	// <nil>
}

// Index is the same in every process, version and language, so that others can
// route by it, too: requests to the process that mostly has the lease, say.
func ExampleIndex() {
	for _, user := range []string{"user-0", "user-1", "user-2"} {
		fmt.Println(user, segment.Index(user, 16))
	}
	// Output:
	// user-0 1
	// user-1 2
	// user-2 6
}
