package torture

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"github.com/redis/rueidis"

	"github.com/go-leasehold/leasehold/internal/history"
)

// clientName is the name of the processes' connections.
const clientName = "torture"

// order is what a process of the run is told.
type order struct {
	Process int // its number
	Seed    uint64
	TTL     time.Duration
	Lanes   int // goroutines
	Places  []place
	Record  string // the file to write to
	Fence   string // the address of the fenced store
	Way     way
}

// way is how a process reaches Redis.
type way struct {
	Addresses []string
	MasterSet string            // of Sentinels
	Through   map[string]string // a proxy instead of an address
}

// option is the way as a client takes it.
func (w way) option() rueidis.ClientOption {
	opt := rueidis.ClientOption{InitAddress: w.Addresses, ClientName: clientName}
	opt.Sentinel.MasterSet = w.MasterSet
	opt.DialCtxFn = func(ctx context.Context, address string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
		if proxy, ok := w.Through[address]; ok {
			address = proxy
		}
		return dialer.DialContext(ctx, "tcp", address)
	}
	return opt
}

// kind is what a place's keys are used as.
type kind string

const (
	mutex     kind = "mutex"
	readWrite kind = "rw"
)

// place is where holds happen: a key, and after a while the next one, for all processes at once, so that the history of
// one stays short.
type place struct {
	Name   string
	Kind   kind
	Life   time.Duration // of a key
	Writes int           // in 100
	Slow   bool          // holds live long enough to be renewed; one goroutine of each process keeps to it
}

// key is the present one of a place.
func (p place) key() string { return fmt.Sprintf("%s-%d", p.Name, history.Now()/int64(p.Life)) }

// places are those of every run.
func places() []place {
	return []place{
		{Name: "slow-rw", Kind: readWrite, Life: 32 * time.Second, Writes: 20, Slow: true},
		{Name: "slow-mutex", Kind: mutex, Life: 16 * time.Second, Slow: true},
		{Name: "read", Kind: readWrite, Life: 4 * time.Second, Writes: 10},
		{Name: "mixed", Kind: readWrite, Life: time.Second, Writes: 40},
		{Name: "write", Kind: readWrite, Life: 500 * time.Millisecond, Writes: 90},
		{Name: "a", Kind: mutex, Life: time.Second},
		{Name: "b", Kind: mutex, Life: 500 * time.Millisecond},
		{Name: "c", Kind: mutex, Life: 3 * time.Second},
	}
}
