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

func (m rueidislockMutex) Lock(ctx context.Context) (Hold, error) {
	_, cancel, err := m.locker.WithContext(ctx, m.key)
	if err != nil {
		return nil, err
	}
	return rueidislockHold(cancel), nil
}

func (m rueidislockMutex) TryLock(ctx context.Context) (Hold, error) {
	_, cancel, err := m.locker.TryWithContext(ctx, m.key)
	if errors.Is(err, rueidislock.ErrNotLocked) {
		return nil, ErrHeld
	}
	if err != nil {
		return nil, err
	}
	return rueidislockHold(cancel), nil
}

// rueidislockHold is the end of the lock's context, which is its way to unlock.
type rueidislockHold context.CancelFunc

func (h rueidislockHold) Unlock() error {
	h()
	return nil
}
