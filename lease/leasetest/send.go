package leasetest

import (
	"errors"
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
)

var sendCases = []testCase{
	{"RequestsOfAKeyKeepTheirOrder", testOrder},
	{"ManyKeysAtOnce", testManyKeys},
	{"OneOfManyWins", testOneWins},
	{"CloseDoesWhatWasSent", testCloseDoes},
	{"ClosedStoreAnswersErrStoreClosed", testClosed},
	{"CloseLeavesNothingUnanswered", testCloseAnswersAll},
}

// testOrder sends each request from the callback of the one before.
func testOrder(s *suite) {
	a, k := s.open("a"), s.mutex()
	const rounds = 100
	done := make(chan error, 1)
	var step func(round int)
	step = func(round int) {
		if round == 2*rounds {
			done <- nil
			return
		}
		r, want := k.acquire(lease.Ticket(round/2+1)), lease.Held
		if round%2 == 1 {
			r, want = k.release(lease.Ticket(round/2+1)), lease.Done
		}
		a.store.Send(r, func(reply lease.Reply, err error) {
			if err == nil && reply.Status != want {
				err = errors.New("round was answered " + reply.Status.String())
			}
			if err != nil {
				done <- err
				return
			}
			step(round + 1)
		})
	}
	step(0)
	require.NoError(s, <-done)
	s.requireHolders(a, k)
}

func testManyKeys(s *suite) {
	a := s.open("a")
	var subjects []subject
	var answers []<-chan answer
	for range 300 {
		k := s.mutex()
		subjects = append(subjects, k)
		answers = append(answers, a.send(k.acquire(1)))
	}
	for i := range answers {
		reply, err := s.await(answers[i])
		require.NoError(s, err)
		require.Equal(s, lease.Held, reply.Status)
		answers[i] = a.send(subjects[i].release(1))
	}
	for i := range answers {
		reply, err := s.await(answers[i])
		require.NoError(s, err)
		require.Equal(s, lease.Done, reply.Status)
	}
}

// testOneWins has many stores ask at once, and passes the key from one to the next
// until each had it, counting that there is never more than one.
func testOneWins(s *suite) {
	all, k := s.openAll("a", "b", "c", "d", "e", "f"), s.mutex()
	s.skipUnless(all[0].can.Notices, "notices")
	var mu sync.Mutex
	holders, turns := 0, 0
	enter := func(by int) {
		mu.Lock()
		defer mu.Unlock()
		holders += by
		if holders > 1 {
			s.Error("two holders")
		}
		turns++
	}
	var wg sync.WaitGroup
	for _, c := range all {
		wg.Go(func() {
			for t := range lease.Ticket(20) {
				if reply := c.do(k.acquire(t + 1)); reply.Status == lease.Waiting {
					c.granted(k, t+1)
				}
				enter(1)
				enter(-1)
				c.do(k.release(t + 1))
			}
		})
	}
	wg.Wait()
	require.Equal(s, 2*20*len(all), turns)
	s.requireHolders(all[0], k)
	s.requireWaiters(all[0], k)
}

func testCloseDoes(s *suite) {
	all, k := s.openAll("a", "b"), s.mutex()
	a, b := all[0], all[1]
	a.get(lease.Held, k.acquire(1))
	answers := a.send(k.release(1))
	a.close()
	reply, err := s.await(answers)
	require.NoError(s, err)
	require.Equal(s, lease.Done, reply.Status)
	b.get(lease.Held, k.acquire(1, atOnce))
}

func testClosed(s *suite) {
	a, k := s.open("a"), s.mutex()
	a.close()
	for _, r := range []lease.Request{k.acquire(1), k.renew(1), k.release(1), k.busy("b:1")} {
		_, err := a.try(r)
		require.ErrorIs(s, err, lease.ErrStoreClosed, "%v", r.Op)
	}
	_, err := a.store.Inspect(s.Context(), k.key)
	require.ErrorIs(s, err, lease.ErrStoreClosed)
	require.ErrorIs(s, a.store.Force(s.Context(), k.key), lease.ErrStoreClosed)
	a.close() // again
}

func testCloseAnswersAll(s *suite) {
	all := s.openAll("a", "b")
	a, b := all[0], all[1]
	sent := make(chan (<-chan answer), 1000)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(sent)
		for range 500 {
			k := subject{key: s.run + "/busy", kind: lease.Mutex}
			sent <- a.send(k.busy(b.owner(1)))
		}
	})
	a.close()
	wg.Wait()
	for answers := range sent {
		if _, err := s.await(answers); err != nil {
			require.ErrorIs(s, err, lease.ErrStoreClosed)
		}
	}
}
