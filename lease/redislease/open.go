package redislease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/go-leasehold/leasehold/lease"
)

// openLimit is what Open may take at least, however short the leases are: a new
// connection can need a name's look-up and a TLS handshake. Longer leases give
// it as long as their TTL.
const openLimit = 5 * time.Second

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
	ctx, cancel := context.WithTimeoutCause(ctx, max(s.config.TTL, openLimit), errPatience)
	defer cancel()
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

// meet connects, and finds out what the server can do. It tries again where no
// answer came in time: the connection's time-outs are made for leases that are
// held, and too short for a machine, or a server, that has much to do at first.
func (s *Store) meet(ctx context.Context, sink lease.Sink) error {
	for start := time.Now(); ; {
		err := s.meetOnce(ctx, sink)
		if !timedOut(err) || ctx.Err() != nil || time.Since(start) > openLimit {
			return err
		}
		s.part()
	}
}

func (s *Store) meetOnce(ctx context.Context, sink lease.Sink) error {
	if err := s.checkSentinels(ctx); err != nil {
		return err
	}
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
	return s.probe(ctx)
}

// part undoes meet.
func (s *Store) part() {
	if s.inbox != nil {
		_ = s.inbox.close(context.Background()) // it waits for a connection that is being made, at most
	}
	if s.client != nil {
		s.client.Close()
	}
	s.inbox, s.client = nil, nil
	s.capabilities = lease.Capabilities{}
	s.cluster, s.sharded, s.publish = false, false, "PUBLISH"
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
	err := s.meet(ctx, sink)
	if err != nil && strings.Contains(err.Error(), "allowed in this context") && !s.option.AlwaysRESP2 {
		// It speaks RESP3 and still can't have commands and messages on one
		// connection (miniredis): the client has two under RESP2.
		s.part()
		s.option.AlwaysRESP2, s.option.DisableCache = true, true
		s.log.Info("leasehold: the server can't have commands and messages on one connection; using two, under RESP2", "addr", s.addr)
		err = s.meet(ctx, sink)
	}
	if err != nil {
		return err
	}
	lanes, each := 1, workers
	if s.cluster {
		lanes, each = clusterLanes, clusterWorkers
	}
	for range lanes {
		s.lanes = append(s.lanes, newLane(s, each))
	}
	return nil
}

// undo ends what a failed open has begun.
func (s *Store) undo() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.conns.close()
	s.part()
	close(s.done)
}

// connect dials, with tracking if the server has it.
func (s *Store) connect() (err error) {
	option := s.option
	s.conns.renew()
	s.client, err = rueidis.NewClient(option)
	if errors.Is(err, rueidis.ErrNoCache) && !option.DisableCache {
		refusal := err
		option.DisableCache = true
		s.conns.renew()
		if s.client, err = rueidis.NewClient(option); err == nil {
			s.missing("the server refuses CLIENT TRACKING (%s): a change of a lock from outside is noticed at the next renewal, not at once", firstLine(refusal))
		}
	} else if err == nil && option.DisableCache {
		s.missing("client-side caching is off: a change of a lock from outside is noticed at the next renewal, not at once")
	}
	if err != nil {
		if s.client != nil { // it comes along with an error where it may connect later
			s.client.Close()
		}
		s.client = nil
		return err
	}
	s.capabilities.Tracking = !option.DisableCache
	s.cluster = s.client.Mode() == rueidis.ClientModeCluster
	return nil
}

