package segment

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/internal/resptest"
)

// What follows reads answers of any shape: see resptest.Frame for how a text stands for one.

func messageOf(t *testing.T, server *resptest.Server, text string) rueidis.RedisMessage {
	m, err := server.Answer(text).ToMessage()
	if err != nil { // an error, or null, which run tells in another place
		t.SkipNow()
	}
	return m
}

// FuzzOutcomes: of a batch all answers are read as they stand, or none is.
func FuzzOutcomes(f *testing.F) {
	for _, text := range []string{
		"all", "*\nall", "*\nall\n:1", "*\n:0\n:1\n:2\n:3", "*\n:1\n:-9\n:0\n:0", "*\n:0\n:-100\n:1\n:1", "*\n:0\n*\n:-4\n:5000\n:3\n.\n:1\n:0", "*\n0\n:1\n:1\n:1",
		"*\n:0\n*\n:1\n:9223372036854775807\n:3\n.\n:1\n:0", "*\n:0\n*\n:1\n:0\n:-3\n.\n:1\n:0", "*\n:0\n*\n:1\n:0\n.\n:1\n:0", "*\n:0\n*\n1\n0\n3\n.\n:1\n:0", "*\nnow\n:1\n:1\n:1",
		"*\n:0\n*\n#t\n_\n*\n.\n.\n:1\n:0", "*\n:0\n:1\n:1\n:-1", "*\n:0\n:1\n:1\n:99", "*", ":1", "*\nlong", "*\nnow\n5\n4", "*\nnow\nx\ny", "*\nnow\n-5\n4", "*\nnow\n:5\n:4",
		"*\n:0\n_\n:1\n:1", "*\n-ERR x\n:1\n:1\n:1", "%\n:0\n:1\n:1\n:1",
	} {
		f.Add(text)
	}
	server := resptest.Start(f)
	s := loadedFor(f)
	f.Fuzz(func(t *testing.T, text string) {
		m := messageOf(t, server, text)
		values, err := m.ToArray()
		if err != nil || len(values) == 0 {
			return // which ask refuses
		}
		stored, bucket, other := another(values)
		if other {
			was, now := textOf(t, &values[2]), textOf(t, &values[1])
			require.Equal(t, "now", textOf(t, &values[0]))
			require.Equal(t, stored, integer(t, was))
			require.Equal(t, bucket, integer(t, now))
			require.False(t, stored < 0 || bucket < 0)
		}
		b := &batch{orders: []order{{verb: deduct, quantity: 1}, {verb: reserve, quantity: 2, ttl: time.Second}}, nameless: []group{{quantity: 1, count: 5}}}
		outcomes, err := s.homes[0].read(b, values, time.Now())
		if err != nil {
			require.ErrorIs(t, err, coordinator.ErrUnavailable)
			require.ErrorIs(t, err, errUnreadable)
			return
		}
		require.False(t, other, "who has named another bucket has done nothing")
		require.Len(t, outcomes, 2)
		served := b.nameless[0].served
		require.True(t, 0 <= served && served <= 5, served)
		for i, out := range outcomes {
			require.True(t, out.status.known(), out.status)
			if len(values) == 1 {
				require.Equal(t, statusDone, out.status)
				continue
			}
			said := values[1+i]
			if three, err := said.ToArray(); err == nil {
				require.EqualValues(t, out.status, numberOf(t, &three[0]))
				said = three[0]
			}
			require.EqualValues(t, out.status, numberOf(t, &said))
			if out.detail != nil {
				require.GreaterOrEqual(t, out.detail.quantity, int64(0))
			}
		}
	})
}

func textOf(t *testing.T, m *rueidis.RedisMessage) string {
	text, err := m.ToString()
	require.NoError(t, err)
	return text
}

func numberOf(t *testing.T, m *rueidis.RedisMessage) int64 {
	require.True(t, m.IsInt64())
	n, err := m.ToInt64()
	require.NoError(t, err)
	return n
}

func integer(t *testing.T, text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	require.NoError(t, err)
	return n
}

