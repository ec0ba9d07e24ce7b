package faults

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
)

func TestDropReplyLosesOneReplyAfterTheServerRanIt(t *testing.T) {
	t.Parallel()
	p, client := behind(t)
	key := redistest.Prefix(t) + "n"
	require.NoError(t, do(t, client, "INCR", key))
	drop := p.DropReply(Has("INCR", key))
	require.Error(t, do(t, client, "INCR", key))
	<-drop.Done()
	require.Equal(t, "2", get(t, key), "the server ran it")
	require.Eventually(t, func() bool { return do(t, client, "PING") == nil }, ExpectLimit, time.Millisecond)
	require.NoError(t, do(t, client, "INCR", key), "once only")
	require.Equal(t, 2, p.Accepted())
}

func TestDropReplyDeliversTheRepliesBeforeIt(t *testing.T) {
	t.Parallel()
	p, client := behind(t)
	key := redistest.Prefix(t) + "n"
	p.SetDelay(0, 10*time.Millisecond)
	p.DropReply(Is("append"))
	results := client.DoMulti(t.Context(),
		client.B().Incr().Key(key).Build(), client.B().Incr().Key(key).Build(),
		client.B().Append().Key(key).Value("0").Build(), client.B().Incr().Key(key).Build())
	require.NoError(t, results[0].Error())
	require.NoError(t, results[1].Error())
	require.Error(t, results[2].Error())
	require.Error(t, results[3].Error())
	require.Eventually(t, func() bool { return get(t, key) == "21" }, ExpectLimit, time.Millisecond)
}

func TestDropReplySilentlyKeepsTheConnection(t *testing.T) {
	t.Parallel()
	p, client := behind(t)
	key := redistest.Prefix(t) + "n"
	drop := p.DropReplySilently(Is("INCR"))
	notWithin(t, client, "INCR", key)
	<-drop.Done()
	require.Equal(t, "1", get(t, key))
	notWithin(t, client, "PING")
	require.Equal(t, 1, p.Connections())
}

func TestDropReplyPassesErrorsAndWaitsForARun(t *testing.T) {
	t.Parallel()
	p, client := behind(t)
	key := redistest.Prefix(t) + "n"
	script := rueidis.NewLuaScript("return redis.call('INCR', KEYS[1]) -- " + key) // new to the server
	drop := p.DropReply(Is("EVALSHA"))
	unknown := client.Do(t.Context(), client.B().Evalsha().Sha1(strings.Repeat("0", 40)).Numkeys(1).Key(key).Build())
	require.ErrorContains(t, unknown.Error(), "NOSCRIPT")
	require.NoError(t, script.Exec(t.Context(), client, []string{key}, nil).Error(), "NOSCRIPT, then EVAL")
	select {
	case <-drop.Done():
		t.Fatal("nothing was lost so far")
	default:
	}
	require.Error(t, script.Exec(t.Context(), client, []string{key}, nil).Error())
	<-drop.Done()
	require.Equal(t, "2", get(t, key))
}

// Push messages arrive between replies and are none: they shift nothing.
func TestPushMessagesAreNoReplies(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*rueidis.ClientOption){
		"RESP3": func(*rueidis.ClientOption) {},
		"RESP2": func(o *rueidis.ClientOption) { o.AlwaysRESP2 = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, client := behind(t, change)
			prefix := redistest.Prefix(t)
			var seen sync.Map
			p.OnReply(func(cmd []string) Action {
				if strings.EqualFold(cmd[0], "GETSET") {
					seen.Store(cmd[2], true)
				}
				return Pass
			})
			var messages atomic.Int64
			ended := make(chan error, 1)
			confirmed := make(chan struct{})
			ctx := rueidis.WithOnSubscriptionHook(t.Context(), func(s rueidis.PubSubSubscription) {
				if s.Kind == "subscribe" && s.Channel == prefix+"b" {
					close(confirmed)
				}
			})
			go func() {
				subscribe := client.B().Subscribe().Channel(prefix+"a", prefix+"b").Build()
				ended <- client.Receive(ctx, subscribe, func(rueidis.PubSubMessage) { messages.Add(1) })
			}()
			<-confirmed
			const rounds = 50
			for i := range rounds {
				redistest.Shared(t).Do(t, "PUBLISH", prefix+"a", "x")
				require.NoError(t, do(t, client, "GETSET", prefix+"k", string(rune('A'+i))))
			}
			drop := p.DropReply(Is("INCR"))
			require.Error(t, do(t, client, "INCR", prefix+"n"))
			<-drop.Done()
			for i := range rounds {
				_, ok := seen.Load(string(rune('A' + i)))
				require.True(t, ok, "reply %d went to another command", i)
			}
			if name == "RESP3" { // the subscription shared the connection that was cut
				require.Error(t, <-ended)
			}
			require.EqualValues(t, rounds, messages.Load())
		})
	}
}

