package segment

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/go-leasehold/leasehold/coordinator"
)

const (
	// patience is how long a script may take before the server counts as
	// silent.
	patience = 3 * time.Second
	// The pause before a call that failed is sent again doubles from minPause
	// to maxPause.
	minPause = 5 * time.Millisecond
	maxPause = 250 * time.Millisecond
	// maxCalls bounds what goes in one pipeline.
	maxCalls = 500
)

// call is a script to be run at one segment.
type call struct {
	script *script
	keys   []string
	args   []string
	// once: it must not be run twice, so it is sent again only where it
	// surely was not run.
	once bool
}

// answer is what came back.
type answer struct {
	message rueidis.RedisMessage
	err     error
	maybe   bool // another copy may have been run, or may still be: one that was sent before, and not answered
}

// server runs scripts, each at most once; tests put faults between it and Redis.
// There are as many answers as calls.
type server interface {
	run(ctx context.Context, calls []call) []answer
}

// redis is the server that a coordinator has.
type redis struct{ c *coordinator.Coordinator }

func (r redis) run(ctx context.Context, calls []call) []answer {
	answers := make([]answer, len(calls))
	client, err := r.c.Plain()
	if err != nil {
		for i := range answers {
			answers[i].err = err
		}
		return answers
	}
	var unknown []int // the scripts that the server had to be told
	for from := 0; from < len(calls); from += maxCalls {
		to := min(from+maxCalls, len(calls))
		for i, result := range do(ctx, client, calls[from:to], false) {
			message, err := result.ToMessage()
			answers[from+i] = answer{message: message, err: err}
			if code(err) == "NOSCRIPT" {
				unknown = append(unknown, from+i)
			}
		}
	}
	for len(unknown) > 0 {
		some := unknown[:min(maxCalls, len(unknown))]
		unknown = unknown[len(some):]
		again := make([]call, len(some))
		for i, at := range some {
			again[i] = calls[at]
		}
		for i, result := range do(ctx, client, again, true) {
			message, err := result.ToMessage()
			answers[some[i]] = answer{message: message, err: err}
		}
	}
	return answers
}

func do(ctx context.Context, client rueidis.Client, calls []call, byText bool) []rueidis.RedisResult {
	commands := make([]rueidis.Completed, len(calls))
	for i := range calls {
		c := &calls[i]
		if byText {
			commands[i] = client.B().Eval().Script(c.script.text).Numkeys(int64(len(c.keys))).Key(c.keys...).Arg(c.args...).Build()
		} else {
			commands[i] = client.B().Evalsha().Sha1(c.script.sha()).Numkeys(int64(len(c.keys))).Key(c.keys...).Arg(c.args...).Build()
		}
	}
	if len(commands) == 1 {
		return []rueidis.RedisResult{client.Do(ctx, commands[0])}
	}
	return client.DoMulti(ctx, commands...)
}

// code is the first word of an error that the server sent, or empty.
func code(err error) string {
	var answer *rueidis.RedisError
	if !errors.As(err, &answer) {
		return ""
	}
	text := answer.Error()
	word, _, _ := strings.Cut(text, " ")
	if word != "" && word == strings.ToUpper(word) {
		return word
	}
	// Before Redis 7 an error inside a script is wrapped in a sentence.
	for _, word := range []string{"OOM", "READONLY", "MISCONF", "NOREPLICAS", "NOPERM", "WRONGTYPE"} {
		if strings.Contains(text, word+" ") {
			return word
		}
	}
	return "ERR"
}

// passing are the server's errors that pass; whoever gets one was refused, and
// nothing was done.
var passing = map[string]bool{
	"TRYAGAIN": true, "LOADING": true, "CLUSTERDOWN": true, "MASTERDOWN": true, "READONLY": true, "BUSY": true,
	"OOM": true, "MISCONF": true, "NOREPLICAS": true, "MOVED": true, "ASK": true, "NOSCRIPT": true,
}

// fate is what can be said of a call that failed.
type fate int

const (
	refused  fate = iota // it was not run, and will not be
	later                // it was not run, but may be if sent again
	unclear              // it may have been run
	hopeless             // it may have been run, and can't be sent again
)

func fateOf(err error) fate {
	var dial *net.OpError
	switch c := code(err); {
	case passing[c]:
		return later
	case c != "":
		return refused
	case errors.Is(err, coordinator.ErrUnavailable):
		return later // there is no connection yet
	case errors.Is(err, coordinator.ErrClosed), errors.Is(err, coordinator.ErrNeedsRedis):
		return refused
	case errors.Is(err, rueidis.ErrClosing), errors.Is(err, errGone):
		return hopeless
	case errors.As(err, &dial) && dial.Op == "dial":
		return later
	}
	return unclear
}

