package redislease

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/go-leasehold/leasehold/lease"
)

// Codes of the problems that Check finds.
const (
	ProblemVersion     = "version"     // the server is too old
	ProblemReadOnly    = "readonly"    // it is a replica
	ProblemEviction    = "eviction"    // it may evict locks
	ProblemMemory      = "memory"      // it has no memory left
	ProblemPersistence = "persistence" // it can't write its snapshots
	ProblemReplicas    = "replicas"    // it has too few replicas to accept changes
	ProblemScripts     = "scripts"     // it runs no scripts
	ProblemACL         = "acl"         // a right is missing
	ProblemTracking    = "tracking"    // changes from outside are noticed late
	ProblemInbox       = "inbox"       // grants are noticed late
	ProblemReceipts    = "receipts"    // the dead are not passed over
	ProblemCluster     = "cluster"     // the cluster is down, or a slot's loss stops all of it
	ProblemUnknown     = "unknown"     // something could not be looked at
)

// checkup collects the problems of one Check.
type checkup struct {
	store    *Store
	problems []lease.Problem
}

func (c *checkup) add(code string, fatal bool, format string, args ...any) {
	p := lease.Problem{Code: code, Fatal: fatal, Text: fmt.Sprintf(format, args...)}
	if !slices.Contains(c.problems, p) {
		c.problems = append(c.problems, p)
	}
}

// Check implements [lease.Store]. It needs no rights beyond those for locks: what
// it may not look at it tells as a problem of its own. It tries out the commands
// that locks need, on the name of the store's own inbox.
func (s *Store) Check(ctx context.Context) ([]lease.Problem, error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.config.TTL/3, errPatience)
	defer cancel()
	if err := s.client.Do(ctx, s.client.B().Ping().Build()).Error(); err != nil && code(err) == "" {
		return nil, s.wrap("check", err)
	}
	c := &checkup{store: s}
	c.capabilities()
	nodes := s.client.Nodes()
	addresses := make([]string, 0, len(nodes))
	for address := range nodes {
		addresses = append(addresses, address)
	}
	slices.Sort(addresses)
	for _, address := range addresses {
		c.server(ctx, address, nodes[address])
	}
	if s.cluster {
		c.cluster(ctx)
	}
	c.rights(ctx)
	slices.SortStableFunc(c.problems, func(a, b lease.Problem) int {
		switch {
		case a.Fatal && !b.Fatal:
			return -1
		case b.Fatal && !a.Fatal:
			return 1
		}
		return cmp.Compare(a.Code, b.Code)
	})
	return c.problems, nil
}

func (c *checkup) capabilities() {
	has := c.store.capabilities
	if !has.Tracking {
		c.add(ProblemTracking, false, "the connection has no CLIENT TRACKING: a lock deleted or taken from outside is noticed at the next renewal, not at once; use a Redis server of 6.0 or later without a proxy before it, and RESP3")
	}
	if !has.Notices {
		c.add(ProblemInbox, false, "the inbox can't be subscribed: a waiter learns of its grant when it looks, not at once; grant SUBSCRIBE on &%s*", c.store.config.Prefix)
	} else if !has.Receipts {
		c.add(ProblemReceipts, false, "PUBLISH doesn't say who received a message: a grant to a process that is gone costs its lease's time; use Redis, on a cluster 7.0 or later")
	}
}

// server looks at one server: its version, role, memory and disk.
func (c *checkup) server(ctx context.Context, address string, client rueidis.Client) {
	text, err := client.Do(ctx, client.B().Info().Build()).ToString()
	info := parseInfoText(text)
	if err != nil {
		c.add(ProblemUnknown, false, "INFO can't be read at %s (%v): its version, role and disk were not looked at", address, err)
		info = c.memoryConfig(ctx, address, client)
	}
	if text := info["redis_version"]; text != "" {
		version, ok := parseVersion(text)
		switch {
		case !ok:
			c.add(ProblemUnknown, false, "%s runs a version %q, which has no numbers to compare: locks need Redis 6.0 or later", address, shorten(text))
		case slices.Compare(version[:], []int{6}) < 0:
			c.add(ProblemVersion, true, "%s runs Redis %s: locks need 6.0 or later", address, text)
		case slices.Compare(version[:], []int{7, 0, 5}) < 0:
			c.add(ProblemVersion, false, "%s runs Redis %s: it works, but 7.0.5 or later has fewer faults in scripts and client-side caching", address, text)
		}
	}
	if info["role"] == "slave" && !c.store.cluster {
		c.add(ProblemReadOnly, true, "%s is a replica of %s:%s and can't be written to: connect to the master", address, info["master_host"], info["master_port"])
	}
	if policy := info["maxmemory_policy"]; policy != "" && policy != "noeviction" {
		limited := info["maxmemory"] != "0" && info["maxmemory"] != ""
		effect := "once maxmemory is set"
		if limited {
			effect = "when maxmemory (" + info["maxmemory"] + " bytes) is reached"
		}
		c.add(ProblemEviction, limited, "%s has maxmemory-policy %s: it evicts locks %s, since every lock has an expiry; set noeviction, or give locks a server of their own", address, policy, effect)
	}
	if info["rdb_last_bgsave_status"] == "err" {
		c.add(ProblemPersistence, false, "%s could not write its last snapshot: with stop-writes-on-bgsave-error it refuses locks; look at its disk", address)
	}
}

