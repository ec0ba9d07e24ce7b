package coordinator

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
)

func redisProcess(t testing.TB, s *redistest.Server, opts ...Option) *Coordinator {
	t.Helper()
	c, err := New(s.Option(), opts...)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, c.Close(ctx))
	})
	return c
}

func TestRedisFourProcessesShareOneKey(t *testing.T) {
	s := redistest.Start(t)
	var inside, most int
	var sum int
	var last uint64
	var wg sync.WaitGroup
	end := time.Now().Add(2 * time.Second)
	before := s.Commands()
	for range 4 {
		c := redisProcess(t, s)
		for range 16 {
			wg.Go(func() {
				for time.Now().Before(end) {
					h, err := c.Mutex("k").Lock(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					inside++
					most = max(most, inside)
					if h.Token() <= last {
						t.Errorf("token %d after %d", h.Token(), last)
					}
					last = h.Token()
					sum++
					inside--
					if err := h.Unlock(); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	require.Equal(t, 1, most)
	t.Logf("%d locks, %.3f commands a lock", sum, float64(s.Commands()-before)/float64(sum))
}