// errGone ends everything that a process in a test, which is dead, still does.
var errGone = errors.New("segment: the process is gone")

// run runs calls until each is answered by the server, with a result or a
// refusal, or can't be sent again, or the coordinator's UnavailableAfter is over. An
// error's text says which; those of a call that may have been run match
// [ErrUncertain].
func (s *Stock) run(calls ...call) []answer {
	var failing outage
	return s.persist(&failing, calls)
}

// outage is since when a server fails, as those know it who ask it one after the other, or
// at the same time.
type outage struct {
	since atomic.Pointer[time.Time] // nil: it does not
}

// lasted returns for how long it has lasted. It begins now if it has not yet.
func (o *outage) lasted(now time.Time) time.Duration {
	o.since.CompareAndSwap(nil, &now)
	if since := o.since.Load(); since != nil {
		return now.Sub(*since)
	}
	return 0 // somebody was answered meanwhile
}

func (o *outage) end() { o.since.Store(nil) }

// persist is run that knows since when the server fails, and notes it.
func (s *Stock) persist(failing *outage, calls []call) []answer {
	answers := s.attempt(calls)
	var maybe map[int]bool // those of which an earlier copy may have been run
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		var left []int
		for i := range answers {
			if answers[i].err == nil {
				continue
			}
			f := fateOf(answers[i].err)
			if f == unclear || f == hopeless {
				if maybe == nil {
					maybe = map[int]bool{}
				}
				maybe[i] = true
			}
			if f == later || f == unclear && !calls[i].once {
				left = append(left, i)
			}
		}
		if len(left) == 0 {
			failing.end()
			break
		}
		lasted := failing.lasted(time.Now())
		if limit := s.settings.UnavailableAfter; limit > 0 && lasted >= limit {
			break
		}
		time.Sleep(pause/2 + rand.N(pause))
		again := make([]call, len(left))
		for i, at := range left {
			again[i] = calls[at]
		}
		for i, a := range s.attempt(again) {
			answers[left[i]] = a
		}
	}
	s.conclude(answers, maybe)
	return answers
}

// conclude makes the callers' errors, and notes of which calls an earlier copy may have been run.
func (s *Stock) conclude(answers []answer, maybe map[int]bool) {
	for i := range answers {
		a := &answers[i]
		a.maybe = maybe[i]
		if a.err == nil {
			continue
		}
		a.err = explain(a.err)
		if a.maybe && s.closed() && !errors.Is(a.err, coordinator.ErrClosed) {
			a.err = fmt.Errorf("%w: %w", coordinator.ErrClosed, a.err) // which is why nothing answered
		}
		if a.maybe {
			a.err = fmt.Errorf("%w: %w", ErrUncertain, a.err)
		}
	}
}

func (s *Stock) closed() bool {
	_, err := s.c.Plain()
	return errors.Is(err, coordinator.ErrClosed)
}

func (s *Stock) attempt(calls []call) []answer {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	answers := s.server.run(ctx, calls)
	s.tellSent(answers)
	return answers
}

// explain makes the caller's error out of the server's.
func explain(err error) error {
	if err == nil {
		return nil
	}
	_, rest, _ := strings.Cut(err.Error(), " ")
	switch code(err) {
	case "UNLOADED":
		return ErrNotLoaded
	case "EPOCH":
		return fmt.Errorf("%w: it is %q now (epoch:segments:remember:limit)", ErrEpoch, rest)
	case "LOADED":
		return fmt.Errorf("%w: as %q (epoch:segments:remember:limit)", ErrLoaded, rest)
	case "HALFLOADED":
		return fmt.Errorf("%w: somebody began to load it with %q (units epoch:segments:remember:limit) and has not ended: "+
			"Load with the same, or Reset", ErrNotLoaded, rest)
	}
	switch fateOf(err) {
	case later, unclear:
		return fmt.Errorf("%w: %w", coordinator.ErrUnavailable, err)
	case hopeless:
		return fmt.Errorf("%w: %w", coordinator.ErrClosed, err)
	}
	if code(err) == "" {
		return err // the coordinator's own
	}
	return fmt.Errorf("%w: %w", coordinator.ErrUnavailable, err)
}
