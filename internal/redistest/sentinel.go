package redistest

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// replicationArgs have a replica in sync at once, and notice at once where its primary has gone.
var replicationArgs = []string{"--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"}

// launchSentinel starts a primary with a replica, and three Sentinels who know each other from the beginning, for to find each
// other takes them seconds.
func (t *Topology) launchSentinel() error {
	for _, name := range []string{"a", "b"} {
		dir, err := t.folder(name)
		if err != nil {
			return err
		}
		s, err := launchAt(dir, func(s *Server) {
			s.args = replicationArgs
			if len(t.servers) > 0 {
				s.master = t.servers[0].Addr()
			}
		})
		if err != nil {
			return err
		}
		t.servers = append(t.servers, s)
	}
	if err := t.writeSentinels(); err != nil {
		return err
	}
	for _, s := range t.sentinels {
		if err := s.run(); err != nil {
			return err
		}
		// By default they look each ten seconds, and so long a former primary takes writes beside the new one. (Before Redis 7 it
		// can't be changed.)
		_, _ = s.DoErr("SENTINEL", "DEBUG", "INFO-PERIOD", "500", "PUBLISH-PERIOD", "250")
	}
	return t.settle()
}

// writeSentinels writes the Sentinels' files.
func (t *Topology) writeSentinels() error {
	ids := make([]string, 3)
	for i := range ids {
		dir, err := t.folder("sentinel" + itoa(i))
		if err != nil {
			return err
		}
		s, err := newServer(dir)
		if err != nil {
			return err
		}
		if s.port, err = freePort(); err != nil {
			return err
		}
		s.config = filepath.Join(dir, "sentinel.conf")
		t.sentinels = append(t.sentinels, s)
		id := make([]byte, 20)
		_, _ = rand.Read(id) // it never fails
		ids[i] = hex.EncodeToString(id)
	}
	for i, s := range t.sentinels {
		lines := []string{
			"port " + itoa(s.port), "bind 127.0.0.1", "dir " + s.dir, "sentinel myid " + ids[i],
			"sentinel monitor " + MasterSet + " " + words(t.servers[0].Addr()) + " 2",
			fmt.Sprintf("sentinel down-after-milliseconds %s %d", MasterSet, t.downAfter.Milliseconds()),
			fmt.Sprintf("sentinel failover-timeout %s %d", MasterSet, max(1000, t.downAfter.Milliseconds())),
			"sentinel known-replica " + MasterSet + " " + words(t.servers[1].Addr()),
		}
		for j, other := range t.sentinels {
			if i != j {
				lines = append(lines, "sentinel known-sentinel "+MasterSet+" "+words(other.Addr())+" "+ids[j])
			}
		}
		if err := os.WriteFile(s.config, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			return fmt.Errorf("redistest: %w", err)
		}
	}
	return nil
}

// words is an address as Redis's configuration has it.
func words(addr string) string { return strings.Replace(addr, ":", " ", 1) }

// watched is the address of the primary, as most Sentinels have it, or empty.
func (t *Topology) watched() string {
	count := map[string]int{}
	for _, s := range t.sentinels {
		message, err := s.DoErr("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MasterSet)
		if err != nil {
			continue
		}
		values, err := message.AsStrSlice()
		if err != nil || len(values) != 2 {
			continue
		}
		addr := net.JoinHostPort(values[0], values[1])
		if count[addr]++; 2*count[addr] > len(t.sentinels) {
			return addr
		}
	}
	return ""
}

// sentinelWhole says what is missing: one primary, that all Sentinels know, with a replica in sync, which they know as well.
func (t *Topology) sentinelWhole() error {
	primaries := t.Primaries()
	if len(primaries) != 1 {
		return fmt.Errorf("there are %d primaries", len(primaries))
	}
	for _, s := range t.servers {
		if s != primaries[0] && !s.inSync() {
			return fmt.Errorf("the replica %s is not in sync", s.Addr())
		}
	}
	for _, s := range t.sentinels {
		message, err := s.DoErr("SENTINEL", "MASTER", MasterSet)
		if err != nil {
			return fmt.Errorf("the Sentinel %s: %w", s.Addr(), err)
		}
		m, err := message.AsStrMap()
		if err != nil {
			return fmt.Errorf("the Sentinel %s: %w", s.Addr(), err)
		}
		if net.JoinHostPort(m["ip"], m["port"]) != primaries[0].Addr() || m["flags"] != "master" ||
			m["num-slaves"] != itoa(len(t.servers)-1) || m["num-other-sentinels"] != itoa(len(t.sentinels)-1) {
			return fmt.Errorf("the Sentinel %s sees %s:%s, %s, %s replicas, %s others", s.Addr(), m["ip"], m["port"], m["flags"], m["num-slaves"], m["num-other-sentinels"])
		}
	}
	return nil
}

// KillPrimary kills the primary that has a name, and returns it, and when it was dead.
func (t *Topology) KillPrimary(name string) (*Server, time.Time) {
	s := t.Primary(name)
	s.Kill()
	return s, time.Now()
}