func TestOnCommandActsBeforeTheServerDoes(t *testing.T) {
	t.Parallel()
	p, client := behind(t)
	key := redistest.Prefix(t) + "n"
	var reached atomic.Bool
	p.OnCommand(func(cmd []string) Action {
		if Has("INCR", key)(cmd) {
			reached.Store(true)
			return Cut
		}
		return Pass
	})
	require.Error(t, do(t, client, "INCR", key))
	require.True(t, reached.Load())
	require.Empty(t, get(t, key))
	p.OnCommand(nil)
	require.Eventually(t, func() bool { return do(t, client, "INCR", key) == nil }, ExpectLimit, time.Millisecond)
}

func TestOnReplyActsWhenTheServerHasRunIt(t *testing.T) {
	t.Parallel()
	p, client := behind(t)
	key := redistest.Prefix(t) + "n"
	p.OnReply(func(cmd []string) Action {
		if !Is("incr", key)(cmd) {
			return Pass
		}
		require.Equal(t, "1", get(t, key))
		return Fail("BUSY lost in thought")
	})
	err := client.Do(t.Context(), client.B().Incr().Key(key).Build()).Error()
	require.EqualError(t, err, "BUSY lost in thought")
}

func TestFailAnswersInTheServersPlaceAndInOrder(t *testing.T) {
	t.Parallel()
	p, client := behind(t)
	key := redistest.Prefix(t) + "n"
	p.OnCommand(func(cmd []string) Action {
		if Is("decr")(cmd) {
			return Fail("READONLY not here")
		}
		return Pass
	})
	p.SetDelay(0, 5*time.Millisecond)
	results := client.DoMulti(t.Context(),
		client.B().Incr().Key(key).Build(), client.B().Decr().Key(key).Build(), client.B().Decr().Key(key).Build(),
		client.B().Incr().Key(key).Build())
	require.NoError(t, results[0].Error())
	require.EqualError(t, results[1].Error(), "READONLY not here")
	require.EqualError(t, results[2].Error(), "READONLY not here")
	n, err := results[3].AsInt64()
	require.NoError(t, err)
	require.EqualValues(t, 2, n)
}

func TestDelayReplyHoldsOneReplyBack(t *testing.T) {
	t.Parallel()
	p, client := behind(t)
	key := redistest.Prefix(t) + "n"
	p.OnCommand(func(cmd []string) Action {
		if Is("incr")(cmd) {
			return DelayReply(100 * time.Millisecond)
		}
		return Pass
	})
	start := time.Now()
	require.NoError(t, do(t, client, "INCR", key))
	require.GreaterOrEqual(t, time.Since(start), 100*time.Millisecond)
}

func TestMatches(t *testing.T) {
	t.Parallel()
	require.True(t, Is("client", "tracking")([]string{"CLIENT", "TRACKING", "ON"}))
	require.False(t, Is("client", "tracking")([]string{"CLIENT"}))
	require.False(t, Is("get")([]string{"SET", "k"}))
	require.True(t, Has("evalsha", "k")([]string{"EVALSHA", "f00", "1", "k"}))
	require.False(t, Has("evalsha", "k")([]string{"EVALSHA", "f00", "1", "other"}))
	require.False(t, Has("get", "k")([]string{"SET", "k"}))
}
