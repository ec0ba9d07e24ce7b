package segment

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/go-leasehold/leasehold/coordinator"
)

const (
	// noteLooks is how often one question is asked where what was read changes under
	// it. Two are needed where the process writes the note itself.
	noteLooks = 4

	minAskPause = 20 * time.Millisecond
	maxAskPause = time.Second

	// notePatience is how long one question may take.
	notePatience = 3 * time.Second

	// noLimit is the limit of a call that has none.
	noLimit = time.Duration(-1)
)

// errSilent is why a question is given up.
var errSilent = errors.New("segment: no answer in time to how many segments there are")

// noteScript writes the number of segments down where nothing is written, has it live
// on where the same is, and returns what is written then.
//
// KEYS[1] the note. ARGV: the number; how long the note lives, and at how much of
// that it lives on, in ms.
var noteScript = rueidis.NewLuaScript(`
local written = redis.call('GET', KEYS[1])
if not written then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return ARGV[1]
end
if written == ARGV[1] and redis.call('PTTL', KEYS[1]) <= tonumber(ARGV[3]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return written`)

// answer asks Redis, or this process where there is none.
func (f *fleet) answer(c *coordinator.Coordinator, n int) error {
	client, err := c.Plain()
	if errors.Is(err, coordinator.ErrNeedsRedis) {
		if err := f.compare(strconv.Itoa(f.all.claim(f.name, n)), n); err != nil {
			return err
		}
		f.learn(n, f.changed())
		return nil
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), notePatience, errSilent)
	defer cancel()
	key := c.Settings().KeyPrefix + "~segments:" + f.name
	for range noteLooks {
		found, err := f.look(ctx, c, client, key, n)
		if err != nil || found == noteKnown {
			return err
		}
		if found == noteChanging {
			continue
		}
		if err := f.write(ctx, client, key, n); err != nil {
			return err
		}
		if found == noteUntold {
			f.learn(n, f.changed())
		}
		if found != noteUnwritten {
			return nil
		}
	}
	return nil // so it was just now
}

// What a look at the note finds.
type noteState uint8

const (
	noteKnown     noteState = iota // the number is right, and learned
	noteChanging                   // it was right, and was changed meanwhile
	noteUnwritten                  // nothing is written, or will not be for long
	noteMoving                     // the slot is moving, and nothing can be tracked
	noteUntold                     // there is no client-side caching
)

// look reads the note in such a way that we are told when it changes.
func (f *fleet) look(ctx context.Context, c *coordinator.Coordinator, client rueidis.Client, key string, n int) (noteState, error) {
	changes, err := f.watch(c, key)
	if errors.Is(err, coordinator.ErrNeedsRedis) {
		return noteUntold, nil
	} else if err != nil {
		return 0, err
	}
	results, err := c.Tracked(ctx, client.B().Get().Key(key).Build(), client.B().Pttl().Key(key).Build())
	if err != nil {
		return 0, err
	}
	written, err := results[0].ToString()
	left, errLeft := results[1].AsInt64()
	if !rueidis.IsRedisNil(err) {
		err = errors.Join(err, errLeft)
	}
	switch {
	case rueidis.IsRedisNil(err):
		return noteUnwritten, nil
	case code(err) == "ASK":
		return noteMoving, nil
	case err != nil:
		return 0, noteError(err)
	}
	if err := f.compare(written, n); err != nil {
		return 0, err
	}
	// -1: somebody had it stay for good.
	if left != -1 && time.Duration(left)*time.Millisecond <= noteLife-noteTrust {
		return noteUnwritten, nil
	}
	if !f.learn(n, changes) {
		return noteChanging, nil
	}
	return noteKnown, nil
}

// write runs the script.
func (f *fleet) write(ctx context.Context, client rueidis.Client, key string, n int) error {
	written, err := noteScript.Exec(ctx, client, []string{key}, []string{
		strconv.Itoa(n), strconv.FormatInt(noteLife.Milliseconds(), 10), strconv.FormatInt((noteLife - noteTrust).Milliseconds(), 10),
	}).ToString()
	if errors.Is(err, context.DeadlineExceeded) {
		err = context.Cause(ctx) // it is not the caller's deadline
	}
	if err != nil {
		return noteError(err)
	}
	return f.compare(written, n)
}

func (f *fleet) compare(written string, n int) error {
	if written == strconv.Itoa(n) {
		return nil
	}
	return fmt.Errorf("%w: of %.128q they have %.32q, this process %d", ErrSegments, f.name, written, n)
}

// noteError is what the server's error means here.
func noteError(err error) error {
	if strings.Contains(err.Error(), "WRONGTYPE") { // within a script it has a sentence around it
		return fmt.Errorf("%w: %w", coordinator.ErrKind, err)
	}
	return fmt.Errorf("%w: %w", coordinator.ErrUnavailable, err)
}

// ask returns when the fleet is known to have as many segments, or why not. It
// waits for limit at most, and where limit is 0 for one answer. key is what the
// call is about.
func (l *Locks) ask(ctx context.Context, key string, limit time.Duration) error {
	if ctx.Err() != nil {
		return nil // the lock will say so
	}
	settings := l.c.Settings()
	if most := int64(settings.MaxWaiters) * int64(l.n); l.asking.Add(1) > most && most > 0 {
		l.asking.Add(-1)
		return &coordinator.WaitError{Key: key, Err: coordinator.ErrTooManyWaiters}
	}
	defer l.asking.Add(-1)
	began := time.Now()
	within, cancel := askWithin(ctx, limit, settings.UnavailableAfter)
	defer cancel()
	failure := noteError(errSilent)
	for pause := minAskPause; ; pause = min(2*pause, maxAskPause) {
		f := fleetsOf(l.c).get(l.name)
		l.fleet.Store(f)
		q := f.ask(l.c, l.n)
		if q.await(within) {
			failure = q.err
		}
		if failure == nil || errors.Is(failure, ErrSegments) {
			return failure
		}
		if limit == 0 || !errors.Is(failure, coordinator.ErrUnavailable) || !pauseWithin(within, pause) {
			return l.failed(ctx, key, began, failure)
		}
	}
}

// await waits for the answer, and says whether there is one.
func (q *question) await(ctx context.Context) bool {
	select {
	case <-q.done:
		return true
	case <-ctx.Done():
	}
	select {
	case <-q.done: // both
		return true
	default:
		return false
	}
}

// askWithin is the context of a call's wait for the store.
func askWithin(ctx context.Context, limit, unavailableAfter time.Duration) (context.Context, context.CancelFunc) {
	switch {
	case limit == 0:
		limit = notePatience
	case limit == noLimit:
		limit = unavailableAfter
	case unavailableAfter > 0:
		limit = min(limit, unavailableAfter)
	}
	if limit == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, limit)
}

// pauseWithin waits for about d, and says whether to go on.
func pauseWithin(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d/2 + rand.N(d))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// failed is the error of a call that did not come as far as its lock.
func (l *Locks) failed(ctx context.Context, key string, began time.Time, failure error) error {
	if ctx.Err() != nil {
		failure = ended(failure, ctx)
	}
	return &coordinator.WaitError{Key: key, Waited: time.Since(began), Err: failure}
}
