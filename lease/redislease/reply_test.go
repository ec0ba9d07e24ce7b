package redislease

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/lease"
)

// TestAnswersOfAnotherFormAreErrors: what is not as the headers say is not guessed at.
func TestAnswersOfAnotherFormAreErrors(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	to := func(op lease.Op, lua string) (lease.Reply, error) {
		return parseReply(op, client.Do(t.Context(), client.B().Eval().Script("return "+lua).Numkeys(0).Build()))
	}
	answer := func(lua string) (lease.Reply, error) { return to(lease.Acquire, lua) }
	for lua, ops := range map[string][]lease.Op{ // and no others
		"{1, 1, 2, 0, 0}":         {lease.Acquire, lease.Release, lease.Renew, lease.Downgrade},
		"{2, 10, 0, 5, 'a:1', 1}": {lease.Acquire, lease.Release},
		"{6, 10, 0, 5, 'a:1', 1}": {lease.Acquire, lease.Release},
		"{3, 10, 0, 5, 'a:1', 0}": {lease.Acquire, lease.Release},
		"{4}":                     {lease.Renew, lease.Downgrade, lease.Annotate},
		"{5}":                     {lease.Release, lease.Annotate},
	} {
		for op := lease.Acquire; op <= lease.Ask; op++ {
			_, err := to(op, lua)
			require.Equal(t, slices.Contains(ops, op), err == nil, "%v: %s: %v", op, lua, err)
		}
	}
	for _, lua := range []string{
		"{1, 1, 2, 0, 0}", "{1, 0, 0, 1, 1}", "{2, 10, 0, 5, 'a:1', 1}", "{3, 10, 0, 0, '', 0}",
		"{2, 10, 0, 5, 'a:1', 1, 'nonsense'}", "{3, 10, 0, 0, '', 0, 7}", "{3, 10, 0, 0, '', 0, {}}",
	} {
		reply, err := answer(lua)
		require.NoError(t, err, lua)
		require.NotEqual(t, lease.Status(0), reply.Status)
		require.Empty(t, reply.Trace, "what is no trace is left out")
	}
	reply, err := answer("{2, 10, 0, 5, 'a:1', 1, '" + trace + "'}")
	require.NoError(t, err)
	require.Equal(t, trace, reply.Trace)
	for _, lua := range []string{
		"1", "'x'", "nil", "{}", "{0}", "{6}", "{-1}", "{'1'}", "{nil}", "{1}", "{1, 1, 2, 0}", "{1, 1, 2, 0, 0, 0}", "{1, 'a', 2, 0, 0}",
		"{1, 2, 1, 0, 0}", "{1, 0, 1, 0, 0}", "{1, -2, -1, 0, 0}", "{1, 1, 2, 0, -1}", "{1, 1, 2, 2, 0}", "{1, 1, 2, 0, 2}", "{4}", "{5}", "{1, {}, 2, 0, 0}", "{2, 10, 0, 5, 'a:1'}",
		"{2, -1, 0, 5, 'a:1', 1}", "{2, 10, 0, 5, {}, 1}", "{2, 10, 0, 5, 7, 1}", "{2, 10, 0, 5, 'a:1', 1, '', ''}", "{1, 1, 2, 0, 0, 0, 0}", "{4, 1}", "{5, 1}", "{9223372036854775807}",
		"redis.error_reply('ODD thing')", "redis.status_reply('OK')", "{redis.error_reply('ERR inside')}",
	} {
		reply, err := answer(lua)
		require.Error(t, err, lua)
		require.Zero(t, reply, lua)
	}
	for _, lua := range []string{
		"1", "{}", "{1,2,3}", "{'mutex', 'x', {}, {}}", "{'mutex', 1, {1}, {}}", "{'mutex', 1, {'a', 'b', 'c', 'd', 'e'}, {}}", "{'mutex', 1, {'a', 'exclusive', 5, '0'}, {}}", "{'', 1, 5, {}}", "{'', 1, {}, 5}", "{{}, 1, {}, {}}",
	} {
		_, err := parseInfo(client.Do(t.Context(), client.B().Eval().Script("return "+lua).Numkeys(0).Build()))
		require.Error(t, err, lua)
	}
}

func TestErrorsSayWhatIsWrong(t *testing.T) {
	s := &Store{addr: "redis:6379"}
	client := redistest.Shared(t).Client(t)
	for text, want := range map[string]string{
		"READONLY You can't write against a read only replica.":                             "the server is a read-only replica",
		"LOADING Redis is loading the dataset in memory":                                    "the server is loading its data set",
		"OOM command not allowed":                                                           "the server has reached its maxmemory",
		"MISCONF Redis is configured to save RDB snapshots":                                 "can't write its snapshots",
		"NOPERM this user has no permissions to run the 'evalsha' command":                  "the user is not permitted to run scripts",
		"NOPERM No permissions to access a key":                                             "the user is not permitted to do this",
		"WRONGPASS invalid username-password pair":                                          "the user name or the password is wrong",
		"CLUSTERDOWN Hash slot not served":                                                  "the cluster is down",
		"TRYAGAIN Multiple keys request during rehashing of slot":                           "slot is moving",
		"BUSY Redis is busy running a script":                                               "busy with a script",
		"ERR unknown command 'EVALSHA'":                                                     "the server has no such command",
		"ERR Error running script (call to f_1): @user_script:12: READONLY You can't write": "the server is a read-only replica",
		"Something without a code":                                                          "the server answered with an error",
	} {
		answer := client.Do(t.Context(), client.B().Eval().Script("return redis.error_reply(ARGV[1])").Numkeys(0).Arg(text).Build()).Error()
		require.Error(t, answer)
		err := s.wrap("acquire", answer)
		require.ErrorContains(t, err, want, text)
		require.ErrorContains(t, err, "acquire at redis:6379")
		require.ErrorIs(t, err, answer)
		require.False(t, broken(answer))
	}
	for _, text := range []string{"KIND the key is in use as rw", "WRONGTYPE Operation against a key", "ERR Error running script (call to f_1): @user_script:12: WRONGTYPE Operation against"} {
		answer := client.Do(t.Context(), client.B().Eval().Script("return redis.error_reply(ARGV[1])").Numkeys(0).Arg(text).Build()).Error()
		require.ErrorIs(t, s.wrap("acquire", answer), lease.ErrKind)
	}
	require.ErrorContains(t, s.wrap("renew", errPatience), "the server is silent")
	require.ErrorContains(t, s.wrap("renew", &dialError{"h:1", fmt.Errorf("no route")}), "can't be reached")
}