// FuzzSteps: the answer to a step of an order over several stocks is what it says, or the step has failed.
func FuzzSteps(f *testing.F) {
	for _, text := range []string{
		"*\n:1", "*\n:1\n17", "*\n:-7\np1 17 1 ab =x\n-5", "*\n:-10\nlate", "*\n:-10", "*\n:-7", "*\n:-7\nx", "*\n:-100", "*\n:3", "*\n1", "*\n:-7\nx\ny", "*\n:-7\n:1\n5", "*\n:1\n_",
		"*\n:-7\nx\n9223372036854775807", "*\n:-7\nx\n99999999999999999999", "*", ":1", "*\nnow\n1\n1", "*\n:1\n1\n1\n1", "*\n:1\n1\n1", "*\n:-7\nx\n:5",
	} {
		f.Add(text)
	}
	server := resptest.Start(f)
	s := loadedFor(f)
	f.Fuzz(func(t *testing.T, text string) {
		m := messageOf(t, server, text)
		values, err := m.ToArray()
		if err == nil && len(values) > 0 && word(values) == "now" {
			return // see FuzzOutcomes
		}
		st := &step{home: s.homes[0], set: "1:1:60000:0", verb: "see"}
		require.True(t, st.read(answer{message: m}))
		require.Equal(t, st.status == statusFailed, st.err != nil, "%v %v", st.status, st.err)
		if st.err != nil {
			require.ErrorIs(t, st.err, errUnreadable)
			require.False(t, st.gone())
			return
		}
		require.EqualValues(t, st.status, numberOf(t, &values[0]))
		require.True(t, st.status.known() || st.status == statusOutrun)
		if len(values) > 1 {
			require.Equal(t, textOf(t, &values[1]), st.by)
		}
		if st.status == statusBusy {
			require.Equal(t, st.left < 0, integer(t, textOf(t, &values[2])) < 0)
		}
	})
}

// FuzzLooks: books, pairs, gifts and what is known of a stock as a whole are read as they stand, or refused.
func FuzzLooks(f *testing.F) {
	var whole strings.Builder
	for _, name := range []string{"bucket", "prev", "left", "took", "reserved", "parts", "opens", "loaded", "added", "raised", "gave", "gotten", "short", "rev", "seq"} {
		whole.WriteString("\n" + name + "\n7")
	}
	f.Add("*\n:0\n:-1" + whole.String())
	f.Add("*\n:1\n:9223372036854775807" + whole.String() + "\noverdue\n*\n1:uo\np1 17 1 ab =x\n2:uoo\n_")
	f.Add("*\n:0\n:-1" + whole.String() + "\noverdue\n*\n1:uo")
	f.Add("*\n:0\n:-1" + strings.Replace(whole.String(), "left\n7", "left\n:7", 1))
	for _, text := range []string{
		"*\n:0\n:-1", "*\ngiven\n1\n5\ngot\n0\n7", "*\ngiven\n-1\n5", "*\ngiven\n4096\n5", "*\ngiven\n1\n-5", "*\nother\n1\n5", "*\ngiven\n1", "*", "*\n5\n3\n2", "*\n5\n3\n6",
		"*\n_\n3\n2", "*\n-5\n3\n2", "*\n17:4:60000:0\n$\n4\n17", "*\n$\n$\n-1\n0", "*\n$\n$\n99999\n0", "*\n_\n$\n1\n0", "*\n17\n4", "*\n17\n4097", "*\nx\n4", "*\n17\n-4", "-ERR", ":1",
	} {
		f.Add(text)
	}
	server := resptest.Start(f)
	f.Fuzz(func(t *testing.T, text string) {
		m := messageOf(t, server, text)
		values, _ := m.ToArray()
		at := func(i int) int64 { return integer(t, textOf(t, &values[i])) }

		if b, err := parseBooks(answer{message: m}); err == nil {
			said := map[string]string{}
			for i := 2; i < len(values); i += 2 {
				if name, _ := values[i].ToString(); name != "overdue" {
					said[name], _ = values[i+1].ToString()
				}
			}
			for name, n := range map[string]int64{"left": b.left, "took": b.took, "loaded": b.loaded, "gave": b.gave, "gotten": b.gotten, "short": b.short} {
				require.Contains(t, said, name, "nothing is taken for 0 that is not there")
				integer(t, said[name])
				_ = n
			}
			require.Equal(t, b.earliest < 0, numberOf(t, &values[1]) < 0)
		} else {
			require.ErrorIs(t, err, errUnreadable)
			require.Zero(t, b)
		}

		given, got := map[pair]int64{}, map[pair]int64{}
		if parsePairs(&m, 3, given, got) {
			require.LessOrEqual(t, len(given)+len(got), len(values)/3)
			for _, of := range []map[pair]int64{given, got} {
				for p, units := range of {
					require.True(t, units >= 0 && p.donor >= 0 && p.home >= 0 && p.donor < MaxSegments && p.home < MaxSegments, "%v", p)
					require.True(t, p.donor == 3 || p.home == 3)
				}
			}
		}
		if total, units, ok := parseGift(&m); ok {
			require.Equal(t, []int64{at(0), at(2)}, []int64{total, units})
			require.True(t, 0 <= units && units <= total)
		}
		if meta, ok := parseMeta(&m); ok {
			require.Equal(t, []string{textOf(t, &values[0]), textOf(t, &values[1])}, []string{meta.set, meta.loading})
			require.EqualValues(t, at(2), meta.most)
			require.Equal(t, number(at(3)), meta.last)
			require.True(t, 0 <= meta.most && meta.most <= MaxSegments)
		}
		if epoch, most, ok := parseBegun(&m); ok && len(values) > 0 {
			require.Equal(t, number(at(0)), epoch)
			require.EqualValues(t, at(1), most)
		}
	})
}

