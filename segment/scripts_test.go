package segment

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// declared is what a script says of itself.
type declared struct {
	indices  map[string]map[int]bool // by KEYS and ARGV
	open     map[string]bool         // says that there are more
	sections []string
}

var (
	declaration = regexp.MustCompile(`^-- (KEYS|ARGV)\[(\d+)\]\s+\w+`)
	openEnd     = regexp.MustCompile(`^-- (KEYS|ARGV)\[\.\.\.\]\s+\w+`)
	sections    = regexp.MustCompile(`^-- (Returns|Retry)\s+\S`)
	use         = regexp.MustCompile(`\b(KEYS|ARGV)\[(\d+)\]`)
	comment     = regexp.MustCompile(`--.*`)
)

// allScripts are those that are sent, by name.
func allScripts(t *testing.T) map[string]string {
	t.Helper()
	files, err := scriptFiles.ReadDir("scripts")
	require.NoError(t, err)
	all := map[string]string{}
	for _, file := range files {
		if name := strings.TrimSuffix(file.Name(), ".lua"); name != "prelude" && name != "books" {
			all[name] = source(name)
		}
	}
	require.GreaterOrEqual(t, len(all), 12)
	return all
}

func parseScript(text string) declared {
	d := declared{indices: map[string]map[int]bool{"KEYS": {}, "ARGV": {}}, open: map[string]bool{}}
	if strings.Contains(text, "\n-- books.lua\n") {
		text = source("books") + text
	}
	for line := range strings.Lines(text) {
		if m := declaration.FindStringSubmatch(line); m != nil {
			n, _ := strconv.Atoi(m[2]) // it is a number
			d.indices[m[1]][n] = true
		} else if m := openEnd.FindStringSubmatch(line); m != nil {
			d.open[m[1]] = true
		} else if m := sections.FindStringSubmatch(line); m != nil {
			d.sections = append(d.sections, m[1])
		}
	}
	return d
}

// TestHeadersTellWhatTheScriptsUse: no more, no gap, and what comes back.
func TestHeadersTellWhatTheScriptsUse(t *testing.T) {
	t.Parallel()
	for name, text := range allScripts(t) {
		require.Regexp(t, `^-- [A-Z]`, text, "%s begins with what it does", name)
		d := parseScript(text)
		require.Equal(t, []string{"Returns", "Retry"}, d.sections, name)
		used := map[string]map[int]bool{"KEYS": {}, "ARGV": {}}
		body := comment.ReplaceAllString(text, "")
		if strings.Contains(text, "\n-- books.lua\n") {
			body += comment.ReplaceAllString(source("books"), "")
		}
		for _, m := range use.FindAllStringSubmatch(body, -1) {
			n, err := strconv.Atoi(m[2])
			require.NoError(t, err)
			used[m[1]][n] = true
			require.True(t, d.indices[m[1]][n] || d.open[m[1]] && n > len(d.indices[m[1]]), "%s uses %s and does not say so", name, m[0])
		}
		inherited := map[string]map[int]bool{}
		if strings.Contains(text, "\n-- books.lua\n") {
			inherited = parseScript(source("books")).indices
		}
		for what, indices := range d.indices {
			for n := range len(indices) {
				require.True(t, indices[n+1], "%s: %s have a gap at %d", name, what, n+1)
				byNumber := strings.Contains(body, "unpack("+what) || strings.Contains(body, what+"[i]")
				unused := regexp.MustCompile(fmt.Sprintf(`(?m)^-- %s\[%d\]\s.*not used`, what, n+1)).MatchString(text)
				require.True(t, used[what][n+1] || byNumber || unused || inherited[what][n+1], "%s says that it uses %s[%d]", name, what, n+1)
			}
		}
	}
}

