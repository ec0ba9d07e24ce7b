package faulttest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/telemetry"
)

// What these tests take for an acquire, a renewal, an annotation or a release is one, and nothing that runs a script of
// a lock has no name.
func TestEveryScriptOfALockIsToldApart(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	proxy := faults.NewProxy(t, s.Addr())
	spans := &spanList{}
	c := steady(t, proxy.Addr(), coordinator.WithTTL(time.Second), coordinator.WithRetention(0),
		coordinator.WithTelemetry(telemetry.Config{TracerProvider: spans.provider()}))
	net := listen(proxy)
	hold := take(t, c.Mutex("k"))
	eventually(t, hangs, "a renewal", func() bool { return stats(c).Renewals > 1 && net.count(is("annotate")) > 0 })
	require.NoError(t, hold.Unlock())
	eventually(t, hangs, "the release", func() bool { return !exists(t, s, "k") })
	for _, verb := range []string{"acquire", "renew", "annotate", "release"} {
		require.Positive(t, net.count(is(verb)), verb)
	}
	scripts := net.count(both(about("k"), func(cmd []string) bool { return faults.Is("evalsha")(cmd) || faults.Is("eval")(cmd) }))
	require.Equal(t, scripts, net.count(func(cmd []string) bool { return verb(cmd) != "" }))
}