// FuzzRecords: what is written down in Redis of an order over several stocks is read as it was written, or refused: it
// may be anything, and whoever looks at the stock reads it.
func FuzzRecords(f *testing.F) {
	for _, text := range []string{
		"1:a0:17:4:60000:3", "1:a0:17:4:60000:3 2:a 3:1:4:60000:0", "0:0:1:1:1:1", "x", "9:a0:1:1:1:1", "-1:a0:1:1:1:1", "1:a1:1:1:1:1", "1:a0:1:0:1:1", "1:a0:1:1:1", "1:a-1:1:1:1:1",
		"1:a0:1:1:288230376151711744:0", "1:a0:1:1:9223372036854775807:0", "1:a0:1:9223372036854775807:1:0", "1:a0:1:1:1:-1", "p3 17 5 ab 1:a0:17:4:60000:3", "p3 17 5 ab =x", "d3 17 5 ab ",
		"x3 17 5 ab ", "v3 17", "", " ", "1:a0:1:1:1:1 ", "01:a0:1:1:1:1",
	} {
		f.Add(text)
	}
	s := loadedFor(f)
	f.Fuzz(func(t *testing.T, text string) {
		homes, sets, err := s.places(text)
		require.Len(t, sets, len(homes))
		if err != nil {
			require.ErrorIs(t, err, errPlace)
			require.Empty(t, homes)
		}
		var again []string
		for i, h := range homes {
			require.True(t, 0 <= h.index && h.index < h.stock.conf.Segments)
			require.Positive(t, h.stock.conf.Remember.Microseconds())
			require.NoError(t, validSegments(h.stock.conf.Segments))
			again = append(again, placeOf(h, sets[i]))
		}
		if err == nil {
			back, backSets, err := s.places(strings.Join(again, " "))
			require.NoError(t, err)
			require.Equal(t, sets, backSets)
			for i := range back {
				require.Equal(t, homes[i].keys, back[i].keys)
			}
		}
		if e, ok := parseEntry(text); ok {
			require.Contains(t, "pdg", string(e.kind))
			require.True(t, strings.HasSuffix(text, " "+e.lines+" "+e.home))
		}
		ending := s.ending(&overdue{home: s.homes[0], set: "1:1:60000:0", field: "1:uo", value: text})
		if ending != nil && len(ending.asked) > 0 {
			for _, st := range ending.asked {
				st.status = statusDone
				require.NotEmpty(t, st.call().args)
			}
			ending.last(s)
		}
	})
}

// loadedFor returns a stock for the seeds and inputs of a target, on the shared server.
func loadedFor(f *testing.F, opts ...coordinator.Option) *Stock {
	s := opened(f, processAt(f, redistest.Shared(f).Option(), opts...), redistest.Prefix(f), Config{Segments: 2})
	require.NoError(f, s.Load(context.Background(), 100))
	return s
}

// said answers calls with what it was given, one after the other; then it is gone.
type said struct {
	mu      sync.Mutex
	answers []answer
}

func (s *said) run(_ context.Context, calls []call) []answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	answers := make([]answer, len(calls))
	for i := range calls {
		answers[i].err = errGone
		if len(s.answers) > 0 {
			answers[i], s.answers = s.answers[0], s.answers[1:]
		}
	}
	return answers
}

