package contender

import (
	"context"
	"hash/maphash"
	"sync"
)

func init() {
	Register(Info{
		Name: "memory", Kind: Limit,
		About:    "what is in memory only: a sync.Map that knows what is sold out, and striped sync.Mutexes",
		Settings: []string{"no Redis: it knows of one process"},
		Open: func(context.Context, Setup) (Process, error) {
			return &memoryProcess{}, nil
		},
	})
}

type memoryProcess struct{ left sync.Map }

// Mutex is a lock of its own for each call. Those that are shared are Segments.
func (p *memoryProcess) Mutex(string) Mutex { return &memoryMutex{} }

func (p *memoryProcess) Close() error { return nil }

// memoryMutex is a sync.Mutex, which heeds no context: whoever waits for it gets it.
type memoryMutex struct{ sync.Mutex }

func (m *memoryMutex) Lock(context.Context) (Hold, error) {
	m.Mutex.Lock()
	return m, nil
}

func (m *memoryMutex) Unlock() error {
	m.Mutex.Unlock()
	return nil
}

// Segments are sync.Mutexes, chosen by a hash.
func (p *memoryProcess) Segments(_ string, n int) (Segments, error) {
	return &memorySegments{seed: maphash.MakeSeed(), mutexes: make([]memoryMutex, n)}, nil
}

type memorySegments struct {
	seed    maphash.Seed
	mutexes []memoryMutex
}

func (s *memorySegments) Mutex(routing string) Mutex {
	return &s.mutexes[maphash.String(s.seed, routing)%uint64(len(s.mutexes))]
}

// Stock only knows whether there is any.
func (p *memoryProcess) Stock(_ context.Context, name string, units int64) (Stock, error) {
	p.left.Store(name, units > 0)
	return memoryStock{&p.left, name}, nil
}

type memoryStock struct {
	left *sync.Map
	name string
}

func (s memoryStock) Sell(context.Context, string) (bool, error) {
	left, _ := s.left.Load(s.name)
	return left.(bool), nil
}
