package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/coordinator/coordinatortest"
	"github.com/go-leasehold/leasehold/lease/memlease"
)

// These examples need no server: h.Coordinator is a coordinator in memory, and
// h plays the world around it. In a program it comes from New.

func ExampleMutex_TryLock() {
	h := coordinatortest.Start()
	defer h.Close()
	ctx := context.Background()
	nightly := h.Coordinator.Mutex("job:nightly")

	release := h.HoldElsewhere("job:nightly", 0) // another process runs it
	_, err := nightly.TryLock(ctx)
	switch {
	case errors.Is(err, coordinator.ErrNotAcquired):
		fmt.Println("it runs elsewhere")
	case err != nil:
		fmt.Println("nobody knows:", err)
	}

	release()
	hold, err := nightly.TryLock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("it runs here")
	fmt.Println(hold.Unlock())
	// Output:
	// it runs elsewhere
	// it runs here
	// <nil>
}

func ExampleMutex_TryLockFor() {
	h := coordinatortest.Start()
	defer h.Close()
	release := h.HoldElsewhere("cart:7", 0)
	defer release()

	// The limit is on the wait alone: it is no part of the hold's context.
	_, err := h.Coordinator.Mutex("cart:7").TryLockFor(context.Background(), 10*time.Millisecond)
	fmt.Println(errors.Is(err, coordinator.ErrNotAcquired))
	// Output: true
}

// Do unlocks whatever happens: the function returns, panics, or its context
// ends.
func ExampleMutex_Do() {
	h := coordinatortest.Start()
	defer h.Close()

	err := h.Coordinator.Mutex("report").Do(context.Background(), func(ctx context.Context) error {
		fmt.Println("at work:", ctx.Err() == nil)
		return errors.New("out of paper")
	})
	fmt.Println(err)
	// Output:
	// at work: true
	// out of paper
}

// The keys are taken in their sorted order whatever order they are named in, so
// that two calls can't wait for each other.
func ExampleCoordinator_LockAll() {
	h := coordinatortest.Start()
	defer h.Close()

	holds, err := h.Coordinator.LockAll(context.Background(), "account:9", "account:4", "account:9")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, hold := range holds.All() {
		fmt.Println(hold.Key())
	}
	// The context of the work ends when any of them is lost.
	fmt.Println(holds.Context().Err())
	fmt.Println(holds.Unlock())
	// Output:
	// account:4
	// account:9
	// <nil>
	// <nil>
}

// Whoever has a hold may lock the key again with the hold's context.
func ExampleHold_Context_reentry() {
	h := coordinatortest.Start()
	defer h.Close()
	ledger := h.Coordinator.Mutex("ledger")

	book := func(ctx context.Context) error { // locks by itself, whoever calls
		inner, err := ledger.Lock(ctx)
		if err != nil {
			return err
		}
		fmt.Println("inside", inner.Count(), "times")
		return inner.Unlock()
	}

	outer, err := ledger.Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(book(outer.Context()))
	fmt.Println("inside", outer.Count(), "time")
	fmt.Println(outer.Unlock())
	// Output:
	// inside 2 times
	// <nil>
	// inside 1 time
	// <nil>
}

// WithOwner gives a whole request one identity, so that its parts need not hand
// each other the contexts of their holds.
func ExampleWithOwner() {
	h := coordinatortest.Start()
	defer h.Close()
	ledger := h.Coordinator.Mutex("ledger")

	request := coordinator.WithOwner(context.Background())
	first, err := ledger.Lock(request)
	fmt.Println(err)
	second, err := ledger.Lock(request)
	fmt.Println(err, first.Token() == second.Token())

	_, err = ledger.TryLock(context.Background()) // another owner
	fmt.Println(errors.Is(err, coordinator.ErrNotAcquired))

	fmt.Println(second.Unlock(), first.Unlock())
	// Output:
	// <nil>
	// <nil> true
	// true
	// <nil> <nil>
}

// MaxHold bounds work that might hang: the lock goes on to the next in line.
func ExampleMaxHold() {
	h := coordinatortest.Start()
	defer h.Close()
	upload := h.Coordinator.Mutex("upload", coordinator.MaxHold(100*time.Millisecond))

	hold, err := upload.Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(hold.Extend(200 * time.Millisecond)) // progress: 200 ms from now

	<-hold.Context().Done() // and then none
	fmt.Println(context.Cause(hold.Context()))
	fmt.Println(errors.Is(hold.Unlock(), coordinator.ErrHoldExpired))
	// Output:
	// <nil>
	// leasehold: hold expired
	// true
}

