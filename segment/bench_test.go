package segment_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/segment"
)

// The benchmarks tell ratios of what is measured side by side in one run, round
// by round, for no absolute time means anything on a shared machine. An
// iteration is a round; -benchtime 20x makes twenty.

// buyers is how many goroutines order at a time.
const buyers = 256

// rate is how many calls of once a second some goroutines make together, n each.
func rate(n int, once func(buyer, i int)) float64 {
	var wg sync.WaitGroup
	start := time.Now()
	for buyer := range buyers {
		wg.Go(func() {
			for i := range n {
				once(buyer, i)
			}
		})
	}
	wg.Wait()
	return float64(buyers*n) / time.Since(start).Seconds()
}

// requests are contexts that can end, as those of requests can: one for each buyer.
func requests(b *testing.B) (all [buyers]context.Context) {
	b.Helper()
	for i := range all {
		ctx, cancel := context.WithCancel(context.Background())
		b.Cleanup(cancel)
		all[i] = ctx
	}
	return all
}

func median(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}

func process(b *testing.B, s *redistest.Server) *coordinator.Coordinator {
	b.Helper()
	c, err := coordinator.New(s.Option())
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, c.Close(context.Background())) })
	return c
}

func loaded(b *testing.B, c *coordinator.Coordinator, name string, segments int, units int64) *segment.Stock {
	b.Helper()
	s, err := segment.NewStock(c, name, segment.Config{Segments: segments})
	require.NoError(b, err)
	require.NoError(b, s.Load(context.Background(), units))
	return s
}

// rival is a client as a user makes one, without client-side caching.
func rival(b *testing.B, s *redistest.Server) rueidis.Client {
	b.Helper()
	option := s.Option()
	option.DisableCache = true
	client, err := rueidis.NewClient(option)
	require.NoError(b, err)
	b.Cleanup(client.Close)
	return client
}

// deductScript is a deduction with an ID in the simplest way that neither oversells
// nor takes twice: one script for each order.
var deductScript = rueidis.NewLuaScript(`
if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 1 then
  return 1
end
if tonumber(redis.call('GET', KEYS[1])) < tonumber(ARGV[2]) then
  return 0
end
redis.call('DECRBY', KEYS[1], ARGV[2])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
return 1`)

// BenchmarkDeduct is deductions of one unit by 256 goroutines of one process, with IDs
// and without, beside the same with a script for each order, and beside a raw
// DECRBY, which looks at nothing. All clients pipeline. The stock has two segments, as
// one on a single server should; with 16, as for a cluster, fewer orders share a script.
func BenchmarkDeduct(b *testing.B) {
	ctx := requests(b)
	s := redistest.Start(b)
	c := process(b, s)
	stock, many := loaded(b, c, "with IDs", 2, 1<<40), loaded(b, c, "on many segments", 16, 1<<40)
	plain := loaded(b, c, "without IDs", 2, 1<<40)
	client := rival(b, s)
	s.Do(b, "SET", "raw", "1000000000000000")
	s.Do(b, "SET", "left", "1000000000000000")
	check := func(err error) {
		if err != nil {
			b.Error(err)
		}
	}
	var users [buyers]string
	for i := range users {
		users[i] = "user-" + strconv.Itoa(i)
	}
	var serial atomic.Int64
	id := func() string { return "order-" + strconv.FormatInt(serial.Add(1), 10) }
	deduct := func(s *segment.Stock) func(buyer, i int) {
		return func(buyer, i int) {
			_, err := s.Deduct(ctx[buyer], segment.Order{ID: id(), User: users[(buyer+i)%buyers], Quantity: 1})
			check(err)
		}
	}
	var named, spread, nameless, scripts, raw []float64
	for b.Loop() {
		for range 3 { // short ones, that what else the machine does falls on all alike
			named = append(named, rate(300, deduct(stock)))
			spread = append(spread, rate(200, deduct(many)))
			scripts = append(scripts, rate(100, func(buyer, _ int) {
				check(deductScript.Exec(ctx[buyer], client, []string{"left", "orders"}, []string{id(), "1"}).Error())
			}))
			raw = append(raw, rate(200, func(buyer, _ int) {
				check(client.Do(ctx[buyer], client.B().Decrby().Key("raw").Decrement(1).Build()).Error())
			}))
			nameless = append(nameless, rate(1000, func(buyer, _ int) {
				_, err := plain.Deduct(ctx[buyer], segment.Order{Quantity: 1})
				check(err)
			}))
		}
		s.Do(b, "DEL", "orders")
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(named), "orders/s")
	b.ReportMetric(median(nameless), "nameless/s")
	b.ReportMetric(median(scripts), "scripts/s")
	b.ReportMetric(median(raw), "decrby/s")
	b.ReportMetric(median(named)/median(scripts), "x-script")
	b.ReportMetric(median(named)/median(raw), "x-decrby")
	b.ReportMetric(median(spread)/median(scripts), "16-x-script")
	b.ReportMetric(median(spread)/median(raw), "16-x-decrby")
	b.ReportMetric(median(nameless)/median(raw), "nameless-x-decrby")
	audit, err := stock.Audit(context.Background())
	require.NoError(b, err)
	require.Positive(b, audit.Sold)
}

// BenchmarkSoldOut is the answer to an order when all is sold, beside a look into a
// sync.Map in the same loop.
func BenchmarkSoldOut(b *testing.B) {
	ctx := requests(b)
	s := redistest.Start(b)
	stock := loaded(b, process(b, s), "gone", 16, 1000)
	for i := range 1000 {
		_, err := stock.Deduct(ctx[0], segment.Order{ID: "o" + strconv.Itoa(i), User: "u", Quantity: 1})
		require.NoError(b, err)
	}
	var orders [buyers]segment.Order
	var table sync.Map
	for i := range orders {
		orders[i] = segment.Order{ID: "late-" + strconv.Itoa(i), User: "user-" + strconv.Itoa(i), Quantity: 1}
		table.Store(orders[i].ID, i)
	}
	refused := func(buyer, _ int) {
		if _, err := stock.Deduct(ctx[buyer], orders[buyer]); !errors.Is(err, segment.ErrSoldOut) {
			b.Error(err)
		}
	}
	known := func() bool {
		before := s.Commands()
		for i := range buyers {
			refused(i, 0)
		}
		return s.Commands() == before
	}
	require.Eventually(b, known, 10*time.Second, 10*time.Millisecond)
	var ours, theirs []float64
	commands, asked := int64(0), s.Commands()
	for b.Loop() {
		for range 5 {
			ours = append(ours, rate(5000, refused))
			theirs = append(theirs, rate(5000, func(buyer, _ int) {
				if _, ok := table.Load(orders[buyer].ID); !ok {
					b.Error("not there")
				}
			}))
			commands += int64(buyers * 5000)
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(ours), "answers/s")
	b.ReportMetric(median(ours)/median(theirs), "x-map")
	b.ReportMetric(float64(s.Commands()-asked)/float64(commands), "commands/answer")
	b.ReportMetric(testing.AllocsPerRun(1000, func() { refused(0, 0) }), "allocs/answer")
}
