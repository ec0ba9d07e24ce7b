package faults

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
)

func TestMain(m *testing.M) {
	Main(m, Roles{
		"echo": func(args []string) {
			Say("ready %v", args)
			for line, ok := Hear(); ok; line, ok = Hear() {
				Say("heard %s", line)
			}
			Say("input ended")
		},
		"fail": func([]string) {
			fmt.Fprintln(os.Stderr, "it was not my day")
			os.Exit(4)
		},
	})
}

// behind returns a proxy in front of the shared server, and a client that goes through it and never retries.
func behind(t *testing.T, change ...func(*rueidis.ClientOption)) (*Proxy, rueidis.Client) {
	t.Helper()
	p := NewProxy(t, redistest.Shared(t).Addr())
	return p, through(t, p, change...)
}

func through(t *testing.T, p *Proxy, change ...func(*rueidis.ClientOption)) rueidis.Client {
	t.Helper()
	option := rueidis.ClientOption{
		InitAddress: []string{p.Addr()}, DisableCache: true, DisableRetry: true, PipelineMultiplex: -1,
		AlwaysPipelining: true, // a call that gives up would close its connection otherwise
	}
	option.Dialer.KeepAlive = -1 // no pings of its own among the commands
	for _, c := range change {
		c(&option)
	}
	client, err := rueidis.NewClient(option)
	require.NoError(t, err)
	t.Cleanup(func() {
		p.Close() // first, since a client waits for answers that a fault may hold back
		client.Close()
	})
	return client
}

func do(t *testing.T, client rueidis.Client, words ...string) error {
	t.Helper()
	return client.Do(t.Context(), client.B().Arbitrary(words...).Build()).NonRedisError()
}

// notWithin runs do with a short limit and wants it to be reached: nothing answers.
func notWithin(t *testing.T, client rueidis.Client, words ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, client.Do(ctx, client.B().Arbitrary(words...).Build()).Error(), context.DeadlineExceeded)
}

func get(t *testing.T, key string) string {
	t.Helper()
	message := redistest.Shared(t).Do(t, "GET", key)
	if message.IsNil() {
		return ""
	}
	text, err := message.ToString()
	require.NoError(t, err)
	return text
}
