package segment

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/telemetry"
)

// Stock is a number of units of one thing, which any number of processes sell
// from. Its methods may be called at the same time. One for a process and
// name is enough, and makes calls travel together.
//
// What is under way when the coordinator is closed ends with coordinator.ErrClosed.
type Stock struct {
	c         *coordinator.Coordinator
	name      string
	conf      Config
	settings  coordinator.Settings
	server    server
	homes     []*home
	meta      string // key
	anonymous int    // the home of orders with neither ID nor user

	allowing sync.Mutex
	allowed  bool // guarded by allowing

	attaching sync.Mutex // one at a time asks which epoch it is
	epoch     atomic.Pointer[string]

	sold     soldOut
	surveyor surveyor
	counters counters
	told     *telemetry.Stocks // of its class
}

// NewStock returns a handle on the stock of a name: 1 to 1,024 bytes of any
// kind. It asks the server for nothing: whether the stock is loaded, and with
// the same settings, is told by the first use. The coordinator must be on
// Redis: coordinator.ErrNeedsRedis.
func NewStock(c *coordinator.Coordinator, name string, conf Config) (*Stock, error) {
	if c == nil {
		return nil, invalid("the coordinator is nil")
	}
	if err := validName(name); err != nil {
		return nil, err
	}
	settings := c.Settings()
	conf, err := conf.withDefaults(settings.MaxWaiters)
	if err != nil {
		return nil, err
	}
	if _, err := c.Plain(); err != nil {
		return nil, err
	}
	return newStock(c, name, conf, settings, redis{c}), nil
}

func newStock(c *coordinator.Coordinator, name string, conf Config, settings coordinator.Settings, server server) *Stock {
	s := &Stock{
		c: c, name: name, conf: conf, settings: settings, server: server,
		homes: make([]*home, conf.Segments), anonymous: Index(c.ID(), conf.Segments),
		told: c.Telemetry().Class(name).Stocks(),
	}
	for i := range s.homes {
		s.homes[i] = newHome(s, i)
	}
	s.meta = s.homes[0].keys.meta()
	s.sold.init(s)
	return s
}

// Name returns the name of the stock.
func (s *Stock) Name() string { return s.name }

// Segments returns the number of segments.
func (s *Stock) Segments() int { return s.conf.Segments }

// terms are the settings that all processes must have alike, in the form in which
// they are kept: segments, remember, limit. An epoch before them makes them what
// every script states.
func (c *Config) terms() string {
	return fmt.Sprintf("%d:%d:%d", c.Segments, c.Remember.Milliseconds(), c.PerUser)
}

// remember is Config.Remember as scripts get it: in µs.
func (s *Stock) remember() string { return micros(s.conf.Remember) }

// set returns the settings that scripts are to state; it asks for the epoch
// where that is not known.
func (s *Stock) set() (string, error) {
	if set := s.epoch.Load(); set != nil {
		return *set, nil
	}
	s.attaching.Lock()
	defer s.attaching.Unlock()
	if set := s.epoch.Load(); set != nil {
		return *set, nil
	}
	if err := s.rights(); err != nil {
		return "", err
	}
	set, err := s.ask()
	if err != nil {
		return "", err
	}
	s.epoch.Store(&set)
	return set, nil
}

// meta is what segment 0 knows of the stock as a whole.
type meta struct {
	set     string // of the epoch in use; empty: none
	loading string // of the one that is being loaded; empty: none
	most    int    // segments there may be
	last    string // epoch that was begun
}

func (s *Stock) readMeta() (meta, error) {
	a := s.run(call{script: attachScript, keys: []string{s.meta}})[0]
	if a.err != nil {
		return meta{}, a.err
	}
	m, ok := parseMeta(&a.message)
	if !ok {
		return meta{}, fmt.Errorf("%w: attach: %w", coordinator.ErrUnavailable, errUnreadable)
	}
	return m, nil
}

func parseMeta(message *rueidis.RedisMessage) (m meta, ok bool) {
	values, err := message.ToArray()
	if err != nil || len(values) != 4 {
		return meta{}, false
	}
	if m.set, err = values[0].ToString(); err != nil {
		return meta{}, false
	}
	if m.loading, err = values[1].ToString(); err != nil {
		return meta{}, false
	}
	most, ok := count(&values[2])
	last, also := count(&values[3])
	if !ok || !also || most > MaxSegments {
		return meta{}, false
	}
	m.most, m.last = int(most), number(last)
	return m, true
}

// ask asks segment 0 which epoch it is, and compares the settings.
func (s *Stock) ask() (string, error) {
	m, err := s.readMeta()
	if err != nil {
		return "", err
	}
	set := m.set
	switch {
	case m.loading != "":
		return "", fmt.Errorf("%w: somebody is loading it, or has not ended: Load with the same, or Reset", ErrNotLoaded)
	case set == "":
		return "", ErrNotLoaded
	}
	if _, terms, _ := cut(set); terms != s.conf.terms() {
		return "", fmt.Errorf("%w: this process has %q, the stock %q (segments:remember in ms:limit)", ErrEpoch, s.conf.terms(), terms)
	}
	return set, nil
}

// strange drops what is known of the epoch when a script was told that it is
// another: the next call asks again.
func (s *Stock) strange(set string) {
	if known := s.epoch.Load(); known != nil && *known == set {
		s.epoch.CompareAndSwap(known, nil)
	}
	s.sold.forget()
}

// noteEpoch is told of an error that a script of these settings met.
func (s *Stock) noteEpoch(set string, err error) {
	if errors.Is(err, ErrEpoch) || errors.Is(err, ErrNotLoaded) {
		s.strange(set)
	}
}

// check refuses what no script should see. All orders but those to be deducted need an ID.
func (s *Stock) check(ctx context.Context, o *Order, v verb) error {
	if ctx == nil {
		return invalid("the context is nil")
	}
	if ctx.Err() != nil {
		return s.tellFailed(v, ended(ErrNotDone, ctx))
	}
	return o.validate(&s.conf, v != deduct)
}

// home returns the segment at which an order lives.
func (s *Stock) home(o *Order) *home {
	if o.ID == "" && (o.User == "" || s.conf.PerUser == 0) {
		return s.homes[s.anonymous]
	}
	return s.homes[Index(o.route(), len(s.homes))]
}

// about names the stock, and the order if there is one, in an error.
func (s *Stock) about(err error, o *Order) error {
	switch {
	case err == nil:
		return nil
	case o == nil || o.ID == "":
		return fmt.Errorf("%w: stock %q", err, s.name)
	}
	return fmt.Errorf("%w: stock %q, order %q of user %q", err, s.name, o.ID, o.User)
}

func micros(d time.Duration) string { return number(d.Microseconds()) }