// TestCallsPassWhatTheHeadersDeclare: as many keys and arguments, in all that a stock's life asks.
func TestCallsPassWhatTheHeadersDeclare(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	var mu sync.Mutex
	s, clock := loadedAt(t, Config{Segments: 3}, 100)
	s = through(t, s, func(s server) server {
		return &hooked{server: s, before: func(calls []call) []answer {
			mu.Lock()
			defer mu.Unlock()
			for i := range calls {
				c := &calls[i]
				seen[c.script.name] = true
				d := parseScript(source(c.script.name))
				for what, n := range map[string]int{"KEYS": len(c.keys), "ARGV": len(c.args)} {
					if want := len(d.indices[what]); n < want || n > want && !d.open[what] {
						t.Errorf("%s: %d %s of %d", c.script.name, n, what, want)
					}
				}
			}
			return nil
		}}
	})
	require.NoError(t, s.Reset(t.Context(), 100))
	sellSome(t, s)
	_, err := s.Deduct(t.Context(), Order{Quantity: 1})
	require.NoError(t, err)
	_, err = s.Deduct(t.Context(), Order{ID: "too large", Quantity: 100})
	require.ErrorIs(t, err, ErrSoldOut)
	clock.edge(t, s.conf.Remember, 0)
	gives(t, s, 0, 1, 1)
	_, err = DeductAll(t.Context(), "both", "u", Line{Stock: s, Quantity: 1}, Line{Stock: second(t, s), Quantity: 1})
	require.NoError(t, err)
	audited(t, s)
	require.NoError(t, s.Drop(t.Context()))
	for name := range allScripts(t) {
		require.True(t, seen[name], "%s was not run", name)
	}
}

// second is another stock in the same process, loaded.
func second(t *testing.T, s *Stock) *Stock {
	t.Helper()
	other := newStock(s.c, redistest.Prefix(t), s.conf, s.settings, s.server)
	require.NoError(t, other.Load(t.Context(), 100))
	return other
}

// ways has a batch go the short way, by deduct.lua, or the long, by orders.lua.
func ways(t *testing.T, s *Stock, long bool, b batch) ([]status, []int) {
	t.Helper()
	h := s.homes[0]
	h.long.Store(0)
	if long {
		h.long.Store(1 << 40)
	}
	outcomes, err := h.ask(&b)
	require.NoError(t, err)
	var statuses []status
	for _, out := range outcomes {
		statuses = append(statuses, out.status)
	}
	var served []int
	for _, g := range b.nameless {
		served = append(served, g.served)
	}
	return statuses, served
}

// TestTheShortWayIsTheLongWay: deduct.lua does what orders.lua does, on random batches, in all but this: where an order comes
// twice in one batch, one behind it may be told that the segment is short, which then looks again.
func TestTheShortWayIsTheLongWay(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	c := processAt(t, server.Option())
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 1))
		conf := Config{Segments: 1, Remember: bucketTime}
		units := int64(random.IntN(300))
		var stocks [2]*Stock
		var clocks [2]*serverClock
		var counted [2]sent
		for i := range stocks {
			stocks[i] = opened(t, c, redistest.Prefix(t), conf)
			clocks[i] = newClock(t, server, stocks[i].name)
			clocks[i].set(t, time.UnixMicro(1e15))
			stocks[i] = through(t, through(t, stocks[i], clocks[i].wrap), counted[i].wrap)
			require.NoError(t, stocks[i].Load(t.Context(), units))
		}
		for range 30 {
			b, twice := randomBatch(random)
			var was [2]map[string]string
			for i, s := range stocks {
				was[i] = hashAt(t, server, s.homes[0].keys.books)
			}
			short, shortServed := ways(t, stocks[0], false, b)
			b.nameless = slices.Clone(b.nameless)
			long, longServed := ways(t, stocks[1], true, b)
			if twice && slices.Contains(short, statusShort) {
				for i := range short {
					require.True(t, short[i] == long[i] || short[i] == statusShort, "seed %d: %v, %v", seed, short, long)
				}
				break // they have gone apart
			}
			require.Equal(t, long, short, "seed %d", seed)
			require.Equal(t, longServed, shortServed, "seed %d", seed)
			for _, key := range []func(k *keys) string{
				func(k *keys) string { return k.orders(stocks[0].homes[0].bucket.Load()) },
				func(k *keys) string { return k.orders(stocks[0].homes[0].bucket.Load() - 1) },
			} {
				require.Equal(t, hashAt(t, server, key(&stocks[1].homes[0].keys)), hashAt(t, server, key(&stocks[0].homes[0].keys)))
			}
			require.Equal(t, audited(t, stocks[1]), audited(t, stocks[0]), "seed %d", seed)
			for i, s := range stocks {
				now := hashAt(t, server, s.homes[0].keys.books)
				require.Equal(t, was[i]["left"] != now["left"], was[i]["rev"] != now["rev"], "rev grows with what changes, and only then")
			}
			if random.IntN(8) == 0 {
				d := time.Duration(random.Int64N(int64(bucketTime)))
				clocks[0].add(t, d)
				clocks[1].add(t, d)
			}
		}
		require.Positive(t, counted[0].of("deduct"))
		require.Zero(t, counted[1].of("deduct"))
	}
}

