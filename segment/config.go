package segment

import (
	"strconv"
	"time"
)

// Limits of what may be asked for.
const (
	// MaxSegments is the largest number of segments.
	MaxSegments = 4096
	// MaxUnits is the largest stock, and the largest order: 2^53 - 1, the last
	// whole number that a script counts exactly. So are the units that ever moved
	// from a segment, or ever came back, which takes a stock of a billion units
	// that moves as a whole nine million times.
	MaxUnits = 1<<53 - 1
	// MaxID is the length of the longest order ID and of the longest user, in
	// bytes: what is sold is on record for long.
	MaxID = 128
	// MaxName is the length of the longest name of a stock or of locks, in bytes.
	MaxName = 1 << 10
	// MinRemember is the shortest time for which orders are remembered: well
	// over what a server's clock steps by.
	MinRemember = time.Minute
	// MaxRemember is the longest.
	MaxRemember = 366 * 24 * time.Hour
	// MaxReserve is the longest reservation.
	MaxReserve = 366 * 24 * time.Hour
	// MaxLines is the largest number of lines of one order over several stocks.
	MaxLines = 64

	// DefaultRemember is [Config.Remember] where it is not set.
	DefaultRemember = 24 * time.Hour
	// DefaultSegments is [Config.Segments] where it is not set.
	DefaultSegments = 4
)

// Config is how a stock is set up. All processes that use a stock have the same
// (but for MaxWaiting): another is refused with [ErrEpoch].
type Config struct {
	// Segments is the number of segments, from 1 to 4096; default 4. Each has
	// a cluster slot of its own, so more segments use more of a cluster: one or
	// two for each of its masters will do, and one or two for a single server. The
	// more there are, the fewer orders travel in one script, and the more often the
	// last units have to be moved.
	Segments int

	// Remember is how long orders are remembered at least, for exactly once;
	// at most twice as long. Default 24 h, from a minute to 366 days. It must be
	// far longer than any step of the server's clock.
	Remember time.Duration

	// PerUser is how many units a user may have of this stock; default 0, no
	// limit. With one, every order names its user. What is returned, cancelled
	// or expired doesn't count; what was taken counts until the stock is reset.
	PerUser int64

	// MaxWaiting is how many calls of this process may wait at one segment; one
	// more gets coordinator.ErrTooManyWaiters at once. Default: as the
	// coordinator's WithMaxWaiters; 0 there is no limit.
	MaxWaiting int
}

// withDefaults fills in what is unset, and checks the rest.
func (c Config) withDefaults(maxWaiters int) (Config, error) {
	if c.Segments == 0 {
		c.Segments = DefaultSegments
	}
	if c.Remember == 0 {
		c.Remember = DefaultRemember
	}
	if c.MaxWaiting == 0 {
		c.MaxWaiting = maxWaiters
	}
	switch {
	case c.Remember < MinRemember || c.Remember > MaxRemember:
		return c, invalid("Config.Remember of %v is not within %v and %v", c.Remember, MinRemember, MaxRemember)
	case c.Remember%time.Millisecond != 0:
		return c, invalid("Config.Remember of %v is not a whole number of milliseconds", c.Remember)
	case c.PerUser < 0 || c.PerUser > MaxUnits:
		return c, invalid("Config.PerUser of %d is not within 0 (no limit) and %d", c.PerUser, int64(MaxUnits))
	case c.MaxWaiting < 0:
		return c, invalid("Config.MaxWaiting of %d is negative", c.MaxWaiting)
	}
	return c, validSegments(c.Segments)
}

func validSegments(n int) error {
	if n < 1 || n > MaxSegments {
		return invalid("%d segments are not within 1 and %d", n, MaxSegments)
	}
	return nil
}

func validName(name string) error {
	switch {
	case name == "":
		return invalid("the name is empty")
	case len(name) > MaxName:
		return invalid("a name of %d bytes is over the limit of %d", len(name), MaxName)
	}
	return nil
}

func validQuantity(n int64) error {
	if n < 1 || n > MaxUnits {
		return invalid("a quantity of %d is not within 1 and %d", n, int64(MaxUnits))
	}
	return nil
}

// Order is what a user orders of one stock.
type Order struct {
	// ID names the order; with User it is what makes a call repeatable. At most
	// 128 bytes. Deduct takes an empty one, at most once.
	ID string
	// User decides which segment the order lives at, and is whom
	// [Config.PerUser] counts for. At most 128 bytes; where it is empty, ID
	// decides. The same ID of two users is two orders.
	User string
	// Quantity is how many units: from 1 to [MaxUnits].
	Quantity int64
}

// validate refuses what no script should see. identified: it needs an ID.
func (o *Order) validate(conf *Config, identified bool) error {
	switch {
	case len(o.ID) > MaxID:
		return invalid("an order ID of %d bytes is over the limit of %d", len(o.ID), MaxID)
	case len(o.User) > MaxID:
		return invalid("a user of %d bytes is over the limit of %d", len(o.User), MaxID)
	case o.ID == "" && identified:
		return invalid("the order has no ID")
	case o.User == "" && conf.PerUser > 0:
		return invalid("the order has no User, and the stock has a limit per user")
	}
	return validQuantity(o.Quantity)
}

// field is what the order is called on record: no two of user and ID make the same.
func (o *Order) field() string {
	return strconv.Itoa(len(o.User)) + ":" + o.User + o.ID
}

// route is what decides the order's home.
func (o *Order) route() string {
	if o.User != "" {
		return o.User
	}
	return o.ID
}