// EndWith frees the lock when the request is over that it was taken for, even
// if the work forgets to unlock.
func ExampleEndWith() {
	h := coordinatortest.Start()
	defer h.Close()
	request, hangUp := context.WithCancel(context.Background())
	defer hangUp()

	seat := h.Coordinator.Mutex("seat:12A", coordinator.EndWith(request))
	hold, err := seat.Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	hangUp()
	<-hold.Context().Done()
	fmt.Println(errors.Is(hold.Err(), coordinator.ErrHoldExpired), errors.Is(hold.Err(), context.Canceled))

	next, err := h.Coordinator.Mutex("seat:12A").Lock(context.Background())
	fmt.Println(err)
	fmt.Println(next.Unlock())
	// Output:
	// true true
	// <nil>
	// <nil>
}

// A wait can fail for two reasons at once: it did not get the lock, and its
// context ended. errors.Is says yes to both.
func ExampleWaitError() {
	h := coordinatortest.Start()
	defer h.Close()
	defer h.HoldElsewhere("door", 0)()

	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err := h.Coordinator.Mutex("door").Lock(ctx)

	fmt.Println(errors.Is(err, coordinator.ErrNotAcquired))
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	fmt.Println(errors.Is(err, coordinator.ErrUnavailable))
	if wait, ok := errors.AsType[*coordinator.WaitError](err); ok {
		fmt.Println(wait.Key, "is held by", wait.Holder)
	}
	// Output:
	// true
	// true
	// false
	// door is held by elsewhere:1
}

// What is stored remembers the newest token that it has seen, and refuses lower
// ones. That stops a holder that was paused beyond its lease and doesn't know.
func ExampleHold_Token() {
	h := coordinatortest.Start()
	defer h.Close()
	ctx := context.Background()

	var newest uint64 // in a database: a column of the row
	write := func(token uint64) string {
		if token < newest {
			return "refused"
		}
		newest = token
		return "written"
	}

	old, err := h.Coordinator.Mutex("invoice").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	h.Lose("invoice") // as a failover would
	next, err := h.Another().Mutex("invoice").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("the new holder:", write(next.Token()))
	fmt.Println("the old holder:", write(old.Token()))
	// Output:
	// the new holder: written
	// the old holder: refused
}

// Unlock says whether the work was protected to its end.
func ExampleHold_Unlock() {
	h := coordinatortest.Start()
	defer h.Close()
	stock := h.Coordinator.Mutex("stock")

	hold, err := stock.Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(hold.Unlock())                                    // protected to its end
	fmt.Println(errors.Is(hold.Unlock(), coordinator.ErrNotHeld)) // a slip: it was unlocked before

	hold, err = stock.Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	h.Lose("stock")
	<-hold.Context().Done()
	fmt.Println(errors.Is(hold.Unlock(), coordinator.ErrLeaseLost)) // somebody else may have been inside
	// Output:
	// <nil>
	// true
	// true
}

func ExampleCoordinator_Inspect() {
	h := coordinatortest.Start()
	defer h.Close()
	defer h.HoldElsewhere("order:42", 0)()
	h.Contend("order:42")

	info, err := h.Coordinator.Inspect(context.Background(), "order:42")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, holder := range info.Holders {
		fmt.Println("held by", holder.Owner, holder.Mode)
	}
	for _, waiter := range info.Waiters {
		fmt.Println("wanted by", waiter.Owner)
	}
	// Output:
	// held by elsewhere:1 exclusive
	// wanted by elsewhere:2
}

func ExampleCoordinator_Snapshot() {
	h := coordinatortest.Start()
	defer h.Close()
	hold, err := h.Coordinator.Mutex("order:42").Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	s := h.Coordinator.Snapshot()
	for _, key := range s.Keys {
		fmt.Println(key.Key, key.Phase, len(key.Holds), "hold", len(key.Waiters), "waiters")
	}
	fmt.Println(s.Stats.Grants, "grant,", s.Stats.Lost, "lost")
	fmt.Println(hold.Unlock())
	// Output:
	// order:42 held 1 hold 0 waiters
	// 1 grant, 0 lost
	// <nil>
}

// A store in memory: the same locks, within one process, and no Redis.
func ExampleNewWithStore() {
	server := memlease.NewServer()
	defer server.Close()
	ctx := context.Background()

	locks, err := coordinator.NewWithStore(server.Store())
	if err != nil {
		fmt.Println(err)
		return
	}
	err = locks.Mutex("config").Do(ctx, func(context.Context) error {
		fmt.Println("alone")
		return nil
	})
	fmt.Println(errors.Join(err, locks.Close(ctx)))
	// Output:
	// alone
	// <nil>
}