// randomBatch are deductions, some of which come again; twice says that one does within the batch.
func randomBatch(random *rand.Rand) (b batch, twice bool) {
	seen := map[string]bool{}
	for range random.IntN(12) {
		o := Order{ID: fmt.Sprint(random.IntN(60)), User: fmt.Sprint(random.IntN(2)), Quantity: 1}
		if random.IntN(10) == 0 {
			o.Quantity = 1 + random.Int64N(3)
		}
		field := o.field()
		twice = twice || seen[field]
		seen[field] = true
		b.orders = append(b.orders, deduct.step(o))
	}
	for q := range random.IntN(3) {
		b.nameless = append(b.nameless, group{quantity: int64(q + 1), count: random.IntN(6)})
	}
	return b, twice
}

// TestScriptsAreForgotten in the middle of a sale: the server is told them again.
func TestScriptsAreForgotten(t *testing.T) {
	t.Parallel()
	server := redistest.Alone(t)
	s := opened(t, processAt(t, server.Option()), "stock", Config{Segments: 4})
	require.NoError(t, s.Load(t.Context(), 2000))
	done := make(chan struct{})
	var flushes, calls sync.WaitGroup
	flushes.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				server.Do(t, "SCRIPT", "FLUSH")
			}
		}
	})
	for i := range 10 {
		calls.Go(func() {
			for j := range 50 {
				o := Order{ID: fmt.Sprint(i, " ", j), User: fmt.Sprint(i % 2), Quantity: 4}
				if j%2 == 0 {
					o = Order{Quantity: 4}
				}
				if _, err := s.Deduct(t.Context(), o); err != nil {
					t.Error(err)
				}
			}
		})
	}
	within(t, "the calls end", calls.Wait)
	close(done)
	flushes.Wait()
	require.Equal(t, Books{Loaded: 2000, Sold: 2000}, audited(t, s))
}

// TestFullServer refuses before anything is taken, and the same calls work when there is room again.
func TestFullServer(t *testing.T) {
	t.Parallel()
	for _, limit := range []int64{0, 50} {
		server := redistest.Alone(t)
		s := opened(t, processAt(t, server.Option(), coordinator.WithUnavailableAfter(100*time.Millisecond)), "stock",
			Config{Segments: 2, PerUser: limit})
		require.NoError(t, s.Load(t.Context(), 100))
		old, held := Order{ID: "old", User: "u", Quantity: 1}, Order{ID: "held", User: "u", Quantity: 1}
		_, err := s.Deduct(t.Context(), old)
		require.NoError(t, err)
		_, err = s.Reserve(t.Context(), held, time.Hour)
		require.NoError(t, err)
		warm(t, s)
		was := contents(t, server, s)
		server.Do(t, "CONFIG", "SET", "maxmemory", "1")
		server.Do(t, "CONFIG", "SET", "maxmemory-policy", "noeviction")
		calls := map[string]func() error{
			"Deduct":   func() error { _, err := s.Deduct(t.Context(), Order{ID: "o", User: "v", Quantity: 1}); return err },
			"large":    func() error { _, err := s.Deduct(t.Context(), Order{ID: "large", User: "w", Quantity: 48}); return err },
			"nameless": func() error { _, err := s.Deduct(t.Context(), Order{User: "x", Quantity: 1}); return err },
			"Reserve": func() error {
				_, err := s.Reserve(t.Context(), Order{ID: "v", User: "v", Quantity: 1}, time.Hour)
				return err
			},
			"Confirm": func() error { _, err := s.Confirm(t.Context(), held); return err },
			"Return":  func() error { return s.Return(t.Context(), old) },
			"Restock": func() error { return s.Restock(t.Context(), "r", 1) },
		}
		for name, call := range calls {
			err := call()
			require.ErrorIs(t, err, coordinator.ErrUnavailable, name)
			require.ErrorContains(t, err, "OOM", name)
			require.NotErrorIs(t, err, ErrUncertain, name)
			require.Equal(t, was, contents(t, server, s), name)
		}
		server.Do(t, "CONFIG", "SET", "maxmemory", "0")
		for name, call := range calls {
			require.NoError(t, call(), name)
		}
		require.Equal(t, Books{Loaded: 101, Sold: 51, Reserved: 1, Left: 49}, audited(t, s))
	}
}

