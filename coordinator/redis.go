package coordinator

import (
	"github.com/redis/rueidis"

	"github.com/go-leasehold/leasehold/lease/redislease"
)

// New connects to Redis and returns a coordinator on it; an error when Redis
// can't be reached, or can't keep leases (a replica, scripts not permitted).
//
// It takes the options of a client and not a client, because the store needs a
// connection of its own making: one a node for commands, tracking and inbox
// together, without retries that it doesn't know of. See [redislease.New] for
// the options that it sets, chains and refuses.
func New(redis rueidis.ClientOption, opts ...Option) (*Coordinator, error) {
	conf, err := configure(opts)
	if err != nil {
		return nil, err
	}
	journal := newJournal(conf.logger)
	store, err := redislease.New(redis, redislease.Config{
		Prefix:         conf.prefix,
		TTL:            conf.ttl,
		TokenRetention: conf.tokenRetention,
		Logger:         journal.log(),
	})
	if err != nil {
		journal.end()
		return nil, invalid("%v", err)
	}
	return open(store, conf, journal)
}
