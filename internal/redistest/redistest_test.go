package redistest

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStartGivesAnEmptyServerThatKeepsNothing(t *testing.T) {
	t.Parallel()
	s := Start(t)
	require.Empty(t, s.Keys(t, "*"))
	save := s.Do(t, "CONFIG", "GET", "save")
	settings, err := save.AsStrMap()
	require.NoError(t, err)
	require.Equal(t, map[string]string{"save": ""}, settings)
}

func TestStartPassesArgumentsAndPassword(t *testing.T) {
	t.Parallel()
	s := Start(t, "--maxmemory", "10mb", "--requirepass", "sesame")
	require.Equal(t, "sesame", s.Option().Password)
	message := s.Do(t, "CONFIG", "GET", "maxmemory")
	settings, err := message.AsStrMap()
	require.NoError(t, err)
	require.Equal(t, map[string]string{"maxmemory": "10485760"}, settings)
	before := s.Commands()
	require.Equal(t, before, s.Commands(), "AUTH and INFO are the probe's own")
}

func TestStartTellsWhyTheServerEnded(t *testing.T) {
	t.Parallel()
	_, err := Launch(t.TempDir(), "--no-such-setting", "1")
	require.ErrorContains(t, err, "it ended")
	require.ErrorContains(t, err, "no-such-setting")
}

func TestMissingRedisServerNamesTheRemedy(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := Launch(t.TempDir())
	require.ErrorContains(t, err, "make test")
}

func TestKillAndRestartKeepThePortAndLoseTheData(t *testing.T) {
	t.Parallel()
	s := Start(t)
	client := s.Client(t)
	s.Do(t, "SET", "k", "v")
	addr, pid := s.Addr(), s.Pid()
	s.Kill()
	require.Zero(t, s.Pid())
	require.Error(t, client.Do(t.Context(), client.B().Set().Key("k").Value("w").Build()).Error())
	s.Restart()
	require.Equal(t, addr, s.Addr())
	require.NotEqual(t, pid, s.Pid())
	require.Empty(t, s.Keys(t, "*"))
	before := s.Commands()
	require.Equal(t, before, s.Commands(), "counting goes on with the new process")
}

func TestPausedServerAnswersNothingUntilResumed(t *testing.T) {
	t.Parallel()
	s := Start(t)
	client := s.Client(t)
	ping := func(ctx context.Context) error { return client.Do(ctx, client.B().Ping().Build()).Error() }
	require.NoError(t, ping(t.Context()))
	s.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, ping(ctx), context.DeadlineExceeded)
	s.Resume()
	require.NoError(t, ping(t.Context()))
}

func TestPausedServerCanBeClosedAndKilled(t *testing.T) {
	t.Parallel()
	s := Start(t)
	s.Client(t)
	s.Do(t, "PING")
	s.Pause() // the cleanups end everything
}

func TestCommandsCountsWhatOthersDid(t *testing.T) {
	t.Parallel()
	s := Start(t)
	client := s.Client(t)
	before := s.Commands()
	require.Equal(t, before, s.Commands())
	for range 10 {
		require.NoError(t, client.Do(t.Context(), client.B().Ping().Build()).Error())
	}
	require.Equal(t, before+10, s.Commands())
	require.Equal(t, before+10, s.Commands())
}

func TestDoToleratesNilAndReportsErrors(t *testing.T) {
	t.Parallel()
	s := Shared(t)
	prefix := Prefix(t)
	missing := s.Do(t, "GET", prefix+"none")
	require.True(t, missing.IsNil())
	s.Do(t, "SET", prefix+"text", "v")
	_, err := s.DoErr("INCR", prefix+"text")
	require.ErrorContains(t, err, "not an integer")
	require.Equal(t, []string{prefix + "text"}, s.Keys(t, prefix+"*"))
}

func TestSharedIsOneServerAndPrefixesDiffer(t *testing.T) {
	t.Parallel()
	first, second := Shared(t), Shared(t)
	require.Same(t, first, second)
	a, b := Prefix(t), Prefix(t)
	require.NotEqual(t, a, b)
	t.Run("odd {name} *?[x]", func(t *testing.T) {
		require.False(t, strings.ContainsAny(Prefix(t), "{}*?[] "))
	})
	require.DirExists(t, filepath.Clean(Shared(t).dir))
}
