package contender_test

import (
	"context"
	"fmt"

	"github.com/go-leasehold/leasehold/bench/contender"
)

// Whoever takes part is found by name, and opened once for each process. This one needs no Redis.
func Example() {
	info, err := contender.Find("semaphore")
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	process, err := info.Open(ctx, contender.Setup{})
	if err != nil {
		panic(err)
	}
	mutex := process.Mutex("key").(contender.TryMutex)
	hold, err := mutex.Lock(ctx)
	if err != nil {
		panic(err)
	}
	_, err = mutex.TryLock(ctx)
	fmt.Println(err)
	fmt.Println(hold.Unlock(), process.Close())
	// Output:
	// somebody else has the lock
	// <nil> <nil>
}
