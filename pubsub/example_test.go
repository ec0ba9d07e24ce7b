package pubsub_test

import (
	"fmt"

	"github.com/redis/rueidis"

	"github.com/go-leasehold/leasehold/pubsub"
)

// A hook goes into the options that a client is made with. nil is what a client
// says when everything may have changed: after a flush, or a lost connection.
func ExampleInvalidations() {
	var invalidations pubsub.Invalidations
	option := rueidis.ClientOption{}
	option.OnInvalidations = invalidations.Hook(option.OnInvalidations)

	stop := invalidations.Listen(func(key string, all bool) {
		fmt.Printf("key %q, all %v\n", key, all)
	})
	option.OnInvalidations(nil)
	stop()
	option.OnInvalidations(nil) // nobody listens any more
	// Output:
	// key "", all true
}
