package redistest

import (
	"fmt"
	"net"
	"strings"
)

const (
	clusterSlots     = 16384
	clusterPrimaries = 3
)

// launchCluster starts three primaries, with a third of the slots each, and a replica for each.
func (t *Topology) launchCluster() error {
	for i := range 2 * clusterPrimaries {
		dir, err := t.folder("node" + itoa(i))
		if err != nil {
			return err
		}
		s, err := launchAt(dir, func(s *Server) {
			s.args = append([]string{
				"--cluster-enabled", "yes", "--cluster-node-timeout", itoa(int(t.downAfter.Milliseconds())),
				"--cluster-require-full-coverage", "no", "--cluster-allow-pubsubshard-when-down", "yes", "--cluster-replica-validity-factor", "0",
			}, replicationArgs...)
		})
		if err != nil {
			return err
		}
		t.servers = append(t.servers, s)
	}
	if err := t.join(); err != nil {
		return err
	}
	return t.settle()
}

// join makes one cluster of the nodes.
func (t *Topology) join() error {
	t.nodes = map[string]*Server{}
	host, port, _ := net.SplitHostPort(t.servers[0].Addr()) // of ours
	for i, s := range t.servers {
		id, err := s.text("CLUSTER", "MYID")
		if err != nil {
			return err
		}
		t.nodes[id] = s
		commands := [][]string{{"CLUSTER", "SET-CONFIG-EPOCH", itoa(i + 1)}, {"CLUSTER", "MEET", host, port}}
		if i < clusterPrimaries {
			add := []string{"CLUSTER", "ADDSLOTS"}
			for slot := i * clusterSlots / clusterPrimaries; slot < (i+1)*clusterSlots/clusterPrimaries; slot++ {
				add = append(add, itoa(slot))
			}
			commands = append(commands, add)
		}
		for _, command := range commands {
			if _, err := s.DoErr(command...); err != nil {
				return fmt.Errorf("redistest: %v: %w", command[:2], err)
			}
		}
	}
	for i := range clusterPrimaries {
		if err := t.attach(t.servers[clusterPrimaries+i], t.servers[i]); err != nil {
			return err
		}
	}
	return nil
}

// attach makes a node the replica of another, once it knows it.
func (t *Topology) attach(replica, primary *Server) error {
	id, err := primary.text("CLUSTER", "MYID")
	if err != nil {
		return err
	}
	return retry(func() error {
		_, err := replica.DoErr("CLUSTER", "REPLICATE", id)
		return err
	})
}

// text is a reply that is a text.
func (s *Server) text(command ...string) (string, error) {
	message, err := s.DoErr(command...)
	if err != nil {
		return "", err
	}
	text, err := message.ToString()
	return strings.TrimPrefix(text, "txt:"), err // the mark of a verbatim string
}

// clusterWhole says what is missing: all slots have a primary, each primary a replica in sync, and every node knows.
func (t *Topology) clusterWhole() error {
	for _, s := range t.servers {
		info, err := s.text("CLUSTER", "INFO")
		if err != nil {
			return fmt.Errorf("the node %s: %w", s.Addr(), err)
		}
		for _, line := range []string{"cluster_state:ok", "cluster_slots_ok:16384", "cluster_known_nodes:" + itoa(len(t.servers)), "cluster_size:3"} {
			if !strings.Contains(info, line+"\r") {
				return fmt.Errorf("the node %s lacks %s", s.Addr(), line)
			}
		}
		nodes, err := s.nodeLines()
		if err != nil {
			return err
		}
		for _, n := range nodes {
			if strings.Contains(n.flags, "fail") || strings.Contains(n.flags, "handshake") || n.link != "connected" {
				return fmt.Errorf("the node %s sees %s as %s, %s", s.Addr(), n.id, n.flags, n.link)
			}
		}
	}
	primaries := t.Primaries()
	if len(primaries) != clusterPrimaries {
		return fmt.Errorf("there are %d primaries", len(primaries))
	}
	for _, p := range primaries {
		if r := t.replicaOf(p); r == nil || !r.inSync() {
			return fmt.Errorf("the primary %s has no replica in sync", p.Addr())
		}
	}
	return t.agreed()
}

