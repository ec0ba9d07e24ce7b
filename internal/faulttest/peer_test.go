package faulttest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/faults"
)

func init() { roles["peer"] = playPeer }

// peer is a real process with one coordinator, that does what it is told.
type peer struct {
	*faults.Child
	id string // of its coordinator
}

// startPeer starts a process whose coordinator reaches Redis at addr, and whose fenced store is at store.
func startPeer(t testing.TB, addr, store string, ttl time.Duration) *peer {
	t.Helper()
	p := &peer{Child: faults.StartChild(t, "peer", addr, store, ttl.String())}
	p.id = p.Expect(t, "ready")
	return p
}

// take has the peer lock a key, and returns the token.
func (p *peer) take(t testing.TB, key string) uint64 {
	t.Helper()
	p.Send("lock " + key)
	return p.took(t)
}

// took waits for the answer to a "lock" sent before.
func (p *peer) took(t testing.TB) uint64 {
	t.Helper()
	token, err := strconv.ParseUint(strings.Fields(p.Expect(t, "locked"))[1], 10, 64)
	require.NoError(t, err)
	return token
}

// ask sends a line, and returns the rest of the one that answers it.
func (p *peer) ask(t testing.TB, line, answer string) string {
	t.Helper()
	p.Send(line)
	return p.Expect(t, answer)
}

// loss is what a peer tells of a hold that ended under it, by the wall clock, which all processes share.
type loss struct {
	cause    string
	signal   time.Time // when the hold's context ended
	believed time.Time // a moment before Valid said yes for the last time
}

// lost waits until the peer's hold of the key, which it watches, has ended.
func (p *peer) lost(t testing.TB, key string) loss {
	t.Helper()
	words := strings.Fields(p.ask(t, "loss "+key, "ended"))
	return loss{words[1], unixNano(t, words[2]), unixNano(t, words[3])}
}

func unixNano(t testing.TB, text string) time.Time {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	require.NoError(t, err)
	return time.Unix(0, n)
}

// player is the child's side: one line, one act, one answer.
type player struct {
	c     *coordinator.Coordinator
	store rueidis.Client // past the proxy: not the connection that the lock depends on

	mu     sync.Mutex
	holds  map[string]*coordinator.Hold
	losses map[string]chan string // of the holds that are watched
}

func playPeer(args []string) {
	ttl, err := time.ParseDuration(args[2])
	exitIf(err)
	quiet := slog.New(slog.NewTextHandler(os.Stderr, nil))
	c, err := coordinator.New(at(args[0]), coordinator.WithTTL(ttl), coordinator.WithLogger(quiet),
		coordinator.WithUnavailableAfter(0), coordinator.WithTokenRetention(max(time.Second, ttl)))
	exitIf(err)
	store, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{args[1]}, DisableCache: true})
	exitIf(err)
	p := &player{c: c, store: store, holds: map[string]*coordinator.Hold{}, losses: map[string]chan string{}}
	faults.Say("ready %s", c.ID())
	for line, ok := faults.Hear(); ok; line, ok = faults.Hear() {
		p.act(strings.Fields(line))
	}
	exitIf(shut(c))
	store.Close()
}

func exitIf(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
}

// act obeys one line: a word and a key.
func (p *player) act(words []string) {
	key := words[1]
	switch words[0] {
	case "lock":
		go p.lock(key) // ends with the process
	case "try":
		hold, err := p.c.Mutex(key).TryLock(context.Background())
		p.got(key, hold, err)
	case "unlock":
		faults.Say("unlocked %s %s", key, outcomeName(p.hold(key).Unlock()))
	case "valid":
		faults.Say("valid %s %t", key, p.hold(key).Valid())
	case "watch":
		p.losses[key] = make(chan string, 1)
		go p.watch(p.hold(key), p.losses[key]) // ends with the hold
		faults.Say("watching %s", key)
	case "loss":
		faults.Say("ended %s %s", key, <-p.losses[key])
	case "write":
		faults.Say("wrote %s %t", key, fencedWrite(p.store, key, p.hold(key).Token(), words[2]))
	}
}

func (p *player) hold(key string) *coordinator.Hold {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.holds[key]
}

func (p *player) lock(key string) {
	hold, err := p.c.Mutex(key).Lock(context.Background())
	p.got(key, hold, err)
}

func (p *player) got(key string, hold *coordinator.Hold, err error) {
	if err != nil {
		faults.Say("refused %s %s", key, outcomeName(err))
		return
	}
	p.mu.Lock()
	p.holds[key] = hold
	p.mu.Unlock()
	faults.Say("locked %s %d", key, hold.Token())
}

// watch asks the hold whether it is valid for as long as it says yes, and tells when its context has ended too.
func (p *player) watch(hold *coordinator.Hold, told chan<- string) {
	signal := make(chan time.Time, 1)
	context.AfterFunc(hold.Context(), func() { signal <- time.Now() })
	var believed time.Time
	for {
		before := time.Now()
		if !hold.Valid() {
			break
		}
		believed = before
		time.Sleep(time.Millisecond)
	}
	at := <-signal
	told <- fmt.Sprintf("%s %d %d", outcomeName(context.Cause(hold.Context())), at.UnixNano(), believed.UnixNano())
}

// outcomeName is one word for what a call or a cause says.
func outcomeName(err error) string {
	for name, target := range map[string]error{
		"lost": coordinator.ErrLeaseLost, "expired": coordinator.ErrHoldExpired, "notheld": coordinator.ErrNotHeld,
		"closed": coordinator.ErrClosed, "released": coordinator.ErrReleased, "busy": coordinator.ErrNotAcquired,
		"unavailable": coordinator.ErrUnavailable,
	} {
		if errors.Is(err, target) {
			return name
		}
	}
	if err == nil {
		return "ok"
	}
	return strings.ReplaceAll(err.Error(), " ", "_")
}

// fencedWrite writes to a store that refuses a token lower than one it has seen, and says whether it was taken.
func fencedWrite(store rueidis.Client, name string, token uint64, value string) bool {
	const script = `if tonumber(redis.call('HGET', KEYS[1], 'token') or '0') > tonumber(ARGV[1]) then return 0 end
redis.call('HSET', KEYS[1], 'token', ARGV[1], 'value', ARGV[2])
return 1`
	cmd := store.B().Eval().Script(script).Numkeys(1).Key("fenced:"+name).Arg(strconv.FormatUint(token, 10), value).Build()
	taken, err := store.Do(context.Background(), cmd).AsInt64()
	return err == nil && taken == 1
}
