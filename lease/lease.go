package lease

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"
)

var (
	// ErrKind says that the key exists and is something else: a value of
	// another type, or a lock of the other [Kind]. Its data was not touched,
	// and asking again will not help.
	ErrKind = errors.New("leasehold: the key is in use as something else")

	// ErrStoreClosed is what a request gets that reaches a store after Close.
	ErrStoreClosed = errors.New("leasehold: the lease store is closed")
)

// Mode is the right that a lease gives.
type Mode uint8

// The modes. One exclusive lease stands alone; shared ones stand side by side.
const (
	Exclusive Mode = iota + 1
	Shared
)

// String returns "exclusive" or "shared".
func (m Mode) String() string {
	switch m {
	case Exclusive:
		return "exclusive"
	case Shared:
		return "shared"
	}
	return "mode " + strconv.Itoa(int(m))
}

// Kind is what a key is used as. A key has one kind at a time ([ErrKind]).
type Kind uint8

// The kinds: a mutex knows exclusive leases only, a read/write lock both.
const (
	Mutex Kind = iota + 1
	ReadWrite
)

// String returns "mutex" or "read/write lock".
func (k Kind) String() string {
	switch k {
	case Mutex:
		return "mutex"
	case ReadWrite:
		return "read/write lock"
	}
	return "kind " + strconv.Itoa(int(k))
}

// Ticket numbers the leases and waits of one coordinator. Zero is none.
type Ticket uint64

// Owner is the name of a lease in the store.
func Owner(id string, t Ticket) string {
	return id + ":" + strconv.FormatUint(uint64(t), 10)
}

// ParseOwner splits what [Owner] made, and nothing else: no two names have the same
// id and ticket. ok is false for names without a ticket, which are returned whole as the id.
func ParseOwner(owner string) (id string, t Ticket, ok bool) {
	i := strings.LastIndexByte(owner, ':')
	if i <= 0 {
		return owner, 0, false
	}
	digits := owner[i+1:]
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || digits[0] == '0' {
		return owner, 0, false
	}
	return owner[:i], Ticket(n), true
}

// Op is the verb of a [Request].
type Op uint8

// The verbs.
const (
	// Acquire takes the lease for Ticket, or extends it to a full TTL (never
	// shortens it) where it is mine already, with a fresh block of tokens
	// either way. Where it can't be had, and Queue is set, Ticket joins the
	// queue (once, however often it is sent) and every holder is sent a
	// [Wanted]. Sent again, it is the look of a waiter.
	Acquire Op = iota + 1

	// Release takes Ticket out of the holders or out of the queue, whichever
	// it is in, passes the key on, and then, if Next is set, acquires for Next
	// with the queue, whether Ticket was anywhere or not.
	Release

	// Renew extends the lease of Ticket, or answers [Lost].
	Renew

	// Downgrade turns the exclusive lease of Ticket into a shared one in
	// place, and lets waiting readers in. Answers [Lost] like Renew.
	Downgrade

	// Busy tells the process of Asker that the lease it wanted, or asked about, is in
	// use ([InUse]); with Idle, that it is not, or not any more ([Changed]).
	Busy

	// Annotate puts the trace of the present hold beside the lease of Ticket, and
	// tells the first of those that wait ([Traced]). With no Trace it takes back the
	// one before, and tells nobody. Answers Done, or Lost where Ticket has no lease.
	// Like Busy it may be sent at any time, and nothing depends on it.
	Annotate

	// Ask asks the process of Holder whether its lease is in use ([Asked]), past the
	// queue: the answer is a [Busy] for Ticket, of which the store learns nothing.
	// Answers Done, and Told. Like Busy it may be sent at any time.
	Ask
)

// String returns the verb in lower case.
func (o Op) String() string {
	switch o {
	case Acquire:
		return "acquire"
	case Release:
		return "release"
	case Renew:
		return "renew"
	case Downgrade:
		return "downgrade"
	case Busy:
		return "busy"
	case Annotate:
		return "annotate"
	case Ask:
		return "ask"
	}
	return "op " + strconv.Itoa(int(o))
}

