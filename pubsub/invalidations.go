package pubsub

import (
	"slices"
	"sync"

	"github.com/redis/rueidis"
)

// Invalidations passes the invalidations of a client on to whoever listens.
// The zero value is ready; its [Invalidations.Hook] goes into the options the
// client is made with.
type Invalidations struct {
	mu        sync.RWMutex
	listeners []*listener
}

type listener struct{ fn func(key string, all bool) }

// Hook returns a function for rueidis.ClientOption.OnInvalidations. next, the
// one that was there before, is called behind the listeners; it may be nil.
func (i *Invalidations) Hook(next func([]rueidis.RedisMessage)) func([]rueidis.RedisMessage) {
	return func(messages []rueidis.RedisMessage) {
		i.tell(messages)
		if next != nil {
			next(messages)
		}
	}
}

// Listen has fn called with each key that changed, or with all set where any
// key may have: a flush, or a lost connection. stop ends it; a call that has
// begun may still be running then.
func (i *Invalidations) Listen(fn func(key string, all bool)) (stop func()) {
	l := &listener{fn}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.listeners = append(slices.Clone(i.listeners), l)
	return func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.listeners = slices.DeleteFunc(slices.Clone(i.listeners), func(other *listener) bool { return other == l })
	}
}

func (i *Invalidations) tell(messages []rueidis.RedisMessage) {
	i.mu.RLock()
	listeners := i.listeners // never changed in place
	i.mu.RUnlock()
	for _, l := range listeners {
		if messages == nil {
			l.fn("", true)
			continue
		}
		for n := range messages {
			if key, err := messages[n].ToString(); err == nil {
				l.fn(key, false)
			}
		}
	}
}
