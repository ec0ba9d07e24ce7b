package memlease_test

import (
	"context"
	"fmt"
	"time"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/lease/memlease"
)

// Two coordinators' stores share a server: the second waits for the first, and
// is told when it has the key.
func Example() {
	server := memlease.NewServer()
	defer server.Close()
	ctx := context.Background()

	told := make(chan lease.Event, 10)
	first, second := server.Store(), server.Store()
	_, _ = first.Open(ctx, "first", func(lease.Event) {})
	_, _ = second.Open(ctx, "second", func(e lease.Event) { told <- e })

	send := func(st *memlease.Store, r lease.Request) lease.Reply {
		replies := make(chan lease.Reply)
		st.Send(r, func(p lease.Reply, _ error) { replies <- p })
		return <-replies
	}
	acquire := lease.Request{
		Op: lease.Acquire, Key: "order:42", Kind: lease.Mutex, Ticket: 1, Mode: lease.Exclusive,
		TTL: 30 * time.Second, Queue: true, Age: -1, Tokens: 1,
	}
	fmt.Println("first:", send(first, acquire).Status)
	fmt.Println("second:", send(second, acquire).Status)
	fmt.Println("first:", send(first, lease.Request{
		Op: lease.Release, Key: "order:42", Kind: lease.Mutex, Ticket: 1,
	}).Status)
	fmt.Println("second:", (<-told).Type)
	// Output:
	// first: held
	// second: waiting
	// first: done
	// second: granted
}

// The reply is lost, though the request took effect: the caller can't know.
func ExampleServer_FaultNext() {
	server := memlease.NewServer()
	defer server.Close()
	st := server.Store()
	_, _ = st.Open(context.Background(), "a", func(lease.Event) {})

	server.FaultNext(lease.Acquire, 1, memlease.Fault{Err: fmt.Errorf("connection reset"), Applied: true})
	done := make(chan error)
	st.Send(lease.Request{
		Op: lease.Acquire, Key: "k", Kind: lease.Mutex, Ticket: 1, Mode: lease.Exclusive, TTL: time.Second,
	}, func(_ lease.Reply, err error) { done <- err })
	fmt.Println(<-done)

	info, _ := server.Inspect("k")
	fmt.Println(info.Holders[0].Owner)
	// Output:
	// connection reset
	// a:1
}
