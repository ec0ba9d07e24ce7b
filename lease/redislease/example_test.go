package redislease_test

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/lease/redislease"
)

// A store is what a coordinator talks to; a program seldom does so itself.
func ExampleNew() {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()

	store, err := redislease.New(rueidis.ClientOption{InitAddress: []string{server.Addr()}}, redislease.Config{TTL: 10 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	can, err := store.Open(ctx, "host-1-a", func(e lease.Event) { fmt.Println("event:", e.Type) })
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("notices:", can.Notices, "tracking:", can.Tracking)

	answered := make(chan struct{})
	store.Send(lease.Request{
		Op: lease.Acquire, Key: "order:42", Kind: lease.Mutex, Ticket: 1, Mode: lease.Exclusive, TTL: 10 * time.Second, Tokens: 64,
	}, func(reply lease.Reply, err error) {
		fmt.Println(reply.Status, reply.Last-reply.First+1, "tokens", err)
		close(answered)
	})
	<-answered
	info, err := store.Inspect(ctx, "order:42")
	fmt.Println(info.Holders[0].Owner, info.Holders[0].Mode, err)
	fmt.Println(store.Close(ctx))
	// Output:
	// notices: true tracking: false
	// held 64 tokens <nil>
	// host-1-a:1 exclusive <nil>
	// <nil>
}

func ExampleACLRule() {
	fmt.Println(redislease.ACLRule("app", "lock:"))
	// Output:
	// ACL SETUSER app reset on ~lock:* &lock:* +auth +hello +ping +select +client|setname +client|tracking +client|caching +cluster|slots +cluster|shards +asking +subscribe +unsubscribe +ssubscribe +sunsubscribe +publish +spublish +eval +evalsha +del +exists +get +hdel +hexists +hgetall +hmget +hset +mget +pexpire +pttl +set +time +zadd +zcard +zrange +zrank +zrem +zrevrange
}
