package lockz

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/lease/memlease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// BenchmarkPage makes the page of 200 keys, of these or of 100,000, which are held,
// each with a context that others could wait with.
func BenchmarkPage(b *testing.B) {
	for _, keys := range []int{200, 100_000} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) { benchmarkPage(b, keys) })
	}
}

func benchmarkPage(b *testing.B, keys int) {
	server := memlease.NewServer()
	defer server.Close()
	c, err := coordinator.NewWithStore(server.Store(), // with nothing else to do meanwhile
		coordinator.WithTTL(time.Hour), coordinator.WithTelemetry(telemetry.Config{HoldAlarm: -1}))
	require.NoError(b, err)
	holds := make([]*coordinator.Hold, keys)
	for i := range holds {
		holds[i], err = c.Mutex(fmt.Sprintf("order:%d", i)).Lock(context.Background())
		require.NoError(b, err)
		holds[i].Context()
	}
	page := Handler(c)
	for _, address := range []string{"/", "/?format=json", "/?q=order:99"} {
		b.Run("page="+address, func(b *testing.B) {
			b.ReportAllocs()
			size := 0
			for b.Loop() {
				w := httptest.NewRecorder()
				page.ServeHTTP(w, httptest.NewRequest(http.MethodGet, address, nil))
				require.Equal(b, http.StatusOK, w.Code)
				size = w.Body.Len()
			}
			b.ReportMetric(float64(size), "bytes/page")
		})
	}
	b.Run("page=none", func(b *testing.B) {
		for b.Loop() {
			c.Snapshot()
		}
	})
	for _, h := range holds {
		require.NoError(b, h.Unlock())
	}
	require.NoError(b, c.Close(context.Background()))
}
