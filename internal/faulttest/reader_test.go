package faulttest

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/rwlock"
)

func init() { roles["reader"] = playReader }

// readerOrder says how the coordinator of a reader is made.
type readerOrder struct {
	Addr      string
	TTL       time.Duration
	Retention time.Duration
	Shared    time.Duration // for how long an idle read lease is kept
	Untracked bool          // no client-side caching: every renewal is one by schedule
}

// reader is a real process that takes, downgrades and frees locks of every kind as it is told. Its holds have names.
type reader struct {
	*faults.Child
	id    string
	heard []string // lines that nobody has asked for yet: calls that wait answer in any order
}

func startReader(t testing.TB, order readerOrder) *reader {
	t.Helper()
	text, err := json.Marshal(order)
	require.NoError(t, err)
	p := &reader{Child: faults.StartChild(t, "reader", string(text))}
	p.id = p.hear(t, "ready")
	return p
}

// hear waits for the line that starts with these words, and returns the rest of it.
func (p *reader) hear(t testing.TB, words string) string {
	t.Helper()
	for i, line := range p.heard {
		if rest, ok := strings.CutPrefix(line, words+" "); ok {
			p.heard = slices.Delete(p.heard, i, i+1)
			return rest
		}
	}
	for {
		line := p.Expect(t, "")
		if rest, ok := strings.CutPrefix(line, words+" "); ok {
			return rest
		}
		p.heard = append(p.heard, line)
	}
}

// ask sends a line, and waits for its answer.
func (p *reader) ask(t testing.TB, line, words string) string {
	t.Helper()
	p.Send(line)
	return p.hear(t, words)
}

// said tells whether a line with these words has come by now.
func (p *reader) said(t testing.TB, words string) bool {
	t.Helper()
	p.ask(t, "stats", "stats") // all that was said before is read then
	return slices.ContainsFunc(p.heard, func(line string) bool { return strings.HasPrefix(line, words+" ") })
}

// called is what a call of a reader came to.
type called struct {
	outcome string // "ok", or the error's name
	token   uint64
	took    time.Duration
}

// begin has the reader call: how is "pass" (a read by the short way of readers), "read", "write" or "mutex", alone (it waits), behind "try-" (TryLock) or "for-"
// (ten seconds). within is the hold with whose context it calls, "owner:" and a name for WithOwner, or "-".
func (p *reader) begin(how, name, key, within string) {
	p.Send(strings.Join([]string{"take", how, name, key, within}, " "))
}

// got waits for what became of a call.
func (p *reader) got(t testing.TB, name string) called {
	t.Helper()
	words := strings.Fields(p.hear(t, "got "+name))
	token, err := strconv.ParseUint(words[1], 10, 64)
	require.NoError(t, err)
	took, err := time.ParseDuration(words[2])
	require.NoError(t, err)
	return called{words[0], token, took}
}

func (p *reader) call(t testing.TB, how, name, key, within string) called {
	t.Helper()
	p.begin(how, name, key, within)
	return p.got(t, name)
}

// take is a call that has to end in a hold; it returns its token.
func (p *reader) take(t testing.TB, how, name, key, within string) uint64 {
	t.Helper()
	got := p.call(t, how, name, key, within)
	require.Equal(t, "ok", got.outcome)
	return got.token
}

func (p *reader) unlock(t testing.TB, name string) {
	t.Helper()
	require.Equal(t, "ok", p.ask(t, "unlock "+name, "unlocked "+name))
}

// counts are how often the hold's owner is inside, to write and to read, in one string.
func (p *reader) counts(t testing.TB, name string) string {
	t.Helper()
	return p.ask(t, "counts "+name, "counts "+name)
}

func (p *reader) stats(t testing.TB) (s coordinator.Stats) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(p.ask(t, "stats", "stats")), &s))
	return s
}

// lost waits until a hold that is watched has ended.
func (p *reader) lost(t testing.TB, name string) loss {
	t.Helper()
	words := strings.Fields(p.ask(t, "loss "+name, "ended "+name))
	return loss{words[0], unixNano(t, words[1]), unixNano(t, words[2])}
}

// readingPlayer is the child's side.
type readingPlayer struct {
	c *coordinator.Coordinator

	mu     sync.Mutex
	locks  map[string]*rwlock.Lock // kept, as a program would: the short way of readers begins in the handle
	holds  map[string]rwlock.Hold
	owners map[string]context.Context
	crowds map[string][][]rwlock.Hold // of each reader, outermost first
	losses map[string]chan string
}

func playReader(args []string) {
	var order readerOrder
	exitIf(json.Unmarshal([]byte(args[0]), &order))
	option := patient(order.Addr)
	option.DisableCache = order.Untracked
	c, err := coordinator.New(option, coordinator.WithTTL(order.TTL), coordinator.WithUnavailableAfter(0),
		coordinator.WithRetention(order.Retention), coordinator.WithSharedRetention(order.Shared),
		coordinator.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil))))
	exitIf(err)
	p := &readingPlayer{
		c: c, locks: map[string]*rwlock.Lock{}, holds: map[string]rwlock.Hold{}, owners: map[string]context.Context{},
		crowds: map[string][][]rwlock.Hold{}, losses: map[string]chan string{},
	}
	faults.Say("ready %s", c.ID())
	for line, ok := faults.Hear(); ok; line, ok = faults.Hear() {
		p.act(strings.Fields(line))
	}
	exitIf(shut(c))
}

