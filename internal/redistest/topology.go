package redistest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// Kind is a way to run Redis.
type Kind string

// The kinds of topologies.
const (
	// Single is one server.
	Single Kind = "single"
	// TLS is one server that speaks TLS only, and has no user but the ones that are made.
	TLS Kind = "tls"
	// Sentinel is a primary with a replica, and three Sentinels.
	Sentinel Kind = "sentinel"
	// Cluster is three primaries with a replica each.
	Cluster Kind = "cluster"
)

// Kinds are all of them.
var Kinds = []Kind{Single, TLS, Sentinel, Cluster}

// MasterSet is the name that Sentinels know the primary by.
const MasterSet = "locks"

// settleLimit bounds the wait for a topology to be whole.
const settleLimit = time.Minute

// Topology is servers that belong together. Like those of a [Server], its methods panic where something can't be done, and those
// that change it are for one goroutine at a time.
type Topology struct {
	kind      Kind
	servers   []*Server // of a cluster: the primaries first, in the order of their slots, then their replicas
	sentinels []*Server
	nodes     map[string]*Server // of a cluster, by id
	dir       string
	// downAfter is when a server that says nothing counts as dead.
	downAfter time.Duration
}

// StartTopology starts servers for a test. One that says nothing counts as dead for the others after downAfter; a minute is never,
// for a test.
func StartTopology(t testing.TB, kind Kind, downAfter time.Duration) *Topology {
	t.Helper()
	topology, err := LaunchTopology(t.TempDir(), kind, downAfter)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(topology.Stop)
	return topology
}

// LaunchTopology is [StartTopology] without a test: whoever calls it also calls [Topology.Stop].
func LaunchTopology(dir string, kind Kind, downAfter time.Duration) (*Topology, error) {
	launch, ok := map[Kind]func(*Topology) error{
		Single: (*Topology).launchSingle, TLS: (*Topology).launchTLS, Sentinel: (*Topology).launchSentinel, Cluster: (*Topology).launchCluster,
	}[kind]
	if !ok {
		return nil, fmt.Errorf("redistest: %q is none of the topologies %v", kind, Kinds)
	}
	var err error
	for range startTries { // somebody may take a port in between
		topology := &Topology{kind: kind, dir: dir, downAfter: downAfter}
		if err = launch(topology); err == nil {
			return topology, nil
		}
		topology.Stop()
	}
	return nil, err
}

// Stop ends all servers.
func (t *Topology) Stop() {
	for _, s := range t.all() {
		s.Stop()
	}
}

func (t *Topology) all() []*Server {
	return append(append([]*Server(nil), t.sentinels...), t.servers...)
}

// Kind is what it is.
func (t *Topology) Kind() Kind { return t.kind }

// Servers are those that have data, replicas too.
func (t *Topology) Servers() []*Server { return t.servers }

// Option is what a client needs to reach it.
func (t *Topology) Option() rueidis.ClientOption {
	switch t.kind {
	case Sentinel:
		var opt rueidis.ClientOption
		for _, s := range t.sentinels {
			opt.InitAddress = append(opt.InitAddress, s.Addr())
		}
		opt.Sentinel.MasterSet = MasterSet
		return opt
	case Cluster:
		var opt rueidis.ClientOption
		for _, s := range t.servers {
			opt.InitAddress = append(opt.InitAddress, s.Addr())
		}
		return opt
	default:
		return t.servers[0].Option()
	}
}

