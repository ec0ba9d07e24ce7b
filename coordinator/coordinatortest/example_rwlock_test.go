package coordinatortest_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/coordinator/coordinatortest"
	"github.com/go-leasehold/leasehold/rwlock"
)

// Another process reads, and then one writes: AsReader and AsWriter say what a
// made-up process uses the key as.
func ExampleHarness_HoldElsewhere_readers() {
	h := coordinatortest.Start()
	defer h.Close()
	ctx := context.Background()
	catalog := rwlock.New(h.Coordinator, "catalog")

	leave := h.HoldElsewhere("catalog", 0, coordinatortest.AsReader)
	reader, err := catalog.RLock(ctx)
	fmt.Println("beside a reader:", err)
	fmt.Println(reader.Unlock())
	_, err = catalog.TryLock(ctx)
	fmt.Println("to write beside it:", errors.Is(err, coordinator.ErrNotAcquired))
	leave()

	leave = h.HoldElsewhere("catalog", 0, coordinatortest.AsWriter)
	_, err = catalog.TryRLock(ctx)
	fmt.Println("beside a writer:", errors.Is(err, coordinator.ErrNotAcquired))
	leave()
	// Output:
	// beside a reader: <nil>
	// <nil>
	// to write beside it: true
	// beside a writer: true
}

// A writer of another process waits: no new reader comes in until it has had its
// turn, and the readers inside are waited for.
func ExampleHarness_Contend_writer() {
	h := coordinatortest.Start()
	defer h.Close()
	ctx := context.Background()
	catalog := rwlock.New(h.Coordinator, "catalog")

	reader, err := catalog.RLock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	writer := h.Contend("catalog", coordinatortest.AsWriter)
	for { // it is being told
		newcomer, err := catalog.TryRLock(ctx)
		if err != nil {
			fmt.Println("a newcomer:", errors.Is(err, coordinator.ErrNotAcquired))
			break
		}
		if err := newcomer.Unlock(); err != nil {
			fmt.Println(err)
		}
		time.Sleep(time.Millisecond)
	}
	fmt.Println("the reader inside:", reader.Err())
	fmt.Println(reader.Unlock())
	<-writer.Granted()
	writer.Release()
	// Output:
	// a newcomer: true
	// the reader inside: <nil>
	// <nil>
}
