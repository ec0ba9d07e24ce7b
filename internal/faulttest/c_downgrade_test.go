package faulttest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/lease/redislease"
)

func init() { roles["writer"] = playWriter }

const downgradeTTL = 500 * time.Millisecond

// playWriter takes a write lease, and makes it a read lease.
func playWriter(args []string) {
	store := openStore(args[0], "writer")
	token, err := send(store, lease.Request{
		Op: lease.Acquire, Key: "k", Kind: lease.ReadWrite, Ticket: 1, Mode: lease.Exclusive, TTL: downgradeTTL, Tokens: 1,
	})
	exitIf(err)
	faults.Say("wrote %d", token)
	_, err = send(store, lease.Request{Op: lease.Downgrade, Key: "k", Kind: lease.ReadWrite, Ticket: 1, TTL: downgradeTTL})
	exitIf(err)
	faults.Say("reads")
	faults.Hear()
}

func openStore(addr, id string) *redislease.Store {
	store, err := redislease.New(at(addr), redislease.Config{TTL: 30 * time.Second})
	exitIf(err)
	_, err = store.Open(context.Background(), id, func(lease.Event) {})
	exitIf(err)
	return store
}

// warm has the server learn every script, so that the first call of one is not merely answered NOSCRIPT.
func warm(t *testing.T, s *redistest.Server) {
	t.Helper()
	store := openStore(s.Addr(), "warm")
	base := lease.Request{Key: "warm", Kind: lease.ReadWrite, Ticket: 1, Mode: lease.Exclusive, TTL: time.Minute}
	for _, op := range []lease.Op{lease.Acquire, lease.Renew, lease.Downgrade} {
		r := base
		r.Op = op
		_, err := send(store, r)
		require.NoError(t, err)
	}
	r := base
	r.Op = lease.Release
	_, err := send(store, r)
	require.EqualError(t, err, lease.Done.String())
	require.NoError(t, store.Close(context.Background()))
	require.Empty(t, leftovers(t, s))
}

// send returns the token of what is held then.
func send(store *redislease.Store, r lease.Request) (uint64, error) {
	type answer struct {
		reply lease.Reply
		err   error
	}
	done := make(chan answer, 1)
	store.Send(r, func(reply lease.Reply, err error) { done <- answer{reply, err} })
	got := <-done
	if got.err == nil && got.reply.Status != lease.Held {
		got.err = errors.New(got.reply.Status.String())
	}
	return got.reply.First, got.err
}

// C2, the step that only a read/write lock has: its client is killed just before, or just after, the server turns a
// writer into a reader, with another writer in the queue.
func TestClientKilledInADowngradeLeavesNothingForEver(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"before", "after"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			warm(t, s)
			proxy := faults.NewProxy(t, s.Addr())
			watched := watchForever(t, s)
			child := faults.StartChild(t, "writer", proxy.Addr())
			killed := killOn(proxy, child, "renew", when) // a downgrade looks like one, and there is no other
			child.Expect(t, "wrote")
			await(t, killed, hangs, "the kill")
			next := lease.Request{
				Op: lease.Acquire, Key: "k", Kind: lease.ReadWrite, Ticket: 1, Mode: lease.Exclusive, TTL: downgradeTTL, Tokens: 1,
			}
			store := openStore(s.Addr(), "next-"+when)
			defer func() { require.NoError(t, store.Close(context.Background())) }()
			eventually(t, downgradeTTL+soon, "the next writer", func() bool {
				_, err := send(store, next)
				return err == nil
			})
			eventually(t, downgradeTTL+soon, "nothing is left", func() bool { return len(leftovers(t, s)) == 0 })
			watched.requireNone(t)
		})
	}
}
