package coordinator

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/go-leasehold/leasehold/telemetry"
)

// Limits of what may be asked for.
const (
	// MinTTL is the shortest time to live of a lease.
	MinTTL = 100 * time.Millisecond
	// MaxTTL is the longest. A lease is renewed however long it is held; a
	// longer TTL only makes everybody wait longer for a crashed holder.
	MaxTTL = 24 * time.Hour
	// MaxKey is the length of the longest key, in bytes.
	MaxKey = 64 << 10
	// maxBudget bounds WithHandoff, so that a block of tokens stays small
	// beside the microseconds it is made of.
	maxBudget = 1 << 16
)

// config is what the options make. Defaults are set in defaults, and nowhere
// else; limits are checked in validate.
type config struct {
	ttl              time.Duration
	retention        time.Duration
	sharedRetention  *time.Duration // nil: as retention
	budget           int
	slice            time.Duration
	prefix           string
	logger           *slog.Logger
	maxWaiters       int
	unavailableAfter time.Duration
	tokenRetention   time.Duration
	debug            bool
	telemetry        telemetry.Config
}

func defaults() config {
	return config{
		ttl:              30 * time.Second,
		retention:        50 * time.Millisecond,
		budget:           64,
		slice:            5 * time.Millisecond,
		prefix:           "lock:",
		logger:           slog.Default(),
		unavailableAfter: 5 * time.Second,
		tokenRetention:   time.Hour,
	}
}

func (c *config) validate() error {
	if err := validTTL("WithTTL", c.ttl); err != nil {
		return err
	}
	switch {
	case c.retention < 0:
		return invalid("WithRetention(%v) is negative", c.retention)
	case c.sharedRetention != nil && *c.sharedRetention < 0:
		return invalid("WithSharedRetention(%v) is negative", *c.sharedRetention)
	case c.budget < 1 || c.budget > maxBudget:
		return invalid("WithHandoff: a budget of %d is not within 1 and %d", c.budget, maxBudget)
	case c.slice < 0:
		return invalid("WithHandoff: a slice of %v is negative", c.slice)
	case c.logger == nil:
		return invalid("WithLogger(nil)")
	case c.maxWaiters < 0:
		return invalid("WithMaxWaiters(%d) is negative; 0 is no limit", c.maxWaiters)
	case c.unavailableAfter < 0:
		return invalid("WithUnavailableAfter(%v) is negative; 0 waits as long as the context", c.unavailableAfter)
	case c.tokenRetention < max(c.ttl, time.Second):
		return invalid("WithTokenRetention(%v) is under the limit of %v: a second, and the TTL", c.tokenRetention, max(c.ttl, time.Second))
	}
	if err := c.telemetry.Validate(); err != nil {
		return invalid("WithTelemetry: %w", err)
	}
	return validPrefix(c.prefix)
}

func validTTL(name string, ttl time.Duration) error {
	if ttl < MinTTL || ttl > MaxTTL {
		return invalid("%s(%v) is not within %v and %v", name, ttl, MinTTL, MaxTTL)
	}
	return nil
}

// validPrefix refuses braces that would decide, or spoil, the cluster slot of
// every key: a prefix has none, or exactly one {tag}.
func validPrefix(prefix string) error {
	open, end := strings.IndexByte(prefix, '{'), strings.IndexByte(prefix, '}')
	if open < 0 && end < 0 {
		return nil
	}
	if strings.Count(prefix, "{") != 1 || strings.Count(prefix, "}") != 1 || end < open+2 {
		return invalid("WithKeyPrefix(%q): a prefix has no brace, or exactly one {tag} that is not empty", prefix)
	}
	return nil
}

func validKey(key string) error {
	if key == "" {
		return invalid("the key is empty")
	}
	if len(key) > MaxKey {
		return invalid("the key %s is over the limit of %d bytes", shown(key), MaxKey)
	}
	return nil
}

// Option is an option of [New] and [NewWithStore].
type Option func(*config)

// WithTTL sets the time to live of leases: how long others wait for a process
// that crashed. Leases are renewed at a third of it, for as long as they are
// held. Default 30 s, from 100 ms to 24 h; [TTL] sets it for one mutex.
func WithTTL(ttl time.Duration) Option { return func(c *config) { c.ttl = ttl } }

// WithRetention sets how long the process keeps a lease that nobody uses and
// nobody else wants, so that the next Lock costs no round trip. It is given up
// at once when somebody else wants it. Default 50 ms; 0 gives it up on Unlock.
// One longer than a third of the TTL is kept alive by renewals.
func WithRetention(d time.Duration) Option { return func(c *config) { c.retention = d } }

// WithSharedRetention sets how long the process keeps a read lease of a
// read/write lock that nobody uses and nobody else wants: as long as you like,
// where a cache shall read without asking Redis until somebody wants to write.
// Kept leases cost a renewal each third of the TTL. Default: as
// [WithRetention]; 0 gives it up on the last Unlock, and has readers pass one by
// one. Where reads are frequent, the end is noticed up to that time later.
func WithSharedRetention(d time.Duration) Option {
	return func(c *config) { c.sharedRetention = &d }
}

