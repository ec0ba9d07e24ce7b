package coordinator

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/puzpuzpuz/xsync/v3"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// Coordinator is a process's part in all its locks. One is enough for a
// process, and makes its goroutines share leases; a second one is to the first
// like another process.
type Coordinator struct {
	conf  config
	id    string
	store lease.Store
	caps  lease.Capabilities
	clock *clock

	actors  *xsync.MapOf[string, *actor]
	live    atomic.Int64 // actors in the table
	tickets atomic.Uint64

	heard   atomic.Uint64 // raised when notices were lost: what was known before is void
	knowing atomic.Int64  // actors that know of another holder

	sleptThrough int64 // clock.lost as the keys know it; of watch alone

	journal   *journal
	tel       *telemetry.Telemetry
	holdAlarm time.Duration // 0: none
	firstLook time.Duration // after which a hold is looked at, if it has no MaxHold
	waitAlarm time.Duration // 0: none
	places    bool          // note where locks are called

	examiner chan struct{} // has room for one: look at everything

	opened  atomic.Bool
	closing atomic.Bool
	emptied chan struct{} // has room for one: the table is empty while closing
	close   sync.Once
	closed  chan struct{} // Close is through
	err     error         // of Close; written before closed

	stop  chan struct{} // ends the goroutines
	tasks sync.WaitGroup

	abandoned struct { // holds to be told of by watch
		sync.Mutex
		notes []note
	}
	past past // of actors that have left the table
}

// openFor bounds how long New waits for a store.
const openFor = 10 * time.Second

// NewWithStore returns a coordinator on any store: a quorum, one in memory, a
// user's own. The coordinator owns the store from then on and closes it. A
// store has its own settings of prefix and token retention, so those options
// have no effect here.
func NewWithStore(store lease.Store, opts ...Option) (*Coordinator, error) {
	conf, err := configure(opts)
	if err != nil {
		return nil, err
	}
	if store == nil {
		return nil, invalid("the store is nil")
	}
	return open(store, conf, newJournal(conf.logger))
}

func configure(opts []Option) (config, error) {
	conf := defaults()
	for _, o := range opts {
		if o == nil {
			return conf, invalid("an Option is nil")
		}
		o(&conf)
	}
	return conf, conf.validate()
}

func open(store lease.Store, conf config, journal *journal) (*Coordinator, error) {
	tel, err := telemetry.New(conf.telemetry, journal.log())
	if err != nil {
		journal.end()
		return nil, invalid("WithTelemetry: %w", err) // not reached: the options were validated
	}
	c := &Coordinator{
		conf:     conf,
		id:       newID(),
		store:    store,
		clock:    newClock(slept),
		actors:   xsync.NewMapOf[string, *actor](),
		examiner: make(chan struct{}, 1),
		emptied:  make(chan struct{}, 1),
		closed:   make(chan struct{}),
		stop:     make(chan struct{}),
		journal:  journal,
		tel:      tel,

		holdAlarm: tel.Config().HoldAlarm,
		waitAlarm: tel.Config().WaitAlarm,
		places:    conf.debug || tel.Config().AlarmStack,
	}
	c.firstLook = checkHoldAfter
	if c.holdAlarm > 0 {
		c.firstLook = min(c.firstLook, c.holdAlarm)
	}
	ctx, cancel := context.WithTimeout(context.Background(), openFor)
	defer cancel()
	caps, err := store.Open(ctx, c.id, c.notice)
	if err != nil {
		_ = store.Close(ctx) // it never opened; the first error is the one to tell
		c.tel.Close(closeGrace)
		c.journal.end()
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	c.caps = caps
	c.opened.Store(true)
	for _, m := range caps.Missing {
		c.journal.fallback(caps.Server, m)
	}
	c.observe()
	c.tasks.Go(c.watch)
	return c, nil
}

// newID returns a name for a coordinator: host, process, and chance, free of
// colons and braces, so that an operator sees in Redis who holds what.
func newID() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "unknown"
	}
	host = strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' || strings.ContainsRune(`:{}*?[]\`, r) {
			return '_'
		}
		return r
	}, host)
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), hex.EncodeToString(b[:]))
}

// ID returns the coordinator's name in the store: host, process id and chance.
func (c *Coordinator) ID() string { return c.id }

func (c *Coordinator) ticket() lease.Ticket { return lease.Ticket(c.tickets.Add(1)) }

// actorAt returns the actor of a key as actorOf does, by way of what a handle
// remembers of it.
func (c *Coordinator) actorAt(at *atomic.Pointer[spot], key string) *actor {
	if p := at.Load(); p != nil {
		if a := p.actor.Load(); a != nil {
			return a
		}
	}
	a := c.actorOf(key)
	at.Store(a.spot)
	return a
}

// actorOf returns the actor of a key, which may leave the table before it is
// locked.
func (c *Coordinator) actorOf(key string) *actor {
	if a, ok := c.actors.Load(key); ok {
		return a
	}
	a, _ := c.actors.LoadOrCompute(key, func() *actor {
		c.live.Add(1)
		// The key may be a part of something large that the caller holds.
		return newActor(c, strings.Clone(key))
	})
	return a
}

// forget takes an actor out of the table. It is called under the actor's mutex;
// nothing locks an actor while it holds a part of the table.
func (c *Coordinator) forget(a *actor) {
	c.past.take(a) // first: who does not find it in the table any more finds it here
	c.actors.Delete(a.key)
	if c.live.Add(-1) == 0 && c.closing.Load() {
		select {
		case c.emptied <- struct{}{}:
		default:
		}
	}
}

// notice takes an event from the store. It runs on the goroutine that reads
// from the store, and does not block.
func (c *Coordinator) notice(e lease.Event) {
	if !c.opened.Load() {
		return // nothing was asked for yet
	}
	switch e.Type {
	case lease.Granted, lease.Wanted:
		// Also where nobody here knows the key: what was granted must be released.
		for !c.actorOf(e.Key).onEvent(e) {
		}
	case lease.Asked:
		if a, ok := c.actors.Load(e.Key); !ok || !a.onEvent(e) {
			c.store.Send(lease.Request{Op: lease.Busy, Key: e.Key, Asker: e.Asker, Idle: true}, func(lease.Reply, error) {})
		}
	case lease.InUse, lease.Changed, lease.Traced:
		if a, ok := c.actors.Load(e.Key); ok {
			a.onEvent(e)
		}
	case lease.Disconnected:
		c.heard.Add(1)
		c.journal.disconnected(e.Err)
	case lease.ChangedAll, lease.Connected:
		c.heard.Add(1)
		select {
		case c.examiner <- struct{}{}:
		default: // it will be looked at anyway
		}
	}
}
