package devredis

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStartUsesTheRedisServerInPath(t *testing.T) {
	if _, err := exec.LookPath(RedisServer); err != nil {
		t.Fatal("no redis-server in PATH: `make test` installs it")
	}
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	s, said := start1(t)
	require.Equal(t, RedisServer, s.Kind)
	require.Contains(t, said, s.Addr())
	exercise(t, s)
	requireClosed(t, s)
	left, err := os.ReadDir(temporary)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestStartFallsBackToMiniredis(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	s, said := start1(t)
	require.Equal(t, Miniredis, s.Kind)
	require.Contains(t, said, "miniredis")
	exercise(t, s)
	requireClosed(t, s)
}

func TestStartTellsWhyAServerEnded(t *testing.T) {
	broken := filepath.Join(t.TempDir(), RedisServer)
	require.NoError(t, os.WriteFile(broken, []byte("#!/bin/sh\necho no luck today\nexit 1\n"), 0o700))
	_, err := startRedisServer(t.Context(), broken)
	require.ErrorContains(t, err, "no luck today")
}

func TestStartEndsWithItsContext(t *testing.T) {
	silent := filepath.Join(t.TempDir(), RedisServer)
	require.NoError(t, os.WriteFile(silent, []byte("#!/bin/sh\nexec sleep 600\n"), 0o700))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := startRedisServer(ctx, silent)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestUseStartsAServerWhereNoneIsNamed(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	logf := func(string, ...any) { require.Fail(t, "nothing to start") }
	named, err := Use(t.Context(), "named:1", logf)
	require.NoError(t, err)
	require.Equal(t, External, named.Kind)
	require.Equal(t, "named:1", named.Addr())
	require.NoError(t, named.Close())
	started, err := Use(t.Context(), "", t.Logf)
	require.NoError(t, err)
	require.Equal(t, Miniredis, started.Kind)
	client, err := net.Dial("tcp", started.Addr())
	require.NoError(t, err)
	require.NoError(t, client.Close())
	require.NoError(t, started.Close())
	_, err = net.Dial("tcp", started.Addr())
	require.Error(t, err)
}

func start1(t *testing.T) (*Server, string) {
	t.Helper()
	var said strings.Builder
	s, err := Start(t.Context(), func(format string, args ...any) { fmt.Fprintf(&said, format, args...) })
	require.NoError(t, err)
	return s, said.String()
}

// exercise wants the server to answer, and its keys to expire by real time.
func exercise(t *testing.T, s *Server) {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Addr()}, DisableCache: true})
	require.NoError(t, err)
	defer client.Close()
	set := client.B().Set().Key("k").Value("v").PxMilliseconds(30).Build()
	require.NoError(t, client.Do(t.Context(), set).Error())
	require.Eventually(t, func() bool {
		return rueidis.IsRedisNil(client.Do(context.Background(), client.B().Get().Key("k").Build()).Error())
	}, 20*time.Second, 5*time.Millisecond)
}

func requireClosed(t *testing.T, s *Server) {
	t.Helper()
	require.NoError(t, s.Close())
	_, err := net.Dial("tcp", s.Addr())
	require.Error(t, err)
}
