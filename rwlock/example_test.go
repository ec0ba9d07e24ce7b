package rwlock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/coordinator/coordinatortest"
	"github.com/go-leasehold/leasehold/lease/memlease"
	"github.com/go-leasehold/leasehold/rwlock"
)

// These examples need no server: h.Coordinator is a coordinator in memory. In a
// program it comes from coordinator.New.

// Any number of readers at a time, or one writer.
func Example() {
	server := memlease.NewServer() // coordinator.New, in a program
	defer server.Close()
	c, err := coordinator.NewWithStore(server.Store())
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	catalog := rwlock.New(c, "catalog")
	price := 10

	err = catalog.Write(ctx, func(ctx context.Context) error {
		price = 12
		return ctx.Err() // ends the moment that the lock is not safe any more
	})
	fmt.Println("written:", err)

	err = catalog.Read(ctx, func(context.Context) error {
		fmt.Println("price:", price)
		return nil
	})
	fmt.Println("read:", err)
	fmt.Println(c.Close(ctx))
	// Output:
	// written: <nil>
	// price: 12
	// read: <nil>
	// <nil>
}

// However many read in a process, Redis knows of one reader: the process.
func ExampleLock_RLock() {
	h := coordinatortest.Start()
	defer h.Close()
	ctx := context.Background()
	catalog := rwlock.New(h.Coordinator, "catalog")

	for range 3 {
		reader, err := catalog.RLock(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		defer func() { fmt.Println("unlocked:", reader.Unlock()) }()
	}
	info, err := h.Coordinator.Inspect(ctx, "catalog")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("processes that read:", len(info.Holders))
	// Output:
	// processes that read: 1
	// unlocked: <nil>
	// unlocked: <nil>
	// unlocked: <nil>
}

// A writer that has written what it came for, and goes on to read: others may
// read as well from then on, and nobody can have written in between.
func ExampleHold_Downgrade() {
	h := coordinatortest.Start()
	defer h.Close()
	ctx := context.Background()
	catalog := rwlock.New(h.Coordinator, "catalog")

	writer, err := catalog.Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = catalog.TryRLock(ctx)
	fmt.Println("while it writes:", errors.Is(err, coordinator.ErrNotAcquired))

	reader, err := writer.Downgrade() // writer is over, as if it had been unlocked
	if err != nil {
		fmt.Println(err)
		return
	}
	other, err := catalog.TryRLock(ctx)
	fmt.Println("while it reads:", err)

	fmt.Println(other.Unlock(), reader.Unlock())
	fmt.Println("again:", errors.Is(writer.Unlock(), coordinator.ErrNotHeld))
	// Output:
	// while it writes: true
	// while it reads: <nil>
	// <nil> <nil>
	// again: true
}

// Serve what is there where the lock can't be had at once.
func ExampleLock_TryRLock() {
	h := coordinatortest.Start()
	defer h.Close()
	ctx := context.Background()
	catalog := rwlock.New(h.Coordinator, "catalog")

	release := h.HoldElsewhere("catalog", 0, coordinatortest.AsWriter)
	_, err := catalog.TryRLock(ctx)
	switch {
	case errors.Is(err, coordinator.ErrNotAcquired):
		fmt.Println("it is being written: the old copy will do")
	case err != nil:
		fmt.Println("nobody knows:", err)
	}

	release()
	reader, err := catalog.TryRLock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("read anew")
	fmt.Println(reader.Unlock())
	// Output:
	// it is being written: the old copy will do
	// read anew
	// <nil>
}

// Whoever writes may read with the hold's context: code that locks by itself can
// be called by either.
func ExampleLock_RLock_reentry() {
	h := coordinatortest.Start()
	defer h.Close()
	catalog := rwlock.New(h.Coordinator, "catalog")

	total := func(ctx context.Context) error { // reads, whoever calls
		reader, err := catalog.RLock(ctx)
		if err != nil {
			return err
		}
		writes, reads := reader.Counts()
		fmt.Println("inside to write:", writes, "to read:", reads)
		return reader.Unlock()
	}

	fmt.Println(total(context.Background()))
	fmt.Println(catalog.Write(context.Background(), total))
	// Output:
	// inside to write: 0 to read: 1
	// <nil>
	// inside to write: 1 to read: 1
	// <nil>
}

// A reader can't become a writer: two that try would wait for each other. Unlock,
// lock to write, and look again at what was read.
func ExampleLock_Lock_upgrade() {
	h := coordinatortest.Start()
	defer h.Close()
	ctx := context.Background()
	catalog := rwlock.New(h.Coordinator, "catalog")

	reader, err := catalog.RLock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = catalog.Lock(reader.Context()) // says so at once, and does not wait
	fmt.Println(errors.Is(err, coordinator.ErrUpgrade))

	fmt.Println(reader.Unlock())
	writer, err := catalog.Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(writer.Unlock())
	// Output:
	// true
	// <nil>
	// <nil>
}

// Two holds of a process with the same token had no write between them, in any
// process: what was read under the first still stands.
func ExampleLock_Read_cache() {
	h := coordinatortest.Start()
	defer h.Close()
	ctx := context.Background()
	catalog := rwlock.New(h.Coordinator, "catalog")

	var asOf uint64 // the token under which the copy was made
	read := func(ctx context.Context) error {
		token := coordinator.HoldFrom(ctx).Token()
		if token == asOf {
			fmt.Println("from memory")
			return nil
		}
		fmt.Println("from the database")
		asOf = token
		return ctx.Err()
	}

	fmt.Println(catalog.Read(ctx, read))
	fmt.Println(catalog.Read(ctx, read))
	h.HoldElsewhere("catalog", 0, coordinatortest.AsWriter)() // another process writes
	fmt.Println(catalog.Read(ctx, read))
	// Output:
	// from the database
	// <nil>
	// from memory
	// <nil>
	// from the database
	// <nil>
}
