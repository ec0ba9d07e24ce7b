package pubsub_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/pubsub"
)

// limit bounds what should come at once, on any machine.
const limit = 20 * time.Second

// happened is what a Subscriber said.
type happened struct {
	what, channel, message string
	err                    error
}

// listener is a Subscriber on a client of its own, with what it says.
type listener struct {
	*pubsub.Subscriber

	t      *testing.T
	client rueidis.Client
	events chan happened
	failed chan error // of tries
}

func listen(t *testing.T, option rueidis.ClientOption) *listener {
	t.Helper()
	option.PipelineMultiplex, option.DisableRetry = -1, true
	client, err := rueidis.NewClient(option)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	l := &listener{t: t, client: client, events: make(chan happened, 1000), failed: make(chan error, 1)}
	l.Subscriber = pubsub.NewSubscriber(client, pubsub.Config{
		Message: func(channel, message string) {
			l.events <- happened{what: "message", channel: channel, message: message}
		},
		Confirmed: func(channel string) { l.events <- happened{what: "confirmed", channel: channel} },
		Lost:      func(channel string, err error) { l.events <- happened{what: "lost", channel: channel, err: err} },
		Failed: func(_ string, err error) {
			select {
			case l.failed <- err:
			default: // nobody looks
			}
		},
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		require.NoError(t, l.Close(ctx))
	})
	return l
}

func (l *listener) next(what string) happened {
	l.t.Helper()
	select {
	case e := <-l.events:
		require.Equal(l.t, what, e.what, "%+v", e)
		return e
	case <-time.After(limit):
		require.Fail(l.t, "nothing happened", "waited for %s", what)
		return happened{}
	}
}

// receivers is whom the server counts for a channel.
func receivers(t *testing.T, server *redistest.Server, channel string) int64 {
	t.Helper()
	message := server.Do(t, "PUBSUB", "NUMSUB", channel)
	values, err := message.ToArray()
	require.NoError(t, err)
	n, err := values[1].AsInt64()
	require.NoError(t, err)
	return n
}

func TestMessagesComeInOrder(t *testing.T) {
	server := redistest.Shared(t)
	l, channel := listen(t, server.Option()), redistest.Prefix(t)
	require.False(t, l.Confirmed(channel))
	require.NoError(t, l.Subscribe(channel))
	require.NoError(t, l.Subscribe(channel), "again does nothing")
	require.NoError(t, l.Wait(t.Context(), channel))
	require.True(t, l.Confirmed(channel))
	l.next("confirmed")
	for i := range 100 {
		server.Do(t, "PUBLISH", channel, fmt.Sprint(i))
	}
	for i := range 100 {
		e := l.next("message")
		require.Equal(t, channel, e.channel)
		require.Equal(t, fmt.Sprint(i), e.message)
	}
	require.Equal(t, int64(1), receivers(t, server, channel))
}

func TestLossIsToldAndMadeGood(t *testing.T) {
	server := redistest.Start(t)
	l := listen(t, server.Option())
	require.NoError(t, l.Subscribe("c"))
	l.next("confirmed")
	for range 30 { // many, for the pause must not grow from one loss to the next
		server.Do(t, "CLIENT", "KILL", "TYPE", "pubsub")
		require.Error(t, l.next("lost").err)
		l.next("confirmed")
	}
	server.Do(t, "PUBLISH", "c", "still there")
	require.Equal(t, "still there", l.next("message").message)
}

func TestLongOutageIsOneLoss(t *testing.T) {
	server := redistest.Start(t)
	l := listen(t, server.Option())
	require.NoError(t, l.Subscribe("c"))
	l.next("confirmed")
	reason, trying := l.Reason("c")
	require.NoError(t, reason)
	require.False(t, trying)
	require.Empty(t, l.failed)
	server.Kill()
	l.next("lost")
	require.False(t, l.Confirmed("c"))
	for err := range l.failed { // each try is told; the first may meet the server on its way out
		if errors.Is(err, syscall.ECONNREFUSED) {
			break
		}
	}
	reason, _ = l.Reason("c") // the newest
	require.ErrorIs(t, reason, syscall.ECONNREFUSED)
	server.Restart()
	l.next("confirmed")
	require.True(t, l.Confirmed("c"))
	reason, trying = l.Reason("c")
	require.NoError(t, reason)
	require.False(t, trying)
	reason, trying = l.Reason("d")
	require.NoError(t, reason)
	require.False(t, trying)
}

