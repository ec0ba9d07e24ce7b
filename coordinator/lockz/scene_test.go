package lockz

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/coordinator/coordinatortest"
	"github.com/go-leasehold/leasehold/lease"
)

// scene is a coordinator in virtual time, and its page.
type scene struct {
	*coordinatortest.Harness
	t     *testing.T
	page  http.Handler
	end   context.CancelFunc // of all that waits
	ctx   context.Context
	holds []*coordinator.Hold
	wait  sync.WaitGroup
}

func onStage(t *testing.T, play func(t *testing.T, s *scene), opts ...coordinator.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scene{Harness: coordinatortest.New(t, opts...), t: t}
		s.page = Handler(s.Coordinator)
		s.ctx, s.end = context.WithCancel(context.Background())
		play(t, s)
		s.end()
		s.wait.Wait()
		for _, h := range s.holds {
			_ = h.Unlock()
		}
	})
}

// lock has a caller take a key, and returns the context of the hold.
func (s *scene) lock(ctx context.Context, key string) context.Context {
	s.t.Helper()
	h, err := s.Coordinator.Mutex(key).Lock(ctx)
	require.NoError(s.t, err)
	s.holds = append(s.holds, h)
	return h.Context()
}

// queue has a call wait for a key, and returns once it does.
func (s *scene) queue(ctx context.Context, key string) {
	s.wait.Go(func() {
		if h, err := s.Coordinator.Mutex(key).Lock(ctx); err == nil {
			_ = h.Unlock()
		}
	})
	synctest.Wait()
}

func (s *scene) read(ctx context.Context, key string) context.Context {
	s.t.Helper()
	h, err := s.Coordinator.ReadWrite(key).Lock(ctx, lease.Shared)
	require.NoError(s.t, err)
	s.holds = append(s.holds, h)
	return h.Context()
}

func (s *scene) queueTo(ctx context.Context, key string, mode lease.Mode) {
	s.wait.Go(func() {
		if h, err := s.Coordinator.ReadWrite(key).Lock(ctx, mode); err == nil {
			_ = h.Unlock()
		}
	})
	synctest.Wait()
}

// deadlock has two callers wait for each other.
func (s *scene) deadlock(a, b string) {
	hasA, hasB := s.lock(s.ctx, a), s.lock(s.ctx, b)
	time.Sleep(time.Second)
	s.queue(hasA, b)
	time.Sleep(time.Second)
	s.queue(hasB, a)
	time.Sleep(time.Second)
}

// get returns the page at an address.
func (s *scene) get(address string) *httptest.ResponseRecorder {
	return request1(s.page, http.MethodGet, address)
}

func request1(page http.Handler, method, address string, header ...string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, address, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	page.ServeHTTP(w, r)
	return w
}

// json returns the page as JSON.
func (s *scene) json(address string) Page {
	s.t.Helper()
	w := s.get(address)
	require.Equal(s.t, http.StatusOK, w.Code, w.Body)
	require.Equal(s.t, "application/json; charset=utf-8", w.Header().Get("Content-Type"))
	var p Page
	require.NoError(s.t, json.Unmarshal(w.Body.Bytes(), &p))
	return p
}

func (p Page) key(t *testing.T, name string) Key {
	t.Helper()
	for _, k := range p.Keys {
		if k.Text == name {
			return k
		}
	}
	require.Fail(t, "the page has no such key", name)
	return Key{}
}

// shows says that a page has a text in it. What fails shows the text, not the page.
func shows(t *testing.T, body, text string, why ...any) {
	t.Helper()
	if !strings.Contains(body, text) {
		require.Fail(t, "the page has no "+text, why...)
	}
}

func showsNot(t *testing.T, body, text string, why ...any) {
	t.Helper()
	if strings.Contains(body, text) {
		require.Fail(t, "the page has "+text, why...)
	}
}