// Request is one command about one key.
type Request struct {
	Op     Op
	Key    string // the user's, without the store's prefix
	Kind   Kind
	Ticket Ticket

	Mode Mode          // Acquire
	TTL  time.Duration // Acquire, Renew, Downgrade: of the lease, and of the place in the queue

	Queue bool // Acquire: wait in the queue if it can't be had now
	Ask   bool // Acquire: the wants ask the holders for an answer ([InUse] where they are busy)

	// Age is how long the oldest local waiter has been waiting, when the place
	// in the queue shall be that waiter's (a rejoin); negative: the place is
	// behind all others. Acquire with Queue.
	Age time.Duration

	// Tokens is the size of the block of fencing tokens wanted: Acquire, where
	// it also is what a later grant from the queue brings; Renew and Downgrade,
	// where 0 wants none.
	Tokens int

	// Watch names an owner whose presence among the holders is read with
	// tracking behind the command (Acquire, Renew): from then on a change of
	// the key that this store's client did not make is told as [Changed].
	// Stores without [Capabilities.Tracking] ignore it.
	Watch string

	Next  *Next  // Release
	Asker string // Busy: an owner, as it came in [Wanted] or [Asked]
	Idle  bool   // Busy: the lease is not in use
	// Holder is the owner that is asked, as it came in [Reply] (Ask).
	Holder string

	// Trace is a traceparent in the sense of W3C Trace Context ([ValidTrace]; anything
	// else but an empty one is refused). Annotate: that of the present hold. Release: that of the hold that ended last, which is told
	// ([Traced]) to those that are granted the key by it; empty: nothing is.
	Trace string
	// Annotated says that an Annotate of Ticket was sent: what it left goes with
	// the lease (Release), and lives as long (Renew, Downgrade).
	Annotated bool
	// Traced says that the caller wants to know Reply.Trace (Acquire).
	Traced bool
}

// Next is what a [Release] acquires in the same step, with the queue.
type Next struct {
	Ticket Ticket
	Mode   Mode
	TTL    time.Duration
	Tokens int
	Age    time.Duration // as in Request
	Ask    bool
	Traced bool
}

// Status is the answer of a [Reply].
type Status uint8

// The answers.
const (
	// Held: Ticket (of Release: Next.Ticket) has the lease.
	Held Status = iota + 1
	// Waiting: another has it, and Ticket (or Next.Ticket) is in the queue.
	Waiting
	// Denied: another has it, and Queue was not set.
	Denied
	// Lost: Renew, Downgrade or Annotate of a lease that is not, or no longer, mine.
	Lost
	// Done: Release without Next, Busy, Annotate, and Ask.
	Done
)

// String returns the status in lower case.
func (s Status) String() string {
	switch s {
	case Held:
		return "held"
	case Waiting:
		return "waiting"
	case Denied:
		return "denied"
	case Lost:
		return "lost"
	case Done:
		return "done"
	}
	return "status " + strconv.Itoa(int(s))
}

// Reply answers a [Request].
type Reply struct {
	Status Status

	// Held: the block of tokens, ends included, each never given out before
	// and all of them greater than any that was. Zero when none was asked for.
	First, Last uint64
	// Held: somebody waits in the queue.
	Contended bool
	// Held by Renew or Downgrade: how many wait.
	Waiters int
	// Held by Acquire: the ticket had the lease already, by a grant that may not
	// have been heard, or by an earlier copy of the command.
	Already bool

	// Waiting and Denied: the soonest end among the holders' times to live,
	// the place in the queue (0 is its head), the newest token given out, one
	// of the holders, and its trace if it is annotated and Request.Traced was set.
	Remaining time.Duration
	Rank      int
	Token     uint64
	Holder    string
	Trace     string
	// Waiting, and Ask: how many inboxes received the want, or the question. Negative
	// where the store can't tell.
	Told int

	// Watched says that Request.Watch was read with tracking, and Present that
	// the owner it named was a holder at that moment.
	Watched, Present bool

	// Sent is when the copy of the command that was answered was sent (not
	// before; validity is counted from it), and Resent says that it was not
	// the first: an earlier one may still arrive.
	Sent   time.Time
	Resent bool
}

// EventType says what an [Event] tells.
type EventType uint8

// The events.
const (
	// Granted: Ticket was made the holder of Key, with tokens First to Last.
	Granted EventType = iota + 1
	// Wanted: somebody waits for the lease that Ticket has (or had). If Asker
	// is not empty it wants a [Busy] where the lease will not come at once.
	Wanted
	// InUse: the holder of Key answers the want that Ticket asked an answer for, or its [Ask].
	InUse
	// Asked: Asker wants to know, by a [Busy], whether the lease that Ticket has (or had) is
	// in use. It does not wait for it.
	Asked
	// Traced: the hold that keeps Ticket waiting has Trace; or, where Passing is
	// set, the hold did that has just ended, and Ticket is granted the key next.
	Traced
	// Changed: Key was changed by somebody else, or may have been; look at it.
	Changed
	// ChangedAll: so may have every key (a flush).
	ChangedAll
	// Disconnected: notices may be lost from here on; what tracking told is
	// void.
	Disconnected
	// Connected: notices come again (also after the first connection was
	// lost during Open). Everything that waits, holds or is on its way must be
	// looked at.
	Connected
)