func TestServerThatEndsASubscriptionIsALoss(t *testing.T) {
	server := redistest.Start(t)
	l := listen(t, server.Option())
	require.NoError(t, l.Subscribe("c"))
	l.next("confirmed")
	require.NoError(t, l.client.Do(t.Context(), l.client.B().Unsubscribe().Channel("c").Build()).Error())
	require.ErrorIs(t, l.next("lost").err, pubsub.ErrUnsubscribed)
	l.next("confirmed")
}

func TestRefusedSubscriptionIsTold(t *testing.T) {
	server := redistest.Start(t)
	server.Do(t, "ACL", "SETUSER", "deaf", "on", "nopass", "+@all", "~*", "resetchannels")
	option := server.Option()
	option.Username = "deaf"
	l := listen(t, option)
	require.NoError(t, l.Subscribe("c"))
	require.ErrorContains(t, l.Wait(t.Context(), "c"), "NOPERM")
	require.ErrorContains(t, l.next("lost").err, "NOPERM")
	server.Do(t, "ACL", "SETUSER", "deaf", "allchannels")
	l.next("confirmed") // it has gone on trying, and said so once
	require.ErrorContains(t, l.Wait(t.Context(), "d"), "never subscribed")
}

func TestWaitEndsWithItsContext(t *testing.T) {
	server := redistest.Start(t)
	l := listen(t, server.Option())
	server.Pause()
	require.NoError(t, l.Subscribe("c"))
	reason := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	require.ErrorIs(t, l.Wait(ctx, "c"), reason)
	server.Resume()
	l.next("confirmed")
}

func TestSubscriptionsEndWithTheClient(t *testing.T) {
	server := redistest.Shared(t)
	for _, protocol := range []string{"RESP3", "RESP2"} {
		t.Run(protocol, func(t *testing.T) {
			option := server.Option()
			option.AlwaysRESP2, option.DisableCache = protocol == "RESP2", protocol == "RESP2"
			l, channel := listen(t, option), redistest.Prefix(t)
			names := []string{channel + "a", channel + "b", channel + "c"}
			for _, name := range names {
				require.NoError(t, l.Subscribe(name))
			}
			for range names {
				l.next("confirmed")
			}
			require.NoError(t, l.Close(t.Context()))
			require.NoError(t, l.Close(t.Context()), "again")
			l.client.Close()
			for _, name := range names {
				awaitNoReceivers(t, server, name)
				require.NoError(t, l.Wait(t.Context(), name))
			}
			require.ErrorIs(t, l.Subscribe(channel), pubsub.ErrClosed)
			require.Empty(t, l.events, "a farewell is no loss")
		})
	}
}

// awaitNoReceivers waits until the server has seen the end of the connections that were closed.
func awaitNoReceivers(t *testing.T, server *redistest.Server, channel string) {
	t.Helper()
	for end := time.Now().Add(limit); receivers(t, server, channel) > 0; {
		require.True(t, time.Now().Before(end), "still subscribed: %s", channel)
	}
}

func TestCloseAtAnyMoment(t *testing.T) {
	server := redistest.Shared(t)
	for range 50 {
		l, channel := listen(t, server.Option()), redistest.Prefix(t)
		var subscribers sync.WaitGroup
		for i := range 4 {
			subscribers.Go(func() { _ = l.Subscribe(fmt.Sprint(channel, i)) })
		}
		require.NoError(t, l.Close(t.Context()))
		subscribers.Wait()
		said := len(l.events)
		l.client.Close()
		require.Len(t, l.events, said, "no callback after Close")
		for i := range 4 {
			awaitNoReceivers(t, server, fmt.Sprint(channel, i))
		}
	}
}

