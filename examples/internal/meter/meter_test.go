package meter

import (
	"os/exec"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leasehold/leasehold/examples/internal/devredis"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// The client first tries whether the server is a cluster, and what looks after the cluster's layout then
		// sleeps for up to a second.
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
}

func TestTotalAddsUpWhatInfoTells(t *testing.T) {
	t.Parallel()
	require.EqualValues(t, 12, total("# Stats\r\ntotal_commands_processed:12\r\n", commandsField))
	require.EqualValues(t, 5, total("cmdstat_eval:calls=2,usec=9\r\ncmdstat_evalsha:calls=3,usec=1\r\ncmdstat_get:calls=7\r\n", scriptsField))
	require.EqualValues(t, -1, total("", scriptsField))
}

func TestPerIsUnknownWhereAReadingIs(t *testing.T) {
	t.Parallel()
	commands, scripts := Per(4, Reading{Commands: 10, Scripts: 1}, Reading{Commands: 20, Scripts: 2})
	require.InDelta(t, 2.5, commands, 0)
	require.InDelta(t, 0.25, scripts, 0)
	commands, scripts = Per(4, Reading{Commands: -1, Scripts: 1}, Reading{Commands: 20, Scripts: -1})
	require.InDelta(t, -1, commands, 0)
	require.InDelta(t, -1, scripts, 0)
	commands, scripts = Per(0, Reading{}, Reading{Commands: 20, Scripts: 2})
	require.InDelta(t, -1, commands, 0)
	require.InDelta(t, -1, scripts, 0)
}

func TestReadCountsWhatRedisHasRun(t *testing.T) {
	if _, err := exec.LookPath(devredis.RedisServer); err != nil {
		t.Fatal("no redis-server in PATH: `make test` installs it")
	}
	server, err := devredis.Start(t.Context(), t.Logf)
	require.NoError(t, err)
	defer server.Close()
	redis, err := Connect(server.Addr())
	require.NoError(t, err)
	defer redis.Close()
	script := rueidis.NewLuaScript(`return redis.call('INCR', KEYS[1])`)
	run := func() { require.NoError(t, script.Exec(t.Context(), redis, []string{"n"}, nil).Error()) }
	run() // loads it
	before := Read(redis)
	for range 10 {
		run()
	}
	after := Read(redis)
	require.Equal(t, before.Scripts+10, after.Scripts)
	// Each script and what it calls, INFO twice, and maybe what a connection that is new has to say.
	require.InDelta(t, 2*10+2, after.Commands-before.Commands, 5)
}

func TestConnectSaysWhereThereIsNoRedis(t *testing.T) {
	_, err := Connect("127.0.0.1:1")
	require.ErrorContains(t, err, "connect to 127.0.0.1:1")
}
