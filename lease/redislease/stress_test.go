package redislease_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/lease/redislease"
)

// TestEveryRequestIsAnsweredOnce, though connections break all the time and the store is
// closed in the middle.
func TestEveryRequestIsAnsweredOnce(t *testing.T) {
	server := redistest.Start(t)
	for round := range 3 {
		p := newPeer(t, server.Option(), redislease.Config{TTL: 10 * time.Second})
		_, err := p.Open(t.Context(), fmt.Sprint("p", round), p.record)
		require.NoError(t, err)
		var sent, answered, good atomic.Int64
		var senders, answers sync.WaitGroup
		stop := make(chan struct{})
		for sender := range 8 {
			senders.Go(func() {
				for n := lease.Ticket(1); ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					r := acquire(fmt.Sprint("k", sender, "-", n%5), n)
					if n%2 == 0 {
						r = release(r.Key, n-1)
					}
					var once atomic.Bool
					sent.Add(1)
					answers.Add(1)
					wait := make(chan struct{})
					p.Send(r, func(_ lease.Reply, err error) {
						defer answers.Done()
						if once.Swap(true) {
							t.Error("answered twice")
						}
						answered.Add(1)
						var failure *redislease.Error
						switch {
						case err == nil:
							good.Add(1)
						case !errors.Is(err, lease.ErrStoreClosed) && !errors.As(err, &failure):
							t.Errorf("an error of another kind: %v", err)
						}
						close(wait)
					})
					<-wait
				}
			})
		}
		for good.Load() < 2000 {
			before := good.Load()
			server.Do(t, "CLIENT", "KILL", "TYPE", "pubsub")
			for good.Load() < before+100 {
				time.Sleep(time.Millisecond) // lets the senders get on between two breaks
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		require.NoError(t, p.Close(ctx))
		cancel()
		close(stop)
		senders.Wait()
		answers.Wait()
		require.Equal(t, sent.Load(), answered.Load())
	}
}

// BenchmarkHandOff passes one key between two stores, beside what a round trip costs.
func BenchmarkHandOff(b *testing.B) {
	server := redistest.Start(b)
	b.Run("what=ping", func(b *testing.B) {
		client := server.Client(b)
		for b.Loop() {
			require.NoError(b, client.Do(b.Context(), client.B().Ping().Build()).Error())
		}
	})
	b.Run("what=turn", func(b *testing.B) {
		granted := make(chan lease.Event, 1)
		var all [2]*peer
		for i := range all {
			all[i] = newPeer(b, server.Option(), redislease.Config{})
			_, err := all[i].Open(b.Context(), fmt.Sprint("p", i), func(e lease.Event) {
				if e.Type == lease.Granted {
					granted <- e
				}
			})
			require.NoError(b, err)
		}
		all[0].do(lease.Held, acquire("k", 1))
		all[1].do(lease.Waiting, acquire("k", 1))
		ticket := [2]lease.Ticket{1, 1}
		turn := 0
		for b.Loop() {
			all[turn].Send(yield("k", ticket[turn], ticket[turn]+1), func(_ lease.Reply, err error) {
				if err != nil {
					b.Error(err)
				}
			})
			<-granted
			ticket[turn]++
			turn = 1 - turn
		}
		for _, p := range all {
			require.NoError(b, p.Close(context.Background()))
		}
	})
	b.Run("what=uncontended", func(b *testing.B) {
		p := openPeer(b, server, "q", redislease.Config{})
		for b.Loop() {
			p.do(lease.Held, acquire("free", 1))
			p.do(lease.Done, release("free", 1))
		}
	})
}
