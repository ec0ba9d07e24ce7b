package redislease_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/lease/redislease"
)

// eavesdropper listens to an inbox at one server.
type eavesdropper struct {
	mu       sync.Mutex
	messages []string
}

func (e *eavesdropper) heard(part string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, m := range e.messages {
		if strings.Contains(m, part) {
			return true
		}
	}
	return false
}

// eavesdrop subscribes at a server, whatever its role is.
func eavesdrop(t *testing.T, server *redistest.Server, sharded bool, channel string) *eavesdropper {
	t.Helper()
	option := server.Option()
	option.ForceSingleClient = true
	client, err := rueidis.NewClient(option)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	subscribe := client.B().Subscribe().Channel(channel).Build()
	if sharded {
		subscribe = client.B().Ssubscribe().Channel(channel).Build()
	}
	e, ready := &eavesdropper{}, make(chan struct{})
	ctx := rueidis.WithOnSubscriptionHook(context.Background(), func(rueidis.PubSubSubscription) { close(ready) })
	go func() { // ends with the client
		_ = client.Receive(ctx, subscribe, func(m rueidis.PubSubMessage) {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.messages = append(e.messages, m.Message)
		})
	}()
	<-ready
	return e
}

// TestWhoListensAtAReplicaIsToldOfNoGrant: what is published reaches the replicas as well, where whoever publishes can't count who listens. A
// process that listens there only, as one does that has not noticed that its server became a replica, is passed over, and
// must not hear of a grant: it would believe it.
func TestWhoListensAtAReplicaIsToldOfNoGrant(t *testing.T) {
	const key = "k"
	queue := "lock:~queue{lock:k}lock:k"
	for _, kind := range []redistest.Kind{redistest.Sentinel, redistest.Cluster} {
		topology := redistest.StartTopology(t, kind, time.Minute)
		p := openWith(t, topology.Option(), "p", redislease.Config{})
		require.True(t, p.can.Receipts)
		primary := topology.Primary(lockName(key))
		replica := topology.ReplicaOf(primary)
		inbox := "lock:~inbox:ghost"
		if kind == redistest.Cluster {
			// The end of a slot's inbox, as that of p has it.
			p.do(lease.Held, acquire(key, 1))
			message := primary.Do(t, "PUBSUB", "SHARDCHANNELS", "lock:~inbox:p{*")
			names, err := message.AsStrSlice()
			require.NoError(t, err)
			require.Len(t, names, 1)
			inbox += strings.TrimPrefix(names[0], "lock:~inbox:p")
			p.do(lease.Done, release(key, 1))
		}
		ghost := eavesdrop(t, replica, kind == redistest.Cluster, inbox)
		for n, as := range []func(lease.Request) lease.Request{
			func(r lease.Request) lease.Request { return r }, shared, exclusive,
		} {
			ticket := lease.Ticket(10 + 10*n)
			name := fmt.Sprintf("%s, %d", kind, n)
			p.do(lease.Held, as(acquire(key, ticket)))
			form := []string{"M", "W", "R"}[n]
			primary.Do(t, "ZADD", queue, "1", form+"60000/16:ghost:1")
			primary.Do(t, "PEXPIRE", queue, "60000")
			p.do(lease.Done, as(release(key, ticket)))
			reply := p.do(lease.Held, as(acquire(key, ticket+1)))
			require.False(t, reply.Contended, "%s: nobody waits any more", name)
			p.do(lease.Done, as(release(key, ticket+1)))
		}
		// What is published arrives in order: the last is a message of any kind. (Between nodes it may be lost.)
		eventually(t, func(c *collector) {
			p.do(lease.Done, lease.Request{Op: lease.Busy, Key: key, Kind: lease.Mutex, Asker: "ghost:1"})
			require.True(c, ghost.heard("busy ghost:1"), kind)
		})
		require.False(t, ghost.heard("grant"), kind)
	}
}

// TestInboxOnTheWrongNodeIsMovedToTheRightOne: a cluster's replica takes subscriptions as well, where a client that has not heard of a
// failover may subscribe. The process learns of it when it waits, and subscribes anew, so that it is not passed over for ever.
func TestInboxOnTheWrongNodeIsMovedToTheRightOne(t *testing.T) {
	topology := redistest.StartTopology(t, redistest.Cluster, time.Second)
	a, b := openWith(t, topology.Option(), "a", redislease.Config{TTL: 4 * time.Second}), openWith(t, topology.Option(), "b", redislease.Config{TTL: 4 * time.Second})
	for n := range 10 {
		from := topology.Primary(lockName("k"))
		// Two failovers in each round: who learned of the first may have missed the second.
		topology.Failover(from)
		key := fmt.Sprintf("{k}%d", n)
		eventually(t, func(c *collector) {
			_, err := a.try(acquire(key, 1))
			require.NoError(c, err)
		})
		deadline := time.Now().Add(limit)
		for granted := false; !granted; {
			require.True(t, time.Now().Before(deadline), "b is passed over again and again")
			reply, err := b.try(acquire(key, 1))
			if err != nil || reply.Status != lease.Waiting {
				continue // while connections come and go
			}
			_, err = a.try(release(key, 1))
			if err != nil {
				continue
			}
			for end := time.Now().Add(time.Second); !granted && time.Now().Before(end); time.Sleep(time.Millisecond) {
				for _, e := range b.ofType(lease.Granted) {
					granted = granted || e.Key == key
				}
			}
			if !granted {
				reply, err := b.try(acquire(key, 1)) // as a waiter looks again
				granted = err == nil && reply.Status == lease.Held
			}
		}
		b.do(lease.Held, renew(key, 1))
		b.do(lease.Done, release(key, 1))
	}
}
