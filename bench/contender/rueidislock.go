package contender

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/rueidis/rueidislock"
)

// A waiter is forgotten where the goroutine that tidies up after a failed try runs before that try is counted as failed: it
// takes it for a hold that has ended, and drops the gate by which the waiter would be told. It happens by the minute with
// four goroutines, two lockers and the race detector, and with none of our code.
func init() {
	Register(Info{
		Name: "rueidislock", Kind: Peer, Module: "github.com/redis/rueidis", Prefix: "rueidislock:0:",
		About: "rueidislock: SET NX for each lock, the next waiter is told by client-side caching",
		Settings: []string{
			"KeyMajority 1 and NoLoopTracking, as its README advises for one Redis of 7.0.5 or later",
			"KeyValidity is the scenario's TTL (default 5 s); extended at half of it",
			"TryNextAfter is the TTL, too (default 20 ms): of one key there is no next one, and whoever gets no answer within it " +
				"waits for another's unlock, for ever where there is nobody else",
			"v1.0.79 forgets a waiter now and then, whatever the settings, and it waits until its context ends: such rounds are told as failed",
		},
		Open: func(_ context.Context, setup Setup) (Process, error) {
			locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
				ClientOption: rueidisOption(setup), KeyMajority: 1, NoLoopTracking: true, KeyValidity: setup.TTL,
				TryNextAfter: setup.TTL,
			})
			if err != nil {
				return nil, fmt.Errorf("rueidislock: %w", err)
			}
			return rueidislockProcess{locker}, nil
		},
	})
}

type rueidislockProcess struct{ locker rueidislock.Locker }

func (p rueidislockProcess) Mutex(key string) Mutex { return rueidislockMutex{p.locker, key} }

func (p rueidislockProcess) Close() error {
	p.locker.Close()
	return nil
}

type rueidislockMutex struct {
	locker rueidislock.Locker
	key    string
}

func (m rueidislockMutex) Lock(ctx context.Context) (Hold, error) {
	_, unlock, err := m.locker.WithContext(asking{ctx}, m.key)
	if err != nil {
		return nil, err
	}
	return rueidislockHold(unlock), nil
}

func (m rueidislockMutex) TryLock(ctx context.Context) (Hold, error) {
	_, unlock, err := m.locker.TryWithContext(asking{ctx}, m.key)
	if errors.Is(err, rueidislock.ErrNotLocked) {
		return nil, ErrHeld
	}
	if err != nil {
		return nil, err
	}
	return rueidislockHold(unlock), nil
}

// asking is a context that ends a wait and not the hold that came of it. To rueidislock they are the same, so the end of a
// round would take locks from under their holders, who would be counted as two. What is derived from it does not end with
// it, by the method that context.AfterFunc documents, which costs what being a child of the context itself would.
type asking struct{ context.Context }

// Deadline is none, for it would be the hold's as well.
func (asking) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value is none, so that nobody finds the context within.
func (asking) Value(any) any { return nil }

// AfterFunc promises to call and never does.
func (asking) AfterFunc(func()) (stop func() bool) { return func() bool { return true } }

// rueidislockHold is the end of the lock's context, which is its way to unlock.
type rueidislockHold context.CancelFunc

func (h rueidislockHold) Unlock() error {
	h()
	return nil
}
