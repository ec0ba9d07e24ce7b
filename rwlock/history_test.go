package rwlock_test

import (
	"encoding/json"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/history"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

const (
	// historyPatience is how long what has to end may take: so long that only a hang reaches it.
	historyPatience = time.Minute
	// historyLimit is how long the search for an order may take for one key. It takes far less than a second.
	historyLimit = 30 * time.Second
	// historyClient is the name of the processes' connections.
	historyClient = "history"
)

// historyLasting is how long a history is, without its end.
func historyLasting(normal time.Duration) time.Duration {
	if os.Getenv("LEASEHOLD_TORTURE") == "1" {
		return time.Minute
	}
	return normal
}

// historySeed is that of LEASEHOLD_SEED, or any.
func historySeed(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("LEASEHOLD_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("LEASEHOLD_SEED=%d", seed)
	return seed
}

// director is the parent of the processes of a history.
type director struct {
	t       *testing.T
	s       *redistest.Server
	rnd     *rand.Rand
	order   historyOrder
	dir     string
	cast    []*actor
	records []string
	done    []history.Event // what was done to processes and keys
}

// actor is a process, as its parent sees it.
type actor struct {
	*faults.Child
	number int
}

func direct(t *testing.T) *director {
	seed := historySeed(t)
	d := &director{
		t: t, s: redistest.Start(t), rnd: rand.New(rand.NewPCG(seed, 0)), dir: t.TempDir(),
		order: historyOrder{TTL: time.Second, Lanes: 6, Keys: 4, Period: 500 * time.Millisecond},
	}
	d.order.Addr = d.s.Addr()
	for range 3 {
		d.cast = append(d.cast, d.start())
	}
	for _, a := range d.cast {
		a.Expect(t, "ready")
	}
	return d
}

func (d *director) start() *actor {
	d.order.Process++
	d.order.Seed = d.rnd.Uint64()
	d.order.Record = filepath.Join(d.dir, strconv.Itoa(d.order.Process))
	d.records = append(d.records, d.order.Record)
	text, err := json.Marshal(d.order)
	require.NoError(d.t, err)
	return &actor{faults.StartChild(d.t, "history", string(text)), d.order.Process}
}

// run does one thing after the other, each at least once, for about that long.
func (d *director) run(lasting time.Duration, acts ...func()) {
	end := time.Now().Add(lasting)
	for n := 0; n < len(acts) || time.Now().Before(end); n++ {
		if n%len(acts) == 0 {
			d.rnd.Shuffle(len(acts), func(i, j int) { acts[i], acts[j] = acts[j], acts[i] })
		}
		time.Sleep(time.Duration(50+d.rnd.IntN(200)) * time.Millisecond)
		acts[n%len(acts)]()
	}
}

// kill kills a process and starts another one in its place.
func (d *director) kill() {
	i := d.rnd.IntN(len(d.cast))
	e := history.Event{What: history.Killed, Process: d.cast[i].number, Call: history.Now()}
	d.cast[i].Kill()
	e.Return = history.Now()
	d.done = append(d.done, e)
	d.cast[i] = d.start()
	d.cast[i].Expect(d.t, "ready")
}

// pause stops a process for longer than its leases live.
func (d *director) pause() { d.pauseFor(d.order.TTL * time.Duration(11+d.rnd.IntN(6)) / 10) }

// blink stops a process for a moment.
func (d *director) blink() { d.pauseFor(d.order.TTL * time.Duration(d.rnd.IntN(4)) / 10) }

func (d *director) pauseFor(length time.Duration) {
	a := d.cast[d.rnd.IntN(len(d.cast))]
	a.Stop()
	e := history.Event{What: history.Paused, Process: a.number, Call: history.Now()}
	time.Sleep(length)
	e.Return = history.Now()
	a.Cont()
	d.done = append(d.done, e)
}

// cut ends connections of the processes, one or all.
func (d *director) cut() {
	message := d.s.Do(d.t, "CLIENT", "LIST", "TYPE", "NORMAL")
	list, err := message.ToString()
	require.NoError(d.t, err)
	message = d.s.Do(d.t, "CLIENT", "LIST", "TYPE", "PUBSUB")
	more, err := message.ToString()
	require.NoError(d.t, err)
	all := d.rnd.IntN(3) == 0
	var ids []string
	for line := range strings.Lines(list + more) {
		if id, rest, ok := strings.Cut(strings.TrimPrefix(line, "txt:"), " "); ok && strings.Contains(rest, "name="+historyClient+" ") {
			ids = append(ids, strings.TrimPrefix(id, "id="))
		}
	}
	if len(ids) > 0 && !all {
		ids = []string{oneOf(d.rnd, ids...)}
	}
	for _, id := range ids {
		_, _ = d.s.DoErr("CLIENT", "KILL", "ID", id) // it may be gone by itself
	}
}

// remove deletes a key that is in use, whoever has it.
func (d *director) remove() {
	const script = `local counter = redis.call('GET', KEYS[2])
if redis.call('DEL', KEYS[1]) == 0 then return '' end
return string.match(counter, '^%d+')`
	for deadline := time.Now().Add(historyPatience); ; time.Sleep(time.Millisecond) {
		require.True(d.t, time.Now().Before(deadline), "no key is in use")
		key := d.order.key(d.rnd.IntN(d.order.Keys))
		e := history.Event{What: history.Deleted, Key: key, Call: history.Now()}
		message := d.s.Do(d.t, "EVAL", script, "2", "lock:"+key, "lock:~token{lock:"+key+"}lock:"+key)
		e.Return = history.Now()
		text, err := message.ToString()
		require.NoError(d.t, err)
		if text == "" {
			continue // nobody had it
		}
		e.Token, err = strconv.ParseUint(text, 10, 64)
		require.NoError(d.t, err)
		d.done = append(d.done, e)
		return
	}
}

// end has every call end.
func (d *director) end() {
	d.t.Run("calls end", func(t *testing.T) {
		t.Cleanup(func() { // for the history of those that hang is worth a look
			for _, a := range d.cast {
				a.Kill()
				if t.Failed() {
					d.done = append(d.done, history.Event{What: history.Killed, Process: a.number, Call: history.Now()})
				}
			}
		})
		for _, a := range d.cast {
			a.Send("end")
		}
		for _, a := range d.cast {
			a.ExpectWithin(t, historyPatience+historyPatience/4, "visited")
		}
		passed := 0
		for _, a := range d.cast {
			n, err := strconv.Atoi(a.ExpectWithin(t, historyPatience+historyPatience/4, "closed"))
			require.NoError(t, err)
			require.NoError(t, a.Wait())
			passed += n
		}
		t.Logf("%d reads of those who stayed took the short way", passed)
	})
	d.t.Run("nothing is left in Redis", d.left)
}

// left requires that all that is left in Redis ends within a TTL, but for the counters.
func (d *director) left(t *testing.T) {
	for deadline := time.Now().Add(historyPatience); ; time.Sleep(10 * time.Millisecond) {
		left := 0
		for _, name := range d.s.Keys(t, "lock:*") {
			if strings.HasPrefix(name, "lock:~token") {
				continue
			}
			left++
			message := d.s.Do(t, "PTTL", name)
			ttl, err := message.AsInt64()
			require.NoError(t, err)
			require.NotEqual(t, int64(-1), ttl, "%s would stay for ever", name)
			require.LessOrEqual(t, ttl, d.order.TTL.Milliseconds(), name)
		}
		if left == 0 {
			return
		}
		require.True(t, time.Now().Before(deadline), "%d names are left", left)
	}
}

// check holds all that was recorded to what a lock may do.
func (d *director) check() {
	t := d.t
	events := d.done
	for _, name := range d.records {
		file, err := os.Open(name)
		require.NoError(t, err)
		more, err := history.Load(file)
		require.NoError(t, err)
		require.NoError(t, file.Close())
		events = append(events, more...)
	}
	counts := history.Count(events)
	t.Log(counts)
	begun := time.Now()
	err := history.Check(events, history.Rules{TTL: d.order.TTL, Limit: historyLimit})
	t.Logf("checked in %v", time.Since(begun))
	if err != nil {
		paths, failed := history.Keep(artifacts(t), events, err)
		require.NoError(t, failed)
		require.NoError(t, err, "see %s", strings.Join(paths, " and "))
	}
	require.NotZero(t, counts["read"])
	require.NotZero(t, counts["write"])
	if counts["write"] > 100 { // almost every third is downgraded, if it can be
		require.NotZero(t, counts["downgraded"])
	}
}

// artifacts is where something can be kept for longer than the test.
func artifacts(t *testing.T) string {
	t.Helper()
	if f := flag.Lookup("test.artifacts"); f != nil && f.Value.String() == "true" {
		return t.ArtifactDir()
	}
	//nolint:usetesting // the test's own directory goes with the test
	dir, err := os.MkdirTemp("", "leasehold-history-")
	require.NoError(t, err)
	return dir
}

// Three processes read, write and downgrade at random while they are killed, stopped for longer than their leases
// live, and cut off from Redis. What they saw is what a read/write lock shows.
func TestHistoryOfProcessesThatAreKilledStoppedAndCutOff(t *testing.T) {
	d := direct(t)
	d.run(historyLasting(2500*time.Millisecond), d.kill, d.pause, d.blink, d.cut, d.cut)
	d.end()
	d.check()
}

// The same while keys are deleted under their holders, which have to notice. Holders of leases from after a deletion
// exclude each other as ever.
func TestHistoryOfKeysThatAreDeleted(t *testing.T) {
	d := direct(t)
	d.run(historyLasting(1500*time.Millisecond), d.remove, d.remove, d.remove, d.cut)
	d.end()
	d.check()
}
