package faults

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// exchange feeds messages to a queue of commands and returns, for each, the name of the command it was taken for.
func exchange(t *testing.T, p *pending, messages ...string) []string {
	t.Helper()
	var names []string
	for _, raw := range messages {
		f, err := readFrame(reader(raw))
		require.NoError(t, err)
		p.take(&f, func(e *entry) {
			if e == nil {
				names = append(names, "-")
				return
			}
			names = append(names, e.name)
		})
	}
	return names
}

func queueOf(commands ...[]string) *pending {
	p := newPending(nil)
	for _, cmd := range commands {
		p.add(newEntry(cmd, Pass, nil))
	}
	return p
}

func TestSubscribeIsAnsweredOnceAChannel(t *testing.T) {
	t.Parallel()
	p := queueOf([]string{"HELLO", "3"}, []string{"SUBSCRIBE", "a", "b"}, []string{"PING"})
	require.Equal(t, []string{"hello", "subscribe", "-", "subscribe", "ping", "-"}, exchange(t, p,
		"%1\r\n+proto\r\n:3\r\n",
		">3\r\n+subscribe\r\n+a\r\n:1\r\n",
		">3\r\n+message\r\n+a\r\n+x\r\n",
		">3\r\n+subscribe\r\n+b\r\n:2\r\n",
		"+PONG\r\n",
		">2\r\n+invalidate\r\n*1\r\n+k\r\n"))
}

func TestRefusedSubscribeHasOneAnswer(t *testing.T) {
	t.Parallel()
	p := queueOf([]string{"SUBSCRIBE", "a", "b"}, []string{"PING"})
	require.Equal(t, []string{"subscribe", "ping"}, exchange(t, p, "-NOPERM no\r\n", "+PONG\r\n"))
}

func TestUnsubscribeFromAllIsAnsweredForEach(t *testing.T) {
	t.Parallel()
	p := queueOf([]string{"SUBSCRIBE", "a", "b"}, []string{"UNSUBSCRIBE"}, []string{"UNSUBSCRIBE"}, []string{"PING"})
	require.Equal(t, []string{"subscribe", "subscribe", "unsubscribe", "unsubscribe", "unsubscribe", "ping"}, exchange(t, p,
		"*3\r\n+subscribe\r\n+a\r\n:1\r\n", "*3\r\n+subscribe\r\n+b\r\n:2\r\n",
		"*3\r\n+unsubscribe\r\n+a\r\n:1\r\n", "*3\r\n+unsubscribe\r\n+b\r\n:0\r\n",
		"*3\r\n+unsubscribe\r\n$-1\r\n:0\r\n", "+PONG\r\n"))
}

// In RESP2 a subscriber's messages are arrays; in RESP3, or without a subscription, such an array is data.
func TestArraysThatLookLikeMessages(t *testing.T) {
	t.Parallel()
	list := "*2\r\n+message\r\n+a\r\n"
	require.Equal(t, []string{"lrange"}, exchange(t, queueOf([]string{"LRANGE", "k", "0", "-1"}), list))
	p := queueOf([]string{"SUBSCRIBE", "a"}, []string{"PING"})
	require.Equal(t, []string{"subscribe", "-", "ping"}, exchange(t, p,
		"*3\r\n+subscribe\r\n+a\r\n:1\r\n", list, "*2\r\n+pong\r\n+\r\n"))
}

// A moved slot ends a sharded subscription unasked, even while another command waits for its reply.
func TestServerMayEndASubscriptionUnasked(t *testing.T) {
	t.Parallel()
	p := queueOf([]string{"HELLO", "3"}, []string{"SSUBSCRIBE", "a"}, []string{"GET", "k"}, []string{"SUNSUBSCRIBE"})
	require.Equal(t, []string{"hello", "ssubscribe", "-", "get", "sunsubscribe", "-"}, exchange(t, p,
		"%0\r\n", ">3\r\n+ssubscribe\r\n+a\r\n:1\r\n", ">3\r\n+sunsubscribe\r\n+a\r\n:0\r\n", "_\r\n",
		">3\r\n+sunsubscribe\r\n_\r\n:0\r\n", "+unasked\r\n"))
	require.False(t, p.listening())
}
