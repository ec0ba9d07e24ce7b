package segment

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-leasehold/leasehold/coordinator"
)

// The errors of this package, to be tested with [errors.Is]. Bad input is
// coordinator.ErrInvalid; a server that can't be reached, coordinator.ErrUnavailable.
var (
	// ErrSegments: another process uses the same locks with another number of
	// segments. Nothing was locked.
	ErrSegments = errors.New("leasehold: other processes use another number of segments")

	// ErrEpoch: the stock was set up with other settings (segments, Remember,
	// PerUser) than this process has, or was reset under the call. Nothing was
	// taken.
	ErrEpoch = errors.New("leasehold: the stock has other settings, or was reset")

	// ErrNotLoaded: the stock has never been loaded, or its loading was not
	// finished; then Load with the same units ends it.
	ErrNotLoaded = errors.New("leasehold: the stock is not loaded")

	// ErrLoaded: Load of a stock that is loaded already. Nothing was added.
	ErrLoaded = errors.New("leasehold: the stock is loaded already")

	// ErrSoldOut: at one moment of the call, all that was left of the stock was
	// less than the order's quantity. Nothing was taken, and nothing of the
	// order stays on record. (An order that came on record a moment ago, returned
	// or with another quantity, may be told so as well.)
	ErrSoldOut = errors.New("leasehold: sold out")

	// ErrUserLimit: the user would have more units than [Config.PerUser]
	// allows. Nothing was taken, and nothing of the order stays on record.
	ErrUserLimit = errors.New("leasehold: over the limit of units per user")

	// ErrOrderMismatch: an order of this user and ID is on record with another
	// quantity, or as an order over several stocks. Nothing was changed.
	ErrOrderMismatch = errors.New("leasehold: the order is on record with other contents")

	// ErrReturned: the order was taken, or reserved, and given back. It holds
	// nothing.
	ErrReturned = errors.New("leasehold: the order was returned")

	// ErrExpired: the reservation was not confirmed in time, and its units
	// went back. It holds nothing.
	ErrExpired = errors.New("leasehold: the reservation has expired")

	// ErrReserved: Deduct of an order that is reserved: Confirm or Cancel it.
	ErrReserved = errors.New("leasehold: the order is reserved")

	// ErrConfirmed: Cancel of an order that is taken: Return it.
	ErrConfirmed = errors.New("leasehold: the order is taken")

	// ErrUnknownOrder: Confirm, Cancel or Return of an order that is not on
	// record, or no longer. After Cancel and Return it is on record as
	// returned, so that a late Deduct does not take.
	ErrUnknownOrder = errors.New("leasehold: the order is not on record")

	// ErrNotDone: the context ended before anything was done, and nothing will be. The error
	// is the context's as well.
	ErrNotDone = errors.New("leasehold: nothing was done")

	// ErrUncertain: the call ended (its context did, or the server did not
	// answer) before it was known whether it was done. An order with an ID is
	// asked about by sending it again; one without may or may not have taken
	// its units.
	ErrUncertain = errors.New("leasehold: the outcome is not known")

	// ErrAudit: the books don't balance. The text says where.
	ErrAudit = errors.New("leasehold: the stock's books don't balance")
)

// ended joins what is said of a call with what its context says: the context's
// error, and its cause where that is another one.
func ended(ours error, ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return fmt.Errorf("%w: %w", ours, cause)
	}
	return fmt.Errorf("%w: %w: %w", ours, err, cause)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", coordinator.ErrInvalid, fmt.Sprintf(format, args...))
}
