package coordinatortest_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/coordinator/coordinatortest"
)

// export is code under test: it must stop when it loses its lock.
func export(ctx context.Context, c *coordinator.Coordinator, step func()) error {
	return c.Mutex("export").Do(ctx, func(ctx context.Context) error {
		for range 3 {
			step()
			select {
			case <-time.After(300 * time.Millisecond): // the work
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	})
}

// The key is deleted in the middle of the work. In a test, use New(t), and a
// bubble of testing/synctest to spend no time.
func ExampleHarness_Lose() {
	h := coordinatortest.Start()
	defer h.Close()

	steps := 0
	err := export(context.Background(), h.Coordinator, func() {
		if steps++; steps == 2 {
			h.Lose("export")
		}
	})
	fmt.Println("steps:", steps)
	fmt.Println("lost:", errors.Is(err, coordinator.ErrLeaseLost))
	// Output:
	// steps: 2
	// lost: true
}

func ExampleHarness_HoldElsewhere() {
	h := coordinatortest.Start()
	defer h.Close()
	ctx := context.Background()
	orders := h.Coordinator.Mutex("orders")

	release := h.HoldElsewhere("orders", 0)
	_, err := orders.TryLock(ctx)
	fmt.Println("held elsewhere:", errors.Is(err, coordinator.ErrNotAcquired))

	release()
	hold, err := orders.Lock(ctx)
	fmt.Println("then:", err)
	fmt.Println(hold.Unlock())
	// Output:
	// held elsewhere: true
	// then: <nil>
	// <nil>
}

func ExampleHarness_Outage() {
	h := coordinatortest.Start()
	defer h.Close()
	ctx := context.Background()
	orders := h.Coordinator.Mutex("orders")

	restore := h.Outage(errors.New("connection refused"))
	_, err := orders.TryLock(ctx)
	fmt.Println("unavailable:", errors.Is(err, coordinator.ErrUnavailable))

	restore()
	hold, err := orders.Lock(ctx)
	fmt.Println("then:", err)
	fmt.Println(hold.Unlock())
	// Output:
	// unavailable: true
	// then: <nil>
	// <nil>
}
