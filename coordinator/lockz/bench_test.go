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

// BenchmarkPage makes the page of 200 keys where 100,000 are held, each with a
// context that others could wait with.
func BenchmarkPage(b *testing.B) {
	const keys = 100_000
	server := memlease.NewServer()
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
	for _, address := range []string{"/", "/?format=json", "/?q=order:9999"} {
		b.Run("address="+address, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w := httptest.NewRecorder()
				page.ServeHTTP(w, httptest.NewRequest(http.MethodGet, address, nil))
				require.Equal(b, http.StatusOK, w.Code)
				b.ReportMetric(float64(w.Body.Len()), "bytes/page")
			}
		})
	}
	b.Run("address=none,snapshot", func(b *testing.B) {
		for b.Loop() {
			c.Snapshot()
		}
	})
	for _, h := range holds {
		require.NoError(b, h.Unlock())
	}
	require.NoError(b, c.Close(context.Background()))
	server.Close()
}
