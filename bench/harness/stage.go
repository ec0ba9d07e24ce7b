package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/go-leasehold/leasehold/bench/contender"
	"github.com/go-leasehold/leasehold/bench/delay"
)

// Plan is how much is measured.
type Plan struct {
	Full      bool
	Rounds    int
	Warm, For time.Duration // of a round, where it goes by time
	Delays    []time.Duration
	TTL       time.Duration // of locks, where a scenario has none of its own

	// Only tells which points are measured. nil: all.
	Only func(scenario string, point Point) bool
}

// Quick, Full and Check are the plans of `make bench`, `make bench-full` and `make bench-check`.
var (
	Quick = Plan{Rounds: 3, Warm: 30 * time.Millisecond, For: 120 * time.Millisecond, TTL: 10 * time.Second, Delays: []time.Duration{0}}
	Check = Plan{Rounds: 5, Warm: 30 * time.Millisecond, For: 200 * time.Millisecond, TTL: 10 * time.Second, Delays: []time.Duration{0}}
	Full  = Plan{
		Full: true, Rounds: 5, Warm: 100 * time.Millisecond, For: 300 * time.Millisecond, TTL: 10 * time.Second,
		Delays: []time.Duration{0, 200 * time.Microsecond, time.Millisecond, 5 * time.Millisecond},
	}
)

// Stage is what all scenarios of a run share: the server, the ways to it, and the guard. One goroutine uses it.
type Stage struct {
	Server *Server
	Plan   Plan
	guard  *Guard
	path   string // of the guard
	dir    string
	ways   map[time.Duration]*delay.Proxy
	run    string // in each key, so that two runs on one server don't meet
}

// NewStage sets the stage; Close clears it. It closes the server, too.
func NewStage(server *Server, plan Plan) (*Stage, error) {
	dir, err := os.MkdirTemp("", "leasehold-bench-guard")
	if err != nil {
		return nil, err
	}
	s := &Stage{
		Server: server, Plan: plan, dir: dir, path: filepath.Join(dir, "guard"), ways: map[time.Duration]*delay.Proxy{},
		run: fmt.Sprintf("bench:%d", time.Now().UnixNano()),
	}
	if err = CreateGuard(s.path); err == nil {
		s.guard, err = OpenGuard(s.path)
	}
	if err != nil {
		_ = os.RemoveAll(dir) // the first error tells more
		return nil, err
	}
	return s, nil
}

// Close ends the ways and the server.
func (s *Stage) Close() error {
	var errs []error
	for _, way := range s.ways {
		errs = append(errs, way.Close())
	}
	s.Server.Close()
	return errors.Join(append(errs, s.guard.Close(), os.RemoveAll(s.dir))...)
}

// addr is where clients connect to have a delay added to each round trip.
func (s *Stage) addr(roundTrip time.Duration) (string, error) {
	if roundTrip == 0 {
		return s.Server.Addr, nil
	}
	if way, ok := s.ways[roundTrip]; ok {
		return way.Addr(), nil
	}
	way, err := delay.Listen(s.Server.Addr, roundTrip)
	if err != nil {
		return "", err
	}
	s.ways[roundTrip] = way
	return way.Addr(), nil
}

// Cast is the processes of one contender at one point of a scenario. They stay for all rounds.
type Cast struct {
	*Stage
	Contender contender.Info
	Point     Point
	Delay     time.Duration
	TTL       time.Duration
	Children  []*ChildProcess
	scenario  string
	round     int
	joined    int    // children there have been
	failed    string // what the first failed call of this round said, in a round that is told

	environment []string // of children, beside that of the program
}

// Point is one of those that a scenario is measured at.
type Point struct {
	Label string  // "64"
	X     float64 // on an axis
}

// Prefix begins the names of all keys of this round: no round meets what another one left.
func (c *Cast) Prefix() string {
	return fmt.Sprintf("%s:%s:%s:%s:%d:%d", c.run, c.scenario, c.Point.Label, c.Contender.Name, c.Delay.Microseconds(), c.round)
}

// Key is the name of a key of this round's loads.
func (c *Cast) Key(number int) string { return keyOf(c.Prefix(), number) }

// Join starts one more child, and opens the contender in it.
func (c *Cast) Join(ctx context.Context) (*ChildProcess, error) {
	addr, err := c.addr(c.Delay)
	if err != nil {
		return nil, err
	}
	child, err := start(c.environment...)
	if err != nil {
		return nil, err
	}
	args := OpenArgs{Number: c.joined, Contender: c.Contender.Name, Addr: addr, TTL: c.TTL, Guard: c.path}
	if err := child.Call(ctx, "Worker.Open", args, &Nothing{}); err != nil {
		child.Kill()
		return nil, err
	}
	c.Children = append(c.Children, child)
	c.joined++
	return child, nil
}

// Kill kills a child as a crash would, and forgets it, and what it held, as far as the guard knows.
func (c *Cast) Kill(child *ChildProcess) {
	child.Kill()
	for i, other := range c.Children {
		if other == child {
			c.Children = append(c.Children[:i], c.Children[i+1:]...)
			break
		}
	}
}

// rest lets a contender finish what it does after a round, and then freezes its processes until it is their turn again:
// their pings in the background would be counted for others, and they would take CPU time from them. Leases may expire
// meanwhile, but those are of keys that no later round uses; connections stay.
func (c *Cast) rest(ctx context.Context) error {
	if c.Contender.Kind == contender.Ours {
		if err := c.quiet(ctx); err != nil {
			return err
		}
	}
	var errs []error
	for _, child := range c.Children {
		errs = append(errs, child.Pause())
	}
	return errors.Join(errs...)
}

// quiet waits until a contender that keeps leases for a while has given them up, so that they neither are given up nor
// expire while another one is measured.
func (c *Cast) quiet(ctx context.Context) error {
	const (
		kept  = 60 * time.Millisecond // leasehold's retention, and some
		few   = 10                    // pings, and the like
		limit = 20
	)
	before, err := c.Server.Read(ctx)
	for range limit {
		if err != nil {
			return err
		}
		pauseUntil(ctx, time.Now().Add(kept))
		var now Reading
		if now, err = c.Server.Read(ctx); err == nil && now.Since(before).Commands <= few {
			return nil
		}
		before = now
	}
	return err
}

// wake lets processes go on.
func (c *Cast) wake() error {
	var errs []error
	for _, child := range c.Children {
		errs = append(errs, child.Resume())
	}
	return errors.Join(errs...)
}

// kill kills all children: of a contender that failed nobody knows what its calls still do, to the guard or to Redis.
func (c *Cast) kill() {
	for _, child := range c.Children {
		child.Kill()
	}
	c.Children = nil
}

// ClearGuard forgets who is inside.
func (c *Cast) ClearGuard() { c.guard.Clear() }

// end ends all children.
func (c *Cast) end(ctx context.Context) error {
	_ = c.wake() // whoever can't go on is killed below
	errs := make(chan error, len(c.Children))
	for _, child := range c.Children {
		go func() { errs <- child.End(ctx) }()
	}
	var all []error
	for range c.Children {
		all = append(all, <-errs)
	}
	c.Children = nil
	return errors.Join(all...)
}
