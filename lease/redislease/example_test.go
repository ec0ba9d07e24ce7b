package redislease_test

import (
	"fmt"

	"github.com/redis/rueidis"

	"github.com/go-leasehold/leasehold/lease/redislease"
)

// The command that makes a Redis user with the rights that locks need, and no
// others. Give it to whoever runs the server, with a password behind it.
func ExampleACLRule() {
	rule := redislease.ACLRule("leasehold", "lock:")
	fmt.Println(rule[:53])
	// Output:
	// ACL SETUSER leasehold reset on ~lock:* &lock:* +auth
}

// New refuses options that can't serve leases, and says why. It does not connect.
func ExampleNew() {
	_, err := redislease.New(rueidis.ClientOption{
		InitAddress: []string{"127.0.0.1:6379"},
		ReplicaOnly: true,
	}, redislease.Config{})
	fmt.Println(err)
	// Output:
	// redislease: ClientOption.ReplicaOnly can't be used: leases are written, and replicas can't be written to
}
