package redislease

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/redis/rueidis"
)

const (
	// DefaultTTL is the shortest lease's time to live unless [Config.TTL] says
	// otherwise.
	DefaultTTL = 30 * time.Second

	// DefaultTokenRetention is how long the newest token of an unused key is
	// kept unless [Config.TokenRetention] says otherwise.
	DefaultTokenRetention = time.Hour

	// minTTL is the shortest time to live that a Config may name.
	minTTL = 100 * time.Millisecond

	// maxPatience is how long a server may say nothing at most, however long
	// leases last: who asks shall be told.
	maxPatience = 3 * time.Second

	// minTimeout is what connections are given at least, however short leases
	// are: less would be missed by a machine that is merely busy.
	minTimeout = 50 * time.Millisecond

	// maxBatch is how many requests go in one pipeline. A pipeline of
	// rueidis.ClientOption.BlockingPipeline commands would silently take
	// another connection; each request is at most three commands.
	maxBatch         = 128
	blockingPipeline = 2000
)

// Config says how a [Store] behaves. Its zero value is ready for use.
type Config struct {
	// Prefix stands before every name in Redis (default [DefaultPrefix]), so
	// that a lock never lands on somebody's data. It has no brace, or exactly
	// one {tag} that is not empty: then all locks are in one cluster slot.
	Prefix string

	// TTL is the shortest time to live of the leases that the store will serve
	// (default [DefaultTTL], at least 100 ms). An error comes within a third of
	// it; where the server is silent, after a quarter of it, three seconds at most.
	// The time-outs of the connection are derived from that where the options
	// leave them open.
	TTL time.Duration

	// TokenRetention is how long the newest fencing token of an unused key is
	// kept (default [DefaultTokenRetention]), and so the backward step of the
	// server's clock that tokens survive. It is at least TTL.
	TokenRetention time.Duration

	// Logger gets what can't be told by an error (default slog.Default()). It is
	// called on the goroutines that send requests and read messages, and must not
	// block: one that may needs a handler that passes lines on.
	Logger *slog.Logger
}

// withDefaults fills in what is unset, and checks the rest.
func (c Config) withDefaults() (Config, error) {
	if c.Prefix == "" {
		c.Prefix = DefaultPrefix
	}
	if c.TTL == 0 {
		c.TTL = DefaultTTL
	}
	if c.TTL < minTTL {
		return c, fmt.Errorf("redislease: a TTL of %v is below the limit of %v", c.TTL, minTTL)
	}
	if c.TTL > maxTTL {
		return c, fmt.Errorf("redislease: a TTL of %v is over the limit of %v", c.TTL, maxTTL)
	}
	if c.TokenRetention == 0 {
		c.TokenRetention = max(DefaultTokenRetention, c.TTL)
	}
	if c.TokenRetention < c.TTL {
		return c, fmt.Errorf("redislease: a token retention of %v is below the TTL of %v", c.TokenRetention, c.TTL)
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, nil
}

// limit is how long a request may take before it is answered with an error,
// whatever the reason. The contract allows a third of the TTL: what is left is
// for a busy machine.
func (c Config) limit() time.Duration { return c.TTL / 4 }

// patience is how long it may take where the server says nothing at all.
func (c Config) patience() time.Duration { return min(c.limit(), maxPatience) }

// limited is the dialer with its time-outs set where they are not.
func limited(d net.Dialer, patience time.Duration) net.Dialer {
	if d.Timeout == 0 {
		d.Timeout = max(patience/3, minTimeout)
	}
	if d.KeepAlive == 0 {
		d.KeepAlive = max(patience/4, minTimeout)
	}
	return d
}

// refused are the options that can't serve leases, each with the reason.
func refused(opt *rueidis.ClientOption) error {
	no := func(option, why string) error {
		return fmt.Errorf("redislease: ClientOption.%s can't be used: %s", option, why)
	}
	switch {
	case len(opt.InitAddress) == 0:
		return errors.New("redislease: ClientOption.InitAddress is empty: no server to connect to")
	case opt.ReplicaOnly:
		return no("ReplicaOnly", "leases are written, and replicas can't be written to")
	case opt.SendToReplicas != nil:
		return no("SendToReplicas", "a replica's answer may be older than the lease it tells of")
	case opt.ConnLifetime != 0:
		return no("ConnLifetime", "commands and inbox share one connection, whose end makes every waiter look again")
	case opt.DisableAutoPipelining:
		return no("DisableAutoPipelining", "the commands of a key must keep their order, which takes one connection")
	case len(opt.Standalone.ReplicaAddress) > 0 || opt.Standalone.EnableRedirect:
		return no("Standalone", "replicas can't serve leases, and a redirected client loses its inbox")
	}
	return nil
}

// clientOption is the user's, with what leases need. The store hooks into the
// connections with dial and invalidated.
func clientOption(opt rueidis.ClientOption, cfg Config) (rueidis.ClientOption, error) {
	if err := refused(&opt); err != nil {
		return opt, err
	}
	// One connection a node: else a key's requests could overtake each other.
	opt.PipelineMultiplex = -1
	opt.BlockingPipeline = blockingPipeline
	// Nothing is run in the caller's goroutine past the pipeline, so that no
	// command changes its place.
	opt.AlwaysPipelining = true
	// A command that was sent again without our knowledge could be answered as
	// if it were the first.
	opt.DisableRetry = true
	// OPTIN: scripts track nothing, so that hand-offs cost no invalidations.
	// NOLOOP: what we change ourselves we know.
	opt.ClientTrackingOptions = []string{"OPTIN", "NOLOOP"}
	opt.DisableCache = opt.DisableCache || opt.AlwaysRESP2

	// A silent server is noticed after two intervals of the background ping and
	// one time-out, and a connection is made, and greeted, in two time-outs of the
	// dialer: both within the patience. What waits is answered by that anyway.
	patience := cfg.patience()
	opt.Dialer = limited(opt.Dialer, patience)
	opt.Sentinel.Dialer = limited(opt.Sentinel.Dialer, patience)
	if opt.ConnWriteTimeout == 0 {
		opt.ConnWriteTimeout = max(patience/2, minTimeout)
	}
	return opt, nil
}
