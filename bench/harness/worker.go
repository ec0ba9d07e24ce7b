package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"time"

	"github.com/go-leasehold/leasehold/bench/contender"
)

// Worker is one process that takes part, as its parent calls it, by net/rpc. Its parent makes one call at a time, but for Load and what a scenario
// says of its own services.
type Worker struct {
	number   int
	info     contender.Info
	process  contender.Process
	excludes bool
	guard    *Guard
	wire     *Wire
	holds    map[string]held
	load     *load // that Prepare made ready, and Load runs
}

// held is a lock that Hold took.
type held struct {
	contender.Hold
	cancel context.CancelFunc // of the context that it was asked for with
}

// OpenArgs is what a process has to know to take part.
type OpenArgs struct {
	Number    int // of the process, from zero
	Contender string
	Addr      string // of Redis, or of what delays the way to it
	TTL       time.Duration
	Guard     string // path
}

// Nothing is an argument or an answer that says nothing.
type Nothing struct{}

// Open opens the contender.
func (w *Worker) Open(args OpenArgs, _ *Nothing) error {
	info, err := contender.Find(args.Contender)
	if err != nil {
		return err
	}
	if w.guard, err = OpenGuard(args.Guard); err != nil {
		return err
	}
	w.number, w.info, w.wire, w.holds = args.Number, info, &Wire{}, map[string]held{}
	w.excludes = !info.ExcludesNobody
	w.process, err = info.Open(context.Background(), contender.Setup{Addr: args.Addr, TTL: args.TTL, Dial: w.wire.Dial})
	return err
}

// Close closes the contender.
func (w *Worker) Close(Nothing, *Nothing) error {
	return errors.Join(w.process.Close(), w.guard.Close())
}

// Process returns what is open, for services of scenarios.
func (w *Worker) Process() contender.Process { return w.process }

// Info returns who is open.
func (w *Worker) Info() contender.Info { return w.info }

// Guard returns what finds holders that should not be there.
func (w *Worker) Guard() *Guard { return w.guard }

// Wire returns what counts commands.
func (w *Worker) Wire() *Wire { return w.wire }

// lockLimit bounds a single Lock of Hold: whoever needs longer for a free lock has hung.
const lockLimit = 30 * time.Second

// Hold takes the lock of a key and keeps it until Release.
func (w *Worker) Hold(key string, _ *Nothing) error {
	// For some contenders the end of the context is the end of the hold, too, so it ends only if the lock does not come.
	ctx, cancel := context.WithCancel(context.Background())
	limit := time.AfterFunc(lockLimit, cancel)
	hold, err := w.process.Mutex(key).Lock(ctx)
	if !limit.Stop() || err != nil {
		cancel()
		return fmt.Errorf("%s: lock %s within %v: %w", w.info.Name, key, lockLimit, cmp.Or(err, context.DeadlineExceeded))
	}
	w.holds[key] = held{hold, cancel}
	return nil
}

// Release gives back what Hold took.
func (w *Worker) Release(key string, _ *Nothing) error {
	hold, ok := w.holds[key]
	if !ok {
		return fmt.Errorf("%s does not hold %s", w.info.Name, key)
	}
	delete(w.holds, key)
	defer hold.cancel()
	return hold.Unlock()
}

// Service makes a service of a scenario's own, whose methods a parent calls as "Name.Method".
type Service struct {
	Name string
	New  func(*Worker) any
}

// stdio is the way to the parent.
type stdio struct {
	io.Reader
	io.WriteCloser
}

// Child is what a child process does until its parent ends the connection. It answers on standard output, so what a
// contender prints goes to standard error.
func Child(services []Service) error {
	way := stdio{os.Stdin, os.Stdout}
	os.Stdout = os.Stderr
	worker, server := &Worker{}, rpc.NewServer()
	if err := server.RegisterName("Worker", worker); err != nil {
		return err
	}
	for _, s := range services {
		if err := server.RegisterName(s.Name, s.New(worker)); err != nil {
			return err
		}
	}
	server.ServeConn(way)
	return nil
}
