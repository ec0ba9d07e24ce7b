package torture

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

var (
	topology = flag.String("topology", "", "for TestTorture: single, sentinel, cluster; empty: each of them, for a few seconds")
	minutes  = flag.Float64("minutes", 0, "for TestTorture: how long a run is")
	seed     = flag.Uint64("seed", 0, "for TestTorture: what the faults are chosen by; 0: any")
)

func TestMain(m *testing.M) { faults.Main(m, faults.Roles{"torture": Play}) }

func torture(t *testing.T, kind redistest.Kind, seed uint64, lasting time.Duration) {
	t.Helper()
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-topology %s -seed %d", kind, seed)
	d := direct(t, newWorld(t, kind), seed)
	d.run(lasting)
	d.end()
	d.judge()
}

func TestTorture(t *testing.T) {
	if *topology != "" {
		torture(t, redistest.Kind(*topology), *seed, time.Duration(*minutes*float64(time.Minute)))
		return
	}
	for _, kind := range []redistest.Kind{redistest.Single, redistest.Sentinel, redistest.Cluster} {
		t.Run(string(kind), func(t *testing.T) {
			torture(t, kind, 1, 3*time.Second)
			torture(t, kind, 0, 3*time.Second)
		})
	}
}