// String returns the name of the event.
func (t EventType) String() string {
	switch t {
	case Granted:
		return "granted"
	case Wanted:
		return "wanted"
	case InUse:
		return "in use"
	case Asked:
		return "asked"
	case Traced:
		return "traced"
	case Changed:
		return "changed"
	case ChangedAll:
		return "changed all"
	case Disconnected:
		return "disconnected"
	case Connected:
		return "connected"
	}
	return "event " + strconv.Itoa(int(t))
}

// Event is something that a store tells unasked.
type Event struct {
	Type        EventType
	Key         string
	Ticket      Ticket // of this coordinator: the one granted, wanted or answered
	First, Last uint64 // Granted
	Contended   bool   // Granted: others wait behind
	Asker       string // Wanted, Asked
	Trace       string // Traced: a traceparent
	Passing     bool   // Traced
	Err         error  // Disconnected: why, if it is known
}

// Sink takes a store's events. It is called on the goroutine that reads from
// the store, one event at a time for a key, and must not block.
type Sink func(Event)

// Capabilities is what a store found out about itself in Open.
type Capabilities struct {
	// Server names the store and its version, for people.
	Server string
	// Notices: grants, wants and busy answers come as events. Without, a
	// waiter learns of its grant by looking.
	Notices bool
	// Receipts: a grant to a process that is gone is noticed and passed over.
	// Without, it costs that process's TTL.
	Receipts bool
	// Tracking: Request.Watch works.
	Tracking bool
	// Missing has a sentence for each thing that works less well than it
	// could, and why.
	Missing []string
}

// Holder is a process that has a key, as [Store.Inspect] sees it.
type Holder struct {
	Owner string
	Mode  Mode
	TTL   time.Duration // what remains of it
	Since time.Time     // zero if unknown
	Trace string        // traceparent, if the holder is traced
}

// Waiter is a process in the queue of a key.
type Waiter struct {
	Owner string
	Mode  Mode
	TTL   time.Duration // the whole one it will get with the lease
	Since time.Time     // by the store's clock: its place in the queue
}

// Info is what the store knows of a key.
type Info struct {
	Key     string
	Kind    Kind // zero if nobody holds it
	Holders []Holder
	Waiters []Waiter // in their order
	Token   uint64   // the newest given out; 0: none, or forgotten
}

// Problem is something about a server that is wrong for locks.
type Problem struct {
	// Code is stable and for programs: "eviction", "version", "tracking",
	// "scripts", "acl", "cluster", "inbox", "readonly", ...
	Code string
	// Fatal: locks do not work, or are not safe. Otherwise: they work, less well.
	Fatal bool
	// Text is one sentence: what is wrong, with the value found, and what to do.
	Text string
}

// Store keeps leases. Its methods may be called at the same time.
type Store interface {
	// Open connects under the coordinator's id and returns when notices come
	// in (or are known not to). It is called once, before anything else.
	// The id is free of colons and braces.
	Open(ctx context.Context, id string, sink Sink) (Capabilities, error)

	// Send sends a request and calls back exactly once, from another
	// goroutine, never from within Send. It never blocks. The requests of one
	// key reach the store in the order in which they were sent, provided the
	// next is sent after the last was answered (Busy may be sent at any time).
	// An error means that the outcome is unknown, but for ErrKind and
	// ErrStoreClosed: nothing was done. An error comes within a time that the
	// store derives from the leases' TTL, never later than a third of it.
	Send(Request, func(Reply, error))

	// Inspect tells who holds the key and who waits.
	Inspect(ctx context.Context, key string) (Info, error)

	// Force takes the key from its holders, tells them ([Changed]), and passes
	// it on to the queue.
	Force(ctx context.Context, key string) error

	// Check looks for what is wrong with the server.
	Check(ctx context.Context) ([]Problem, error)

	// Close sends what was already given to Send, answers the rest with
	// ErrStoreClosed, and returns when no goroutine of the store is left or
	// ctx has ended.
	Close(ctx context.Context) error
}