// folder is a new one for a server.
func (t *Topology) folder(name string) (string, error) {
	dir := filepath.Join(t.dir, name)
	if err := os.RemoveAll(dir); err != nil { // of a try before
		return "", fmt.Errorf("redistest: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("redistest: %w", err)
	}
	return dir, nil
}

func (t *Topology) launchSingle() error {
	s, err := Launch(t.dir)
	if err == nil {
		t.servers = append(t.servers, s)
	}
	return err
}

// Primaries are the servers that take writes, as they say themselves, in the order of Servers. One that does not answer is none.
func (t *Topology) Primaries() []*Server {
	var all []*Server
	for _, s := range t.servers {
		if s.role() == "master" && (t.kind != Cluster || s.hasSlots()) {
			all = append(all, s)
		}
	}
	return all
}

// role is what a server says that it is, or empty.
func (s *Server) role() string {
	if s.Pid() == 0 {
		return ""
	}
	message, err := s.DoErr("ROLE")
	if err != nil {
		return ""
	}
	values, err := message.ToArray()
	if err != nil || len(values) == 0 {
		return ""
	}
	role, _ := values[0].ToString()
	return role
}

// inSync says whether a replica has all that its primary had when it asked.
func (s *Server) inSync() bool {
	message, err := s.DoErr("ROLE")
	if err != nil {
		return false
	}
	values, err := message.ToArray()
	if err != nil || len(values) < 4 {
		return false
	}
	state, _ := values[3].ToString()
	return state == "connected"
}

// Primary is the server that has a name (of a key, with its prefix), or nil where there is none at the moment.
func (t *Topology) Primary(name string) *Server {
	if t.kind == Cluster {
		return t.ownerOf(SlotOf(t.servers[0], name))
	}
	for _, s := range t.Primaries() {
		return s
	}
	return nil
}

// SlotOf is the slot of a name, as a server of a cluster says.
func SlotOf(s *Server, name string) int {
	message, err := s.DoErr("CLUSTER", "KEYSLOT", name)
	if err != nil {
		panic(err)
	}
	slot, err := message.AsInt64()
	if err != nil {
		panic(err)
	}
	return int(slot)
}

// Settle waits until the topology is whole: each server has its part, and all of them know.
func (t *Topology) Settle() {
	if err := t.settle(); err != nil {
		panic(err)
	}
}

func (t *Topology) settle() error {
	var err error
	for deadline := time.Now().Add(settleLimit); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		switch t.kind {
		case Sentinel:
			err = t.sentinelWhole()
		case Cluster:
			err = t.clusterWhole()
		default:
			return nil
		}
		if err == nil {
			return nil
		}
	}
	return fmt.Errorf("redistest: the topology is not whole after %v: %w", settleLimit, err)
}

// Restart starts a server again that was killed: a former primary as a replica of the one that took its place.
func (t *Topology) Restart(s *Server) {
	if t.kind == Sentinel {
		s.master = ""
		if now := t.watched(); now != "" && now != s.Addr() {
			s.master = now
		}
	}
	s.Restart()
}

// Failover has a replica take over from a server that is a primary, which both survive, and returns when it has. On a cluster
// nothing is lost by it; with Sentinel both take writes for a while.
func (t *Topology) Failover(primary *Server) {
	for deadline := time.Now().Add(settleLimit); time.Now().Before(deadline); {
		// Asked more than once: soon after another failover nobody votes for it, or it can't be begun.
		_ = t.ask(primary)
		for again := time.Now().Add(time.Second); time.Now().Before(again); time.Sleep(5 * time.Millisecond) {
			if t.takenOver(primary) {
				return
			}
		}
	}
	panic(fmt.Errorf("redistest: nobody took over from %s within %v", primary.Addr(), settleLimit))
}

// ask asks for a failover.
func (t *Topology) ask(primary *Server) (err error) {
	switch t.kind {
	case Sentinel:
		_, err = t.sentinels[0].DoErr("SENTINEL", "FAILOVER", MasterSet)
	case Cluster:
		if replica := t.replicaOf(primary); replica != nil {
			_, err = replica.DoErr("CLUSTER", "FAILOVER")
		}
	default:
		panic(fmt.Errorf("redistest: a topology of kind %s has nobody who could take over", t.kind))
	}
	return err
}

// AwaitTakeover waits until somebody else than the server, which is dead or hangs, is the primary in its place.
func (t *Topology) AwaitTakeover(from *Server) {
	for deadline := time.Now().Add(settleLimit); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if t.takenOver(from) {
			return
		}
	}
	panic(fmt.Errorf("redistest: nobody took over from %s within %v", from.Addr(), settleLimit))
}

func (t *Topology) takenOver(from *Server) bool {
	if t.kind == Sentinel {
		now := t.watched()
		for _, s := range t.servers {
			if s != from && s.Addr() == now && s.role() == "master" {
				return true
			}
		}
		return false
	}
	primaries := 0
	for _, s := range t.servers {
		if s != from && s.role() == "master" && s.hasSlots() {
			primaries++
		}
	}
	return primaries == clusterPrimaries
}

func itoa(n int) string { return strconv.Itoa(n) }

// ReplicaOf is the replica of a primary; nil: it has none at the moment.
func (t *Topology) ReplicaOf(primary *Server) *Server {
	if t.kind == Cluster {
		return t.replicaOf(primary)
	}
	for _, s := range t.servers {
		if s != primary {
			return s
		}
	}
	return nil
}
