package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-leasehold/leasehold/lease"
)

// The errors of this package, to be tested with [errors.Is]. Those of a failed
// wait come inside a [*WaitError].
var (
	// ErrNotAcquired: the key is held by somebody else: at once for TryLock,
	// after its time for TryLockFor, after the context's end for Lock (then
	// the error is the context's as well).
	ErrNotAcquired = errors.New("leasehold: not acquired")

	// ErrUnavailable: the store did not answer, or answered with an error,
	// which is wrapped: at once for TryLock, for longer than
	// [WithUnavailableAfter] for Lock.
	ErrUnavailable = errors.New("leasehold: store unavailable")

	// ErrTooManyWaiters: the local queue of the key is as long as
	// [WithMaxWaiters] allows.
	ErrTooManyWaiters = errors.New("leasehold: too many waiters")

	// ErrKind: the key is in use as something else: another type of value, or
	// a mutex where a read/write lock is asked for. Its data was not touched.
	ErrKind = lease.ErrKind

	// ErrUpgrade: the owner has a shared hold and asks for an exclusive one,
	// which would wait for itself.
	ErrUpgrade = errors.New("leasehold: a shared hold can't become exclusive")

	// ErrNotExclusive: Downgrade of a hold that is shared already, or of a
	// mutex's, which can't be.
	ErrNotExclusive = errors.New("leasehold: only the write hold of a read/write lock can be downgraded")

	// ErrClosed: the coordinator is closed, or was closed under the hold.
	ErrClosed = errors.New("leasehold: coordinator closed")

	// ErrNotHeld: Unlock of a hold that is unlocked already, or nil.
	ErrNotHeld = errors.New("leasehold: not held")

	// ErrReleased is the cause with which a hold's context ends after Unlock.
	ErrReleased = errors.New("leasehold: released")

	// ErrLeaseLost: the process lost its lease under the hold: it could not be
	// renewed in time, or was taken away (deleted, flushed, forced, lost in a
	// failover). Somebody else may have the key.
	ErrLeaseLost = errors.New("leasehold: lease lost")

	// ErrHoldExpired: the hold lasted longer than its [MaxHold], or the context
	// given to [EndWith] ended (then the error is that context's cause as well).
	ErrHoldExpired = errors.New("leasehold: hold expired")

	// ErrNoMaxHold: Extend of a hold that has no [MaxHold].
	ErrNoMaxHold = errors.New("leasehold: the hold has no MaxHold to extend")

	// ErrNeedsRedis: what was asked for exists only where the coordinator's store
	// is Redis ([New], or [NewWithStore] with a redislease.Store), or only where
	// Redis tells of changes; the text says which.
	ErrNeedsRedis = errors.New("leasehold: only with a store in Redis")

	// ErrInvalid: an argument or option is out of its limits; the text names
	// the value and the limit. Nothing was sent.
	ErrInvalid = errors.New("leasehold: invalid argument")
)

// Why a lease was lost.
var (
	errNotRenewed = fmt.Errorf("%w: not renewed within its time to live", ErrLeaseLost)
	errTakenAway  = fmt.Errorf("%w: it is not ours any more in the store", ErrLeaseLost)
)

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

// WaitError is the error of a wait that did not end in a hold. It is not to be
// changed: calls may share one.
type WaitError struct {
	Key    string
	Holder string        // the owner that had the key, as far as known; "" if not
	Waited time.Duration // since the call
	Err    error         // ErrNotAcquired, ErrUnavailable, ErrClosed, ErrTooManyWaiters, ErrKind, ErrUpgrade; and the context's or the store's error
}

// maxKeyShown bounds what an error or a log line shows of a key.
const maxKeyShown = 128

// shown returns a key as texts show it.
func shown(key string) string {
	if len(key) > maxKeyShown {
		return fmt.Sprintf("%q... (%d bytes)", key[:maxKeyShown], len(key))
	}
	return fmt.Sprintf("%q", key)
}

// Error tells key, error, holder and time.
func (e *WaitError) Error() string {
	s := fmt.Sprintf("%v: key %s", e.Err, shown(e.Key))
	if e.Holder != "" {
		s += ", held by " + e.Holder
	}
	return s + ", after " + e.Waited.Round(time.Microsecond).String()
}

// Unwrap returns Err.
func (e *WaitError) Unwrap() error { return e.Err }

// ended joins what we say of a wait with what its context says: the context's
// error, and its cause where that is another one.
func ended(ours error, ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || errors.Is(cause, err) {
		// The cause says the same and more, or there is none.
		if cause != nil {
			err = cause
		}
		return fmt.Errorf("%w: %w", ours, err)
	}
	return fmt.Errorf("%w: %w: %w", ours, err, cause)
}