// FuzzCalls: whatever a server answers, and in whatever order, a call ends with an answer that can be, or with an error.
func FuzzCalls(f *testing.F) {
	for what := range calls {
		for _, text := range []string{
			"*\nall", "*\n:0\n:1", "*\n:0\n:0", "*\n:0\n:-7", "*\n:-7\nx\n5", "*\n:1\n17", "*\nnow\n5\n4", "*\nnow\n5\n4\n\x00*\nnow\n5\n5\n\x00*\n:0\n:1", "-EPOCH 3:1:1:1", "-UNLOADED x",
			"*\nset", "*\n5\n2\x00*\nset\x00*\nset\x00*", "*\n5:2:86400000:0\n$\n2\n5", "*\n:0\n*\n:-4\n:5000\n:1", "*\nlong\x00*\n:0\n:1", "-READONLY x", "*\n:0\n:-100", "-OOM x",
		} {
			f.Add(uint8(what), true, text)
			f.Add(uint8(what), false, "*\n5:2:86400000:0\n$\n2\n5\x00"+text)
		}
	}
	server := resptest.Start(f)
	base := loadedFor(f)
	base.settings.UnavailableAfter = time.Nanosecond // what fails is not tried again
	f.Fuzz(func(t *testing.T, what uint8, attached bool, texts string) {
		from := &said{}
		for text := range strings.SplitSeq(texts, "\x00") {
			m, err := server.Answer(text).ToMessage()
			from.answers = append(from.answers, answer{message: m, err: err})
		}
		s := newStock(base.c, base.name, base.conf, base.settings, from)
		other := newStock(base.c, base.name+"2", base.conf, base.settings, from)
		if attached {
			set := "5:2:86400000:0"
			s.epoch.Store(&set)
			other.epoch.Store(&set)
			s.allowed = true
		}
		// Long enough for all that answers; some calls go on for as long as others are at work.
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		err := calls[int(what)%len(calls)](t, ctx, s, other)
		if err != nil {
			require.NotContains(t, err.Error(), "%!")
			require.Less(t, len(err.Error()), 2000+len(texts))
			require.NotErrorIs(t, err, coordinator.ErrInvalid)
		}
	})
}

// calls are all that a stock can be asked. Those that succeed check what they were told.
var calls = []func(t *testing.T, ctx context.Context, s, other *Stock) error{
	func(t *testing.T, ctx context.Context, s, _ *Stock) error {
		r, err := s.Deduct(ctx, Order{ID: "o", User: "u", Quantity: 3})
		if err == nil {
			require.True(t, 0 <= r.Segment && r.Segment < 2 && r.Quantity >= 0, "%+v", r)
		}
		return err
	},
	func(_ *testing.T, ctx context.Context, s, _ *Stock) error {
		_, err := s.Deduct(ctx, Order{Quantity: 3})
		return err
	},
	func(t *testing.T, ctx context.Context, s, _ *Stock) error {
		r, err := s.Reserve(ctx, Order{ID: "o", Quantity: 1}, time.Minute)
		require.Equal(t, err == nil, r != nil)
		return err
	},
	func(_ *testing.T, ctx context.Context, s, _ *Stock) error {
		_, err := s.Confirm(ctx, Order{ID: "o"})
		return err
	},
	func(_ *testing.T, ctx context.Context, s, _ *Stock) error { return s.Cancel(ctx, Order{ID: "o"}) },
	func(_ *testing.T, ctx context.Context, s, _ *Stock) error { return s.Return(ctx, Order{ID: "o"}) },
	func(_ *testing.T, ctx context.Context, s, _ *Stock) error { return s.Restock(ctx, "r", 5) },
	func(t *testing.T, ctx context.Context, s, _ *Stock) error {
		r, err := s.Lookup(ctx, "u", "o")
		require.True(t, Unknown <= r.State && r.State <= Undecided)
		return err
	},
	func(t *testing.T, ctx context.Context, s, _ *Stock) error {
		n, err := s.Remaining(ctx)
		require.GreaterOrEqual(t, n, int64(0))
		return err
	},
	func(_ *testing.T, ctx context.Context, s, _ *Stock) error {
		_, err := s.Audit(ctx)
		return err
	},
	func(_ *testing.T, ctx context.Context, s, _ *Stock) error { return s.Load(ctx, 10) },
	func(_ *testing.T, ctx context.Context, s, _ *Stock) error { return s.Reset(ctx, 10) },
	func(_ *testing.T, ctx context.Context, s, _ *Stock) error { return s.Drop(ctx) },
	func(_ *testing.T, ctx context.Context, s, other *Stock) error {
		_, err := DeductAll(ctx, "o", "u", Line{s, 1}, Line{other, 2})
		return err
	},
	func(_ *testing.T, ctx context.Context, s, other *Stock) error {
		return ReturnAll(ctx, "o", "u", Line{s, 1}, Line{other, 2})
	},
	func(_ *testing.T, ctx context.Context, s, _ *Stock) error {
		return s.WithSegment(ctx, "k", 1, doesNothing)
	},
}