// TestNothingIsEverUnsubscribed: the client can't be trusted with the answers of a server that refuses a PING.
func TestNothingIsEverUnsubscribed(t *testing.T) {
	server := redistest.Start(t)
	l := listen(t, server.Option())
	for _, name := range []string{"a", "b"} {
		require.NoError(t, l.Subscribe(name))
		l.next("confirmed")
	}
	server.Do(t, "CLIENT", "KILL", "TYPE", "pubsub")
	for confirmed := 0; confirmed < 2; { // the losses come before or between
		select {
		case e := <-l.events:
			if e.what == "confirmed" {
				confirmed++
			}
		case <-time.After(limit):
			require.Fail(t, "not subscribed again")
		}
	}
	require.NoError(t, l.Close(t.Context()))
	l.client.Close()
	message := server.Do(t, "INFO", "commandstats")
	stats, err := message.ToString()
	require.NoError(t, err)
	require.Contains(t, stats, "cmdstat_subscribe:calls=4,")
	require.NotContains(t, stats, "unsubscribe")
}

// TestCloseOfASilentServerEnds: it asks the server nothing.
func TestCloseOfASilentServerEnds(t *testing.T) {
	server := redistest.Start(t)
	l := listen(t, server.Option())
	require.NoError(t, l.Subscribe("c"))
	l.next("confirmed")
	server.Pause()
	require.NoError(t, l.Subscribe("on its way"))
	require.NoError(t, l.Close(t.Context()))
	server.Resume()
}

// TestCloseEndsWithItsContext where a connection is being made.
func TestCloseEndsWithItsContext(t *testing.T) {
	server := redistest.Start(t)
	option := server.Option()
	dialling, hang := make(chan struct{}, 10), make(chan struct{})
	var connected atomic.Bool
	option.DialCtxFn = func(ctx context.Context, address string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
		if !connected.Swap(true) {
			return dialer.DialContext(ctx, "tcp", address)
		}
		dialling <- struct{}{}
		<-hang
		return nil, errors.New("no more")
	}
	option.ForceSingleClient = true
	l := listen(t, option)
	require.NoError(t, l.Subscribe("c"))
	l.next("confirmed")
	server.Kill()
	l.next("lost")
	<-dialling
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	require.ErrorIs(t, l.Close(ctx), enough)
	close(hang)
	require.NoError(t, l.Close(t.Context()))
}

func TestCloseOfADeadServerEnds(t *testing.T) {
	server := redistest.Start(t)
	l := listen(t, server.Option())
	require.NoError(t, l.Subscribe("c"))
	l.next("confirmed")
	server.Kill()
	l.next("lost")
	require.NoError(t, l.Close(t.Context()))
}

func TestInvalidationsGoToAllListeners(t *testing.T) {
	server := redistest.Start(t)
	var invalidations pubsub.Invalidations
	type change struct {
		key string
		all bool
	}
	first, second, chained := make(chan change, 10), make(chan change, 10), make(chan int, 10)
	stop := invalidations.Listen(func(key string, all bool) { first <- change{key, all} })
	invalidations.Listen(func(key string, all bool) { second <- change{key, all} })
	option := server.Option()
	option.ClientTrackingOptions = []string{"OPTIN", "NOLOOP"}
	option.OnInvalidations = invalidations.Hook(func(m []rueidis.RedisMessage) { chained <- len(m) })
	client, err := rueidis.NewClient(option)
	require.NoError(t, err)

	track := func() {
		for _, result := range client.DoMulti(t.Context(), client.B().ClientCaching().Yes().Build(), client.B().Hexists().Key("k").Field("f").Build()) {
			require.NoError(t, result.Error())
		}
	}
	track()
	server.Do(t, "HSET", "k", "f", "1")
	require.Equal(t, change{"k", false}, <-first)
	require.Equal(t, change{"k", false}, <-second)
	require.Equal(t, 1, <-chained)
	stop()
	track()
	server.Do(t, "FLUSHALL")
	require.Equal(t, change{"", true}, <-second)
	require.Equal(t, 0, <-chained)
	client.Close()
	require.Equal(t, change{"", true}, <-second)
	require.Empty(t, first)
}