// memoryConfig is what CONFIG tells of memory where INFO is closed.
func (c *checkup) memoryConfig(ctx context.Context, address string, client rueidis.Client) map[string]string {
	info := map[string]string{}
	for _, name := range []string{"maxmemory", "maxmemory-policy"} {
		values, err := client.Do(ctx, client.B().ConfigGet().Parameter(name).Build()).AsStrMap()
		if err != nil {
			c.add(ProblemUnknown, false, "neither INFO nor CONFIG GET can be read at %s (%v): whether it may evict locks was not looked at; maxmemory-policy should be noeviction", address, err)
			return info
		}
		info[strings.ReplaceAll(name, "-", "_")] = values[name]
	}
	return info
}

// cluster looks at the cluster as a whole.
func (c *checkup) cluster(ctx context.Context) {
	client := c.store.client
	text, err := client.Do(ctx, client.B().ClusterInfo().Build()).ToString()
	if err != nil {
		c.add(ProblemUnknown, false, "CLUSTER INFO can't be read (%v): the cluster's state was not looked at", err)
	} else if state := parseInfoText(text)["cluster_state"]; state != "ok" {
		c.add(ProblemCluster, true, "the cluster's state is %q, not ok: some of its slots have no master", state)
	}
	for name, want := range map[string]struct{ value, why string }{
		"cluster-require-full-coverage":       {"no", "a slot without a master stops the locks of all others too"},
		"cluster-allow-pubsubshard-when-down": {"yes", "grants are not told while any slot is without a master"},
	} {
		values, err := client.Do(ctx, client.B().ConfigGet().Parameter(name).Build()).AsStrMap()
		if err != nil {
			c.add(ProblemUnknown, false, "CONFIG GET %s can't be read (%v)", name, err)
		} else if value, ok := values[name]; ok && value != want.value {
			c.add(ProblemCluster, false, "%s is %s: %s; set it to %s", name, value, want.why, want.value)
		}
	}
}

// rights tries out what locks need. To try is the only way to be sure that
// works on every version and for every user.
func (c *checkup) rights(ctx context.Context) {
	s := c.store
	_, failed, err := s.tryCommands(ctx)
	if err != nil {
		c.refusal("EVAL", code(err), err.Error())
		return
	}
	// A name that no script has: to be told so is to be allowed to ask.
	unknown := s.client.B().Evalsha().Sha1(strings.Repeat("0", 40)).Numkeys(1).Key(s.inbox.name).Build()
	if err := s.client.Do(ctx, unknown).Error(); code(err) != "NOSCRIPT" {
		c.refusal("EVALSHA", code(err), fmt.Sprint(err))
	}
	denied := failed.denied()
	for _, command := range denied {
		c.refusal(command, "NOPERM", failed[command])
	}
	commands := make([]string, 0, len(failed))
	for command := range failed {
		commands = append(commands, command)
	}
	slices.Sort(commands)
	for _, command := range commands {
		for _, code := range []string{"OOM", "MISCONF", "READONLY", "NOREPLICAS"} {
			if strings.Contains(failed[command], code) {
				c.refusal(command, code, failed[command])
			}
		}
	}
}

// refusal makes a problem of an error of the server.
func (c *checkup) refusal(command, code, text string) {
	switch code {
	case "NOPERM":
		c.add(ProblemACL, true, "the user may not run %s on %s* (%s): see redislease.ACLRule for all that locks need", command, c.store.config.Prefix, text)
	case "OOM":
		c.add(ProblemMemory, true, "the server has reached its maxmemory and refuses changes (%s): no lock can be taken", text)
	case "MISCONF":
		c.add(ProblemPersistence, true, "the server can't write its snapshots and refuses changes (%s): no lock can be taken", text)
	case "READONLY":
		c.add(ProblemReadOnly, true, "the server is a read-only replica (%s): connect to the master", text)
	case "NOREPLICAS":
		c.add(ProblemReplicas, true, "the server has fewer replicas than min-replicas-to-write (%s): no lock can be taken", text)
	default:
		c.add(ProblemScripts, true, "%s fails (%s): locks are scripts", command, text)
	}
}

// parseInfoText reads lines of "field:value".
func parseInfoText(text string) map[string]string {
	fields := map[string]string{}
	text = strings.TrimPrefix(text, "txt:") // how RESP3 marks it
	for line := range strings.Lines(text) {
		if field, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); ok {
			fields[field] = value
		}
	}
	return fields
}

// parseVersion reads a version, such as 7.0.15 or 7.2-rc1: up to three numbers, of which
// those that are missing are 0. ok is false where there is not even the first.
func parseVersion(text string) (version [3]int, ok bool) {
	for i, part := range strings.SplitN(text, ".", len(version)+1) {
		if i == len(version) {
			break
		}
		end := strings.IndexFunc(part, func(r rune) bool { return r < '0' || r > '9' })
		if end < 0 {
			end = len(part)
		}
		n, err := strconv.Atoi(part[:end])
		if err != nil && i == 0 {
			return version, false
		}
		if err != nil {
			break
		}
		version[i] = n
		if end < len(part) {
			break
		}
	}
	return version, true
}