// WithHandoff sets what a process may still spend on its own waiters once
// another process wants the lease: at most budget grants, and none after slice.
// Default 64 and 5 ms; budget from 1 to 65,536. A smaller budget is fairer, a
// larger one cheaper.
func WithHandoff(budget int, slice time.Duration) Option {
	return func(c *config) { c.budget, c.slice = budget, slice }
}

// WithKeyPrefix sets what stands before every key in Redis. Default "lock:".
// Coordinators that are to exclude each other need the same. It has no brace,
// or exactly one {tag}, which puts all keys into one slot of a cluster.
func WithKeyPrefix(prefix string) Option { return func(c *config) { c.prefix = prefix } }

// WithLogger sets where losses, failed releases and fall-backs are logged.
// Default slog.Default(). It is called from a goroutine of its own; when it is
// too slow, lines are dropped and counted.
func WithLogger(l *slog.Logger) Option { return func(c *config) { c.logger = l } }

// WithMaxWaiters bounds the local queue of each key: one more gets
// [ErrTooManyWaiters] at once. Default 0, no limit.
func WithMaxWaiters(n int) Option { return func(c *config) { c.maxWaiters = n } }

// WithUnavailableAfter sets for how long Lock goes on trying while the store
// fails, before it returns [ErrUnavailable]. Default 5 s; 0 tries until the
// context ends.
func WithUnavailableAfter(d time.Duration) Option {
	return func(c *config) { c.unavailableAfter = d }
}

// WithTokenRetention sets for how long an unused key's counter of fencing
// tokens is kept. Tokens are seeded from the server's clock, so it is the
// backward step of that clock that is tolerated. Default 1 h, at least 1 s and
// the TTL.
func WithTokenRetention(d time.Duration) Option {
	return func(c *config) { c.tokenRetention = d }
}

// WithDebug notes the place of each Lock call, to be told where a hold is
// garbage-collected while it is held, and in [Coordinator.Snapshot]. It costs
// about a microsecond a lock. Default off.
func WithDebug() Option { return func(c *config) { c.debug = true } }

// WithTelemetry sets what is told to OpenTelemetry and when an alarm is raised. The
// default is the zero [telemetry.Config]: the global providers, without which there
// are no spans and no metrics, and an alarm for a hold of 10 s, which is logged also
// then.
func WithTelemetry(t telemetry.Config) Option { return func(c *config) { c.telemetry = t } }

// plain is what a hold has that was never asked for by its options.
var plain mutexConfig

// mutexConfig is what the options of one mutex make.
type mutexConfig struct {
	ttl     time.Duration
	maxHold time.Duration
	fair    bool
	cached  bool
	endWith context.Context
	classAs string // empty: as the key
}

func (m *mutexConfig) validate() error {
	if err := validTTL("TTL", m.ttl); err != nil {
		return err
	}
	if m.maxHold < 0 {
		return invalid("MaxHold(%v) is negative", m.maxHold)
	}
	return nil
}

// MutexOption is an option of [Coordinator.Mutex].
type MutexOption func(*mutexConfig) error

// TTL sets the time to live of the leases that this mutex asks for; see
// [WithTTL].
func TTL(d time.Duration) MutexOption {
	return func(m *mutexConfig) error { m.ttl = d; return nil }
}

// MaxHold ends a hold after that time even if its work goes on: its context
// ends with [ErrHoldExpired], and the next waiter gets a higher token. It is
// Redisson's leaseTime. [Hold.Extend] puts it off. Default none.
func MaxHold(d time.Duration) MutexOption {
	return func(m *mutexConfig) error {
		if d <= 0 {
			return invalid("MaxHold(%v) is not positive", d)
		}
		m.maxHold = d
		return nil
	}
}

// Fair makes the process pass the lease on after each hold while this mutex's
// callers wait (a budget of 1): processes are served first come, first served.
func Fair() MutexOption {
	return func(m *mutexConfig) error { m.fair = true; return nil }
}

// Cached lets TryLock answer [ErrNotAcquired] from what client-side caching
// told, with no command at all, and, where telemetry is told of no calls, with no
// lock that cores would pass to and fro. What it knows may be a moment old; that
// a key is held is known only after a first TryLock asked.
func Cached() MutexOption {
	return func(m *mutexConfig) error { m.cached = true; return nil }
}

// EndWith ends a hold of this mutex when ctx ends, and frees the lock: for
// locks that must not outlive the request they serve. The hold's context then
// ends with [ErrHoldExpired] and ctx's cause.
func EndWith(ctx context.Context) MutexOption {
	return func(m *mutexConfig) error {
		if ctx == nil {
			return invalid("EndWith(nil)")
		}
		m.endWith = ctx
		return nil
	}
}

// ClassAs has the [telemetry.Config]'s KeyClass asked for a name in the place of the
// key: for keys that are made from a name, which says more. Where mutexes of a key
// differ in that, the one that is used first counts.
func ClassAs(name string) MutexOption {
	return func(m *mutexConfig) error { m.classAs = name; return nil }
}