// act obeys one line. What may wait has a goroutine of its own, which ends with the process.
func (p *readingPlayer) act(words []string) {
	switch words[0] {
	case "take":
		ctx := p.within(words[4])
		go p.take(ctx, words[1], words[2], words[3])
	case "unlock":
		faults.Say("unlocked %s %s", words[1], verdict(p.hold(words[1]).Unlock()))
	case "downgrade":
		hold, err := p.hold(words[1]).Downgrade()
		p.got(words[2], hold, err, time.Now())
	case "counts":
		writes, reads := p.hold(words[1]).Counts()
		faults.Say("counts %s %d %d", words[1], writes, reads)
	case "err":
		faults.Say("err %s %s", words[1], verdict(p.hold(words[1]).Err()))
	case "watch":
		p.losses[words[1]] = make(chan string, 1)
		go new(player).watch(p.hold(words[1]).Hold, p.losses[words[1]])
		faults.Say("watching %s it", words[1])
	case "loss":
		faults.Say("ended %s %s", words[1], <-p.losses[words[1]])
	case "stats":
		text, err := json.Marshal(stats(p.c))
		exitIf(err)
		faults.Say("stats %s", text)
	case "gather", "deepen", "disperse":
		p.crowd(words)
	}
}

func (p *readingPlayer) lock(key string) *rwlock.Lock {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.locks[key] == nil {
		p.locks[key] = rwlock.New(p.c, key)
	}
	return p.locks[key]
}

func (p *readingPlayer) hold(name string) rwlock.Hold {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.holds[name]
}

// within is the context that a call is made with.
func (p *readingPlayer) within(name string) context.Context {
	switch {
	case name == "-":
		return context.Background()
	case !strings.HasPrefix(name, "owner:"):
		return p.hold(name).Context()
	}
	if p.owners[name] == nil {
		p.owners[name] = coordinator.WithOwner(context.Background())
	}
	return p.owners[name]
}

func (p *readingPlayer) take(ctx context.Context, how, name, key string) {
	const long = 10 * time.Second
	lock, mutex := p.lock(key), p.c.Mutex(key)
	wrap := func(hold *coordinator.Hold, err error) (rwlock.Hold, error) { return rwlock.Hold{Hold: hold}, err }
	calls := map[string]func() (rwlock.Hold, error){
		"pass":      func() (rwlock.Hold, error) { return p.pass(ctx, lock) },
		"read":      func() (rwlock.Hold, error) { return lock.RLock(ctx) },
		"try-read":  func() (rwlock.Hold, error) { return lock.TryRLock(ctx) },
		"for-read":  func() (rwlock.Hold, error) { return lock.TryRLockFor(ctx, long) },
		"write":     func() (rwlock.Hold, error) { return lock.Lock(ctx) },
		"try-write": func() (rwlock.Hold, error) { return lock.TryLock(ctx) },
		"for-write": func() (rwlock.Hold, error) { return lock.TryLockFor(ctx, long) },
		"mutex":     func() (rwlock.Hold, error) { return wrap(mutex.Lock(ctx)) },
		"try-mutex": func() (rwlock.Hold, error) { return wrap(mutex.TryLock(ctx)) },
		"for-mutex": func() (rwlock.Hold, error) { return wrap(mutex.TryLockFor(ctx, long)) },
	}
	start := time.Now()
	hold, err := calls[how]()
	p.got(name, hold, err, start)
}

// pass reads again and again, close upon each other, until it comes in by the short way of readers.
func (p *readingPlayer) pass(ctx context.Context, lock *rwlock.Lock) (rwlock.Hold, error) {
	for {
		before := stats(p.c).Passed
		hold, err := lock.RLock(ctx)
		if err != nil || stats(p.c).Passed > before {
			return hold, err
		}
		if err := errors.Join(hold.Unlock(), lock.Read(ctx, func(context.Context) error { return nil })); err != nil {
			return rwlock.Hold{}, err
		}
	}
}

func (p *readingPlayer) got(name string, hold rwlock.Hold, err error, start time.Time) {
	took := time.Since(start)
	if err != nil {
		faults.Say("got %s %s 0 %v", name, verdict(err), took)
		return
	}
	p.mu.Lock()
	p.holds[name] = hold
	p.mu.Unlock()
	faults.Say("got %s ok %d %v", name, hold.Token(), took)
}

// crowd has many goroutines do the same, and answers when all have done it: "gather name readers key" has each come
// in, "deepen name key" has each read once more inside its read, "disperse name" has each unlock all that it has, in
// any order.
func (p *readingPlayer) crowd(words []string) {
	verb, name := words[0], words[1]
	if verb == "gather" {
		n, err := strconv.Atoi(words[2])
		exitIf(err)
		p.crowds[name] = make([][]rwlock.Hold, n)
	}
	crowd := p.crowds[name]
	errs := make([]error, len(crowd))
	var all sync.WaitGroup
	for i := range crowd {
		all.Go(func() {
			if verb == "disperse" {
				for _, n := range rand.Perm(len(crowd[i])) {
					errs[i] = errors.Join(errs[i], crowd[i][n].Unlock())
				}
				return
			}
			ctx := context.Background()
			if depth := len(crowd[i]); depth > 0 {
				ctx = crowd[i][depth-1].Context()
			}
			hold, err := p.lock(words[len(words)-1]).RLock(ctx)
			crowd[i], errs[i] = append(crowd[i], hold), err
		})
	}
	all.Wait()
	faults.Say("%s %s %s", verb, name, verdict(errors.Join(errs...)))
}

// verdict is outcomeName for read/write locks too.
func verdict(err error) string {
	for name, target := range map[string]error{
		"upgrade": coordinator.ErrUpgrade, "kind": coordinator.ErrKind, "notexclusive": coordinator.ErrNotExclusive,
	} {
		if errors.Is(err, target) {
			return name
		}
	}
	return outcomeName(err)
}
