package redislease

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/go-leasehold/leasehold/lease"
)

// Open implements [lease.Store]: it connects, subscribes the inbox, and finds
// out what the server can do. It fails where leases can't work at all: no
// connection, a replica, no right to run scripts or to publish.
func (s *Store) Open(ctx context.Context, id string, sink lease.Sink) (lease.Capabilities, error) {
	if err := checkID(id); err != nil {
		return lease.Capabilities{}, err
	}
	s.mu.Lock()
	closed, opened := s.closed, s.opened
	s.mu.Unlock()
	if closed {
		return lease.Capabilities{}, lease.ErrStoreClosed
	}
	if opened {
		return lease.Capabilities{}, errors.New("redislease: the store is open already")
	}
	// The client can't be told to give up, but its connections can be cut.
	stop := context.AfterFunc(ctx, s.conns.close)
	defer stop()
	s.id = id
	if err := s.open(ctx, sink); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		s.undo()
		return lease.Capabilities{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened = true
	return s.capabilities, nil
}

// checkID refuses what would make an owner or a message ambiguous.
func checkID(id string) error {
	if id == "" || len(id) > 256 {
		return fmt.Errorf("redislease: a coordinator id of %d bytes is not between 1 and 256", len(id))
	}
	for _, r := range id {
		if r <= ' ' || r == 0x7f || strings.ContainsRune(":{}", r) {
			return fmt.Errorf("redislease: the coordinator id %q has a %q: colons, braces, spaces and control characters can't be told from what stands around it", id, r)
		}
	}
	return nil
}

func (s *Store) open(ctx context.Context, sink lease.Sink) error {
	if err := s.connect(); err != nil {
		return s.wrap("open", err)
	}
	if err := s.greet(ctx); err != nil {
		return err
	}
	s.inbox = newInbox(s, sink)
	if err := s.listen(ctx); err != nil {
		return err
	}
	if err := s.probe(ctx); err != nil {
		return err
	}
	lanes, each := 1, workers
	if s.cluster {
		lanes, each = clusterLanes, clusterWorkers
	}
	for range lanes {
		s.lanes = append(s.lanes, newLane(s, each))
	}
	for _, missing := range s.capabilities.Missing {
		s.log.Warn("leasehold: "+missing, "addr", s.addr)
	}
	return nil
}

// undo ends what a failed open has begun.
func (s *Store) undo() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.conns.close()
	if s.inbox != nil {
		ended, cancel := context.WithCancel(context.Background())
		cancel() // the connections are gone: there is nothing to say goodbye to
		_ = s.inbox.close(ended)
	}
	if s.client != nil {
		s.client.Close()
	}
	close(s.done)
}

// connect dials, with tracking if the server has it.
func (s *Store) connect() (err error) {
	option := s.option
	s.client, err = rueidis.NewClient(option)
	if errors.Is(err, rueidis.ErrNoCache) && !option.DisableCache {
		refusal := err
		option.DisableCache = true
		if s.client, err = rueidis.NewClient(option); err == nil {
			s.missing("the server refuses CLIENT TRACKING (%s): a change of a lock from outside is noticed at the next renewal, not at once", firstLine(refusal))
		}
	} else if err == nil && option.DisableCache {
		s.missing("client-side caching is off in the options: a change of a lock from outside is noticed at the next renewal, not at once")
	}
	if err != nil {
		s.client = nil
		return err
	}
	s.capabilities.Tracking = !option.DisableCache
	s.cluster = s.client.Mode() == rueidis.ClientModeCluster
	return nil
}

func (s *Store) missing(format string, args ...any) {
	s.capabilities.Missing = append(s.capabilities.Missing, fmt.Sprintf(format, args...))
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// greet asks the server for its name, version and role.
func (s *Store) greet(ctx context.Context) error {
	hello, err := s.client.Do(ctx, s.client.B().Arbitrary("HELLO").Build()).AsMap()
	if err != nil {
		s.capabilities.Server = "a server that doesn't say hello"
		if broken(err) || unsent(err) || ctx.Err() != nil {
			return s.wrap("open", err)
		}
		return nil
	}
	word := func(field string) string {
		value := hello[field]
		text, _ := value.ToString()
		return text
	}
	s.capabilities.Server = strings.TrimSpace(word("server")+" "+word("version")) + ", " + string(s.client.Mode())
	if role := word("role"); (role == "replica" || role == "slave") && !s.cluster {
		return &Error{Op: "open", Addr: s.addr, Stage: StageServer, Code: "READONLY",
			Err: fmt.Errorf("its role is %s; leases are kept by masters", role)}
	}
	major, _, _ := strings.Cut(word("version"), ".")
	if n, err := strconv.Atoi(major); s.cluster && err == nil && n >= 7 {
		s.sharded, s.publish = true, "SPUBLISH"
	}
	return nil
}

// listen subscribes the inbox. On a cluster with sharded channels each slot's
// is subscribed when the slot is first used.
func (s *Store) listen(ctx context.Context) error {
	if s.sharded {
		s.capabilities.Notices = true
		return nil
	}
	name := s.inbox.name
	err := s.inbox.subscriber.Subscribe(name)
	if err == nil {
		err = s.inbox.subscriber.Wait(ctx, name)
	}
	if err == nil {
		s.capabilities.Notices = true
		return nil
	}
	switch code(err) {
	case "NOPERM", "ERR": // it will not come, however often we ask
		s.inbox.deaf = true
		s.missing("the inbox %q can't be subscribed (%s): grants are noticed when a waiter looks, not at once", name, firstLine(err))
		ended, cancel := context.WithCancel(ctx)
		cancel()
		_ = s.inbox.subscriber.Close(ended)
		return nil
	}
	return s.wrap("subscribe", err)
}

// probeText is run once: whether scripts may be run at all, whether they may
// publish, and whether the answer of PUBLISH can be trusted to count us.
const probeText = "return redis.call(ARGV[1], KEYS[1], ARGV[2])"

func (s *Store) probe(ctx context.Context) error {
	name := s.inbox.name
	if s.sharded {
		name += inboxEnd(0) // nobody is subscribed there yet
	}
	probe := s.client.B().Eval().Script(probeText).Numkeys(1).Key(name).Arg(s.publish, verbProbe).Build()
	heard, err := s.client.Do(ctx, probe).AsInt64()
	if err != nil {
		return s.wrap("open", err)
	}
	switch {
	case s.sharded:
		s.capabilities.Receipts = true
	case s.cluster:
		s.missing("the cluster is older than Redis 7.0 and has no sharded channels: a grant to a process that is gone costs its lease's time")
	case !s.capabilities.Notices:
	case heard == 0:
		s.missing("PUBLISH doesn't count the inbox among its receivers: a grant to a process that is gone costs its lease's time")
	default:
		s.capabilities.Receipts = true
	}
	return nil
}
