package lease_test

import (
	"fmt"

	"github.com/go-leasehold/leasehold/lease"
)

// What stands in Redis tells who holds a lock: host, process id and chance, then
// the ticket.
func ExampleParseOwner() {
	id, ticket, ok := lease.ParseOwner(lease.Owner("web-3-4711-9f86d081884c", 7))
	fmt.Println(id, ticket, ok)

	_, _, ok = lease.ParseOwner("somebody") // not one of ours: no ticket
	fmt.Println(ok)
	// Output:
	// web-3-4711-9f86d081884c 7 true
	// false
}
