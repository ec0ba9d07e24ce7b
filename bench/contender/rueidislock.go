package contender

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/rueidis/rueidislock"
)

func init() {
	Register(Info{
		Name: "rueidislock", Kind: Peer, Module: "github.com/redis/rueidis", Prefix: "rueidislock:0:",
		About: "rueidislock: SET NX for each lock, the next waiter is told by client-side caching",
		Settings: []string{
			"KeyMajority 1 and NoLoopTracking, as its README advises for one Redis of 7.0.5 or later",
			"KeyValidity is the scenario's TTL (default 5 s); extended at half of it",
		},
		Open: func(_ context.Context, setup Setup) (Process, error) {
			locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
				ClientOption: rueidisOption(setup), KeyMajority: 1, NoLoopTracking: true, KeyValidity: setup.TTL,
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

// Lock waits until ctx ends, and no longer. What it returns is held beyond that: to rueidislock, the end of the context that
// it was asked with is the end of the hold, and its holder would be taken for one of two.
func (m rueidislockMutex) Lock(ctx context.Context) (Hold, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	waiting, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, end)
	_, unlock, err := m.locker.WithContext(waiting, m.key)
	if !stop() && err == nil { // ctx has ended, and so has the hold
		unlock()
		err = ctx.Err()
	}
	if err != nil {
		end()
		return nil, err
	}
	return rueidislockHold{unlock, end}, nil
}

func (m rueidislockMutex) TryLock(ctx context.Context) (Hold, error) {
	_, unlock, err := m.locker.TryWithContext(context.WithoutCancel(ctx), m.key)
	if errors.Is(err, rueidislock.ErrNotLocked) {
		return nil, ErrHeld
	}
	if err != nil {
		return nil, err
	}
	return rueidislockHold{unlock, func() {}}, nil
}

// rueidislockHold is the end of the lock's context, which is its way to unlock, and then of the one it is made from.
type rueidislockHold struct{ unlock, end context.CancelFunc }

func (h rueidislockHold) Unlock() error {
	h.unlock()
	h.end()
	return nil
}