// agreed says where two nodes have different ideas of who has which slots.
func (t *Topology) agreed() error {
	owners := ""
	for _, s := range t.servers {
		nodes, err := s.nodeLines()
		if err != nil {
			return err
		}
		var mine []string
		for id := range t.nodes {
			for _, n := range nodes {
				if n.id == id && len(n.slots) > 0 {
					mine = append(mine, id+" "+strings.Join(n.slots, ","))
				}
			}
		}
		text := strings.Join(sorted(mine), ";")
		if owners == "" {
			owners = text
		}
		if text != owners {
			return fmt.Errorf("the node %s has another idea of who has which slots", s.Addr())
		}
	}
	return nil
}

// nodeLine is a node as another one sees it.
type nodeLine struct {
	id, flags, primary, link string
	slots                    []string // ranges; without those that are moving
}

func (s *Server) nodeLines() ([]nodeLine, error) {
	if s.Pid() == 0 {
		return nil, fmt.Errorf("the node %s is not running", s.Addr())
	}
	text, err := s.text("CLUSTER", "NODES")
	if err != nil {
		return nil, fmt.Errorf("the node %s: %w", s.Addr(), err)
	}
	var all []nodeLine
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 8 {
			continue
		}
		n := nodeLine{id: f[0], flags: f[2], primary: f[3], link: f[7]}
		for _, slots := range f[8:] {
			if !strings.HasPrefix(slots, "[") {
				n.slots = append(n.slots, slots)
			}
		}
		all = append(all, n)
	}
	return all, nil
}

// hasSlots says whether a node of a cluster believes that it has any.
func (s *Server) hasSlots() bool {
	nodes, _ := s.nodeLines()
	for _, n := range nodes {
		if strings.Contains(n.flags, "myself") {
			return len(n.slots) > 0
		}
	}
	return false
}

// replicaOf is the replica of a primary, as it says itself.
func (t *Topology) replicaOf(primary *Server) *Server {
	for _, s := range t.servers {
		if s == primary || s.Pid() == 0 {
			continue
		}
		nodes, err := s.nodeLines()
		if err != nil {
			continue
		}
		for _, n := range nodes {
			if strings.Contains(n.flags, "myself") && t.nodes[n.primary] == primary {
				return s
			}
		}
	}
	return nil
}

// ownerOf is the primary that says that it has a slot; nil: none does.
func (t *Topology) ownerOf(slot int) *Server {
	for _, s := range t.servers {
		if s.Pid() == 0 {
			continue
		}
		nodes, err := s.nodeLines()
		if err != nil {
			continue
		}
		for _, n := range nodes {
			if strings.Contains(n.flags, "myself") && n.has(slot) {
				return s
			}
		}
	}
	return nil
}

func (n *nodeLine) has(slot int) bool {
	for _, r := range n.slots {
		var first, last int
		if m, _ := fmt.Sscanf(r, "%d-%d", &first, &last); m == 1 {
			last = first
		}
		if first <= slot && slot <= last {
			return true
		}
	}
	return false
}

// MoveSlot moves a slot, with all its keys, to another primary. Halfway, which may be nil, is called when both nodes know and no key has
// moved, and after each key.
func (t *Topology) MoveSlot(slot int, to *Server, halfway func()) error {
	if halfway == nil {
		halfway = func() {}
	}
	from := t.ownerOf(slot)
	if from == nil || from == to {
		return fmt.Errorf("redistest: slot %d can't be moved to %s", slot, to.Addr())
	}
	ids := map[*Server]string{}
	for id, s := range t.nodes {
		ids[s] = id
	}
	number := itoa(slot)
	if _, err := to.DoErr("CLUSTER", "SETSLOT", number, "IMPORTING", ids[from]); err != nil {
		return err
	}
	if _, err := from.DoErr("CLUSTER", "SETSLOT", number, "MIGRATING", ids[to]); err != nil {
		return err
	}
	halfway()
	host, port, _ := net.SplitHostPort(to.Addr()) // of ours
	for {
		message, err := from.DoErr("CLUSTER", "GETKEYSINSLOT", number, "1")
		if err != nil {
			return err
		}
		keys, err := message.AsStrSlice()
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			break
		}
		if _, err := from.DoErr("MIGRATE", host, port, keys[0], "0", "10000"); err != nil {
			return err
		}
		halfway()
	}
	for _, s := range []*Server{to, from} {
		if err := retry(func() error {
			_, err := s.DoErr("CLUSTER", "SETSLOT", number, "NODE", ids[to])
			return err
		}); err != nil {
			return err
		}
	}
	for _, s := range t.servers {
		if s != to && s != from && s.role() == "master" {
			_, _ = s.DoErr("CLUSTER", "SETSLOT", number, "NODE", ids[to]) // it would hear of it anyway
		}
	}
	return nil
}