// checkSentinels refuses addresses of Sentinels at which something else answers:
// the client sends an UNSUBSCRIBE there, whose answer by a data server that
// refuses PINGs it would not survive. Those that don't answer it tries itself.
func (s *Store) checkSentinels(ctx context.Context) error {
	if s.option.Sentinel.MasterSet == "" {
		return nil
	}
	for _, address := range s.option.InitAddress {
		option := s.option
		option.InitAddress, option.ForceSingleClient = []string{address}, true
		option.Dialer, option.TLSConfig = option.Sentinel.Dialer, option.Sentinel.TLSConfig
		option.Username, option.Password, option.ClientName = option.Sentinel.Username, option.Sentinel.Password, option.Sentinel.ClientName
		option.Sentinel = rueidis.SentinelOption{}
		option.SelectDB, option.DisableCache, option.OnInvalidations = 0, true, nil
		client, err := rueidis.NewClient(option)
		var hello map[string]string
		if err == nil {
			hello, err = s.hello(ctx, client)
		}
		if client != nil {
			client.Close()
		}
		if mode := hello["mode"]; err == nil && mode != "" && mode != "sentinel" {
			return &Error{Op: "open", Addr: address, Stage: StageConnect,
				Err: fmt.Errorf("ClientOption.Sentinel is set, and the server says that it is no Sentinel: its mode is %s", mode)}
		}
	}
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
	hello, err := s.hello(ctx, s.client)
	if err == nil && s.cluster && hello["mode"] == "standalone" {
		// It knows CLUSTER SLOTS and is none (miniredis): then it is better
		// off with a client for one server.
		s.client.Close()
		s.option.ForceSingleClient = true
		s.capabilities.Missing = nil
		if err = s.connect(); err == nil {
			hello, err = s.hello(ctx, s.client)
		}
	}
	if err != nil {
		if code(err) == "" {
			return s.wrap("open", err)
		}
		s.capabilities.Server = "a server that doesn't say hello"
		return nil
	}
	s.capabilities.Server = strings.TrimSpace(hello["server"]+" "+hello["version"]) + ", " + string(s.client.Mode())
	if role := hello["role"]; (role == "replica" || role == "slave") && !s.cluster {
		return &Error{Op: "open", Addr: s.addr, Stage: StageServer, Code: "READONLY",
			Err: fmt.Errorf("its role is %s; leases are kept by masters", role)}
	}
	major, _, _ := strings.Cut(hello["version"], ".")
	if n, err := strconv.Atoi(major); s.cluster && err == nil && n >= 7 {
		s.sharded, s.publish = true, "SPUBLISH"
	}
	return nil
}

// hello says hello again, in the protocol that the connection speaks already.
func (s *Store) hello(ctx context.Context, client rueidis.Client) (map[string]string, error) {
	protocol := "3"
	if s.option.AlwaysRESP2 {
		protocol = "2"
	}
	return parseHello(client.Do(ctx, client.B().Arbitrary("HELLO", protocol).Build()))
}

// parseHello keeps the words of what a server says of itself.
func parseHello(result rueidis.RedisResult) (map[string]string, error) {
	answer, err := result.AsMap()
	if err != nil {
		return nil, err
	}
	words := make(map[string]string, len(answer))
	for field, value := range answer {
		if word, err := value.ToString(); err == nil {
			words[field] = word
		}
	}
	return words, nil
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
		return s.inbox.subscriber.Close(ctx)
	}
	return s.wrap("subscribe", err)
}

// probe finds out whether scripts may be run, whether they may call what they
// need (one that is stopped half way could leave a lock that never ends), and
// whether the answer of PUBLISH can be trusted to count us.
func (s *Store) probe(ctx context.Context) error {
	heard, failures, err := s.tryCommands(ctx)
	if err != nil {
		return s.wrap("open", err)
	}
	if denied := failures.denied(); len(denied) > 0 {
		return &Error{Op: "open", Addr: s.addr, Stage: StageServer, Code: "NOPERM",
			Err: fmt.Errorf("scripts may not call %s on %s*: %s", strings.Join(denied, ", "), s.config.Prefix, failures[denied[0]])}
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

// failures are the commands that a script could not call, and the server's
// errors.
type failures map[string]string

// denied are those that the user has no right to.
func (f failures) denied() (commands []string) {
	for command, text := range f {
		if strings.Contains(text, "NOPERM") || strings.Contains(text, "The user executing the script can't") {
			commands = append(commands, command)
		}
	}
	slices.Sort(commands)
	return commands
}

// tryCommands has a script try out what scripts need, and says how many
// received its message in our inbox.
func (s *Store) tryCommands(ctx context.Context) (heard int64, failed failures, err error) {
	name := s.inbox.name
	if s.sharded {
		name += inboxEnd(0) // any slot will do
	}
	probe := s.client.B().Eval().Script(source("probe")).Numkeys(1).Key(name).Arg(s.publish).Build()
	return parseProbe(s.client.Do(ctx, probe))
}

// parseProbe reads how many received the message, and then each command that failed, and why.
func parseProbe(result rueidis.RedisResult) (heard int64, failed failures, err error) {
	values, err := result.ToArray()
	if err != nil {
		return 0, nil, err
	}
	if len(values)%2 != 1 {
		return 0, nil, fmt.Errorf("the probe's answer has %d values, not an odd number", len(values))
	}
	heard, err = values[0].ToInt64()
	if err == nil && heard < 0 {
		err = fmt.Errorf("the probe's answer says that %d received its message", heard)
	}
	if err != nil {
		return 0, nil, err
	}
	failed = failures{}
	for values = values[1:]; len(values) > 0; values = values[2:] {
		command, err := values[0].ToString()
		if err != nil {
			return 0, nil, err
		}
		if failed[command], err = values[1].ToString(); err != nil {
			return 0, nil, err
		}
	}
	return heard, failed, nil
}
