package redislease_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/childproc"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/lease/redislease"
)

// startSentinel starts a redis-server as a Sentinel of the master, and returns its address.
func startSentinel(t *testing.T, master *redistest.Server) string {
	t.Helper()
	binary, err := exec.LookPath("redis-server")
	require.NoError(t, err)
	host, port, err := net.SplitHostPort(master.Addr())
	require.NoError(t, err)
	for range 5 { // another process may take the port in between
		free, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		address := free.Addr().String()
		require.NoError(t, free.Close())
		_, own, err := net.SplitHostPort(address)
		require.NoError(t, err)
		dir := t.TempDir()
		file := filepath.Join(dir, "sentinel.conf")
		require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, "port %s\nbind 127.0.0.1\ndir %s\nsentinel monitor locks %s %s 1\n"+
			"sentinel down-after-milliseconds locks 60000\n", own, dir, host, port), 0o600))
		out := &childproc.Tail{}
		cmd := exec.Command(binary, file, "--sentinel")
		cmd.Stdout, cmd.Stderr = out, out
		child, err := childproc.Start(cmd)
		require.NoError(t, err)
		if answers(t, child, address) {
			t.Cleanup(child.Kill)
			return address
		}
		t.Logf("the Sentinel on port %s ended:\n%s", own, out)
		child.Kill()
	}
	require.Fail(t, "no Sentinel")
	return ""
}

// answers waits until the process we started listens, or has ended.
func answers(t *testing.T, child *childproc.Process, address string) bool {
	t.Helper()
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		select {
		case <-child.Done():
			return false
		default:
		}
		info, err := ask(t, address, "INFO", "server")
		if err == nil && strings.Contains(info, "process_id:"+strconv.Itoa(child.Pid())+"\r\n") {
			return true
		}
	}
	return false
}

// ask sends one command on a connection of its own.
func ask(t *testing.T, address string, words ...string) (string, error) {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{address}, ForceSingleClient: true, DisableCache: true, DisableRetry: true,
	})
	if err != nil {
		if client != nil {
			client.Close()
		}
		return "", err
	}
	defer client.Close()
	return client.Do(t.Context(), client.B().Arbitrary(words...).Build()).ToString()
}

// TestSentinelLeadsToTheMaster: with time-outs for the Sentinels unset, as a user of the data servers that has no more
// than the rights that locks need; and through a failover.
func TestSentinelLeadsToTheMaster(t *testing.T) {
	master, replica := redistest.Start(t), redistest.Start(t)
	host, port, err := net.SplitHostPort(master.Addr())
	require.NoError(t, err)
	replica.Do(t, "REPLICAOF", host, port)
	for _, server := range []*redistest.Server{master, replica} {
		server.Do(t, append(strings.Fields(redislease.ACLRule("app", "lock:")), ">pass")...)
	}
	sentinel := startSentinel(t, master)
	option := rueidis.ClientOption{InitAddress: []string{sentinel}, Username: "app", Password: "pass"}
	option.Sentinel.MasterSet = "locks"
	p := openWith(t, option, "p", redislease.Config{TTL: 4 * time.Second})
	require.True(t, p.can.Receipts)
	require.True(t, p.can.Tracking)
	require.Empty(t, p.can.Missing)
	everything(t, p)
	require.NotEmpty(t, master.Keys(t, "lock:*"))

	eventually(t, func(c *collector) { // it has to find the replica first
		_, err := ask(t, sentinel, "SENTINEL", "FAILOVER", "locks")
		require.NoError(c, err)
	})
	eventually(t, func(c *collector) {
		_, err := p.try(acquire("after", 1))
		require.NoError(c, err)
		role, err := ask(t, replica.Addr(), "INFO", "replication")
		require.NoError(c, err)
		require.Contains(c, role, "role:master")
		_, err = ask(t, replica.Addr(), "HGET", "lock:after", "p:1")
		require.NoError(c, err)
	})
	p.event(lease.Connected)
	p.do(lease.Done, release("after", 1))
}

// TestDataServerIsNoSentinel: with a set's name, and the address of the master in the place of a Sentinel's.
func TestDataServerIsNoSentinel(t *testing.T) {
	server := redistest.Start(t)
	option := server.Option()
	option.Sentinel.MasterSet = "locks"
	p := newPeer(t, option, redislease.Config{})
	_, err := p.Open(t.Context(), "p", p.record)
	require.ErrorContains(t, err, "it is no Sentinel: its mode is standalone")
	stats, err := readString(t, server, "INFO", "commandstats")
	require.NoError(t, err)
	require.NotContains(t, stats, "unsubscribe")
	require.NoError(t, p.Close(t.Context()))
}
