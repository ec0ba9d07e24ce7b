package contender

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

func init() {
	Register(Info{
		Name: "semaphore", Kind: Limit, Module: "golang.org/x/sync",
		About:    "x/sync/semaphore.Weighted(1) for each key: a lock in memory that heeds its context, as ours does",
		Settings: []string{"no Redis: it knows of one process"},
		Open: func(context.Context, Setup) (Process, error) {
			return &semaphoreProcess{}, nil
		},
	})
	Register(Info{
		Name: "mutex", Kind: Limit,
		About:    "sync.Mutex and sync.RWMutex for each key: locks in memory that wait without a context",
		Settings: []string{"no Redis: it knows of one process", "no context can end its waiting, so each holder has to unlock before a round can end"},
		Open: func(context.Context, Setup) (Process, error) {
			return &mutexProcess{}, nil
		},
	})
}

type semaphoreProcess struct{ byKey sync.Map }

func (p *semaphoreProcess) Mutex(key string) Mutex {
	s, ok := p.byKey.Load(key)
	if !ok {
		s, _ = p.byKey.LoadOrStore(key, &semaphoreMutex{semaphore.NewWeighted(1)})
	}
	return s.(*semaphoreMutex)
}

func (p *semaphoreProcess) Close() error { return nil }

type semaphoreMutex struct{ semaphore *semaphore.Weighted }

func (m *semaphoreMutex) Lock(ctx context.Context) (Hold, error) {
	if err := m.semaphore.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	return m, nil
}

func (m *semaphoreMutex) TryLock(context.Context) (Hold, error) {
	if !m.semaphore.TryAcquire(1) {
		return nil, ErrHeld
	}
	return m, nil
}

// Unlock is of whoever holds it: the semaphore does not ask who that is.
func (m *semaphoreMutex) Unlock() error {
	m.semaphore.Release(1)
	return nil
}

type mutexProcess struct{ byKey sync.Map }

func (p *mutexProcess) lock(key string) *rwMutex {
	m, ok := p.byKey.Load(key)
	if !ok {
		m, _ = p.byKey.LoadOrStore(key, &rwMutex{})
	}
	return m.(*rwMutex)
}

func (p *mutexProcess) Mutex(key string) Mutex { return &p.lock(key).exclusive }
func (p *mutexProcess) RW(key string) RW       { return &p.lock(key).shared }
func (p *mutexProcess) Close() error           { return nil }

// rwMutex is what a key has: one of both is used.
type rwMutex struct {
	exclusive memoryMutex
	shared    memoryRW
}

// memoryRW is a sync.RWMutex. Its holds are pointers to it, so that no hold is allocated.
type memoryRW struct{ mutex sync.RWMutex }

func (m *memoryRW) RLock(context.Context) (Hold, error) {
	m.mutex.RLock()
	return (*memoryReader)(m), nil
}

func (m *memoryRW) Lock(context.Context) (Hold, error) {
	m.mutex.Lock()
	return (*memoryWriter)(m), nil
}

type memoryReader memoryRW

func (m *memoryReader) Unlock() error {
	m.mutex.RUnlock()
	return nil
}

type memoryWriter memoryRW

func (m *memoryWriter) Unlock() error {
	m.mutex.Unlock()
	return nil
}
