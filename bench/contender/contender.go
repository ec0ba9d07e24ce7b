// Package contender has everybody who takes part in the benchmarks, behind one small set of interfaces: leasehold,
// the locks that others have written, and the limits, which show what memory and what Redis allow.
//
// A contender is one file, which calls [Register] in its init function. It says what it is, with which settings it
// runs and why, and opens itself for a process. What it can't do, it does not implement, and then it has no part in
// the scenarios that are about it.
package contender

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"
)

// ErrHeld is what TryLock says of a lock that somebody else has.
var ErrHeld = errors.New("somebody else has the lock")

// Kind tells what a contender is for.
type Kind string

// The kinds.
const (
	Ours  Kind = "ours"  // leasehold
	Peer  Kind = "peer"  // a lock on Redis, as leasehold is
	Limit Kind = "limit" // no lock on Redis, but what bounds one: memory, or the network and Redis
)

// Info is a contender.
type Info struct {
	Name           string   // as in -contender and in tables
	Kind           Kind     // what it is for
	Variant        string   // the name of the contender that this is a variant of; empty for a main entry
	About          string   // one line
	Settings       []string // its settings, and where they are advised, one a line
	Module         string   // the module it is from, whose version is told; empty for the standard library
	Prefix         string   // of a key's name in Redis: what an operator would delete is Prefix and the key
	ExcludesNobody bool     // its Lock only takes time, as one command does: nobody looks for two holders
	Open           func(ctx context.Context, setup Setup) (Process, error)
}

// Setup is what a contender gets to work with.
type Setup struct {
	Addr string        // host:port of Redis
	TTL  time.Duration // for how long a lock outlives a crashed holder

	// Dial connects to Redis. Each contender has to use it for each of its connections, for that is where commands and bytes are counted.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
}

// Process is what one process has of a contender. Its methods may be called from any goroutine.
type Process interface {
	// Mutex returns a handle of the lock of a key. It does not talk to Redis.
	Mutex(key string) Mutex
	// Close gives up what is left and ends all goroutines and connections.
	Close() error
}

// Mutex is the lock of one key. Its methods may be called from any goroutine; each call of Lock is another holder.
type Mutex interface {
	// Lock waits until the lock is held, or until ctx ends.
	Lock(ctx context.Context) (Hold, error)
}

// TryMutex is a [Mutex] that can be asked without waiting.
type TryMutex interface {
	Mutex
	// TryLock says ErrHeld when somebody else has the lock.
	TryLock(ctx context.Context) (Hold, error)
}

// Hold is a lock that is held. Unlock is called once.
type Hold interface {
	Unlock() error
}

// Reader is a [Process] with read/write locks.
type Reader interface {
	RW(key string) RW
}

// RW is the read/write lock of one key.
type RW interface {
	RLock(ctx context.Context) (Hold, error)
	Lock(ctx context.Context) (Hold, error)
}

// Segmenter is a [Process] with locks that are made of several.
type Segmenter interface {
	// Segments returns the n locks of a name.
	Segments(name string, n int) (Segments, error)
}

// Segments are several locks, of which a routing key chooses one.
type Segments interface {
	Mutex(routing string) Mutex
}

// Seller is a [Process] that sells stock.
type Seller interface {
	// Stock loads units under a name and returns what sells them.
	Stock(ctx context.Context, name string, units int64) (Stock, error)
}

// Stock sells units of one thing.
type Stock interface {
	// Sell takes one unit. An empty id is an order that may be taken twice when it is sent again.
	Sell(ctx context.Context, id string) (sold bool, err error)
}

var registered []Info

// Register adds a contender. It is called from init functions, and panics on one that can't be told from another.
func Register(info Info) {
	if info.Name == "" || info.Open == nil || info.About == "" {
		panic(fmt.Sprintf("contender: %q needs a name, an Open and a line about it", info.Name))
	}
	if _, err := Find(info.Name); err == nil {
		panic(fmt.Sprintf("contender: there are two of the name %q", info.Name))
	}
	registered = append(registered, info)
}

// All returns the contenders: ours, then peers, then limits, each by name.
func All() []Info {
	order := []Kind{Ours, Peer, Limit}
	all := slices.Clone(registered)
	slices.SortFunc(all, func(a, b Info) int {
		if d := slices.Index(order, a.Kind) - slices.Index(order, b.Kind); d != 0 {
			return d
		}
		return strings.Compare(a.Name, b.Name)
	})
	return all
}

// Find returns the contender of a name.
func Find(name string) (Info, error) {
	for _, info := range registered {
		if info.Name == name {
			return info, nil
		}
	}
	return Info{}, fmt.Errorf("contender %q is not known: there are %s", name, strings.Join(Names(), ", "))
}

// Names returns the names of all contenders.
func Names() []string {
	var names []string
	for _, info := range All() {
		names = append(names, info.Name)
	}
	return names
}