// TestForeignKeys: somebody has put a value of another type there. Nothing is taken, and the error says so.
func TestForeignKeys(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	c := processAt(t, server.Option())
	for _, limit := range []int64{0, 50} {
		s := opened(t, c, redistest.Prefix(t), Config{Segments: 1, PerUser: limit})
		require.NoError(t, s.Load(t.Context(), 100))
		held := Order{ID: "held", User: "u", Quantity: 1}
		_, err := s.Reserve(t.Context(), held, time.Hour)
		require.NoError(t, err)
		k := &s.homes[0].keys
		foreign := []string{k.books, k.orders(s.homes[0].bucket.Load()), k.open}
		if limit > 0 {
			foreign = append(foreign, k.users)
		}
		for i, key := range foreign {
			was := contents(t, server, s)
			server.Do(t, "RENAME", key, key+"-away")
			server.Do(t, "SET", key, "mine")
			for name, call := range map[string]func() error{
				"Deduct": func() error { _, err := s.Deduct(t.Context(), Order{ID: "o", User: "v", Quantity: 1}); return err },
				"Reserve": func() error {
					_, err := s.Reserve(t.Context(), Order{ID: "v", User: "v", Quantity: 1}, time.Hour)
					return err
				},
				"Return": func() error { return s.Return(t.Context(), held) },
				"Cancel": func() error { return s.Cancel(t.Context(), held) },
			} {
				err := call()
				require.ErrorIs(t, err, coordinator.ErrUnavailable, "%s, key %d", name, i)
				require.ErrorContains(t, err, "WRONGTYPE", "%s, key %d", name, i)
			}
			server.Do(t, "RENAME", key+"-away", key)
			require.Equal(t, was, contents(t, server, s), "key %d", i)
		}
		meta := opened(t, c, s.name, s.conf)
		server.Do(t, "RENAME", s.meta, s.meta+"-away")
		server.Do(t, "SET", s.meta, "mine")
		_, err = meta.Deduct(t.Context(), Order{ID: "o", User: "v", Quantity: 1})
		require.ErrorContains(t, err, "WRONGTYPE")
		require.Error(t, meta.Load(t.Context(), 5))
		require.Equal(t, Books{Loaded: 100, Reserved: 1, Left: 99}, audited(t, s))
		server.Do(t, "RENAME", s.meta+"-away", s.meta)
	}
}

// TestErrorsThatAreNotTold: an error that nobody knows is not taken for one that passes.
func TestErrorsThatAreNotTold(t *testing.T) {
	t.Parallel()
	s := loaded(t, Config{Segments: 1}, 10)
	odd := through(t, s, func(s server) server {
		return &hooked{server: s, before: func(calls []call) []answer { return failAll(calls, coordinator.ErrClosed) }}
	})
	_, err := odd.Deduct(t.Context(), Order{ID: "o", Quantity: 1})
	require.ErrorIs(t, err, coordinator.ErrClosed)
	require.NotErrorIs(t, err, ErrUncertain)
}
