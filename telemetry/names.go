package telemetry

import "go.opentelemetry.io/otel/attribute"

// ScopeName is the instrumentation scope of all spans and metrics.
const ScopeName = "github.com/go-leasehold/leasehold"

// Version is the version of the instrumentation scope: what is said of spans and
// metrics here holds for it. It changes when a name or a meaning does.
const Version = "0.1.0"

// The spans.
const (
	// SpanAcquire is a call's wait for a lock. Its links say who was in its way.
	SpanAcquire = "lock.acquire"
	// SpanHold is a hold, from the grant to Unlock or to its loss. It is in the
	// hold's context, so that the spans of the work are below it.
	SpanHold = "lock.hold"
	// SpanLease is the time for which a process had a lease ([Config.LeaseSpans]).
	SpanLease = "lock.lease"
)

// The attributes of spans, links, events and metrics. Those of metrics have few
// values each.
const (
	// AttrClass is the key's class: see [Config.KeyClass].
	AttrClass = attribute.Key("leasehold.key.class")
	// AttrMode is "exclusive" or "shared".
	AttrMode = attribute.Key("leasehold.mode")
	// AttrPath is how a hold was granted: see [Path].
	AttrPath = attribute.Key("leasehold.path")
	// AttrOutcome is what a wait, a hold or a lease came to: see [Outcome].
	AttrOutcome = attribute.Key("leasehold.outcome")
	// AttrAhead is how many callers of this process waited before this one.
	AttrAhead = attribute.Key("leasehold.waiters.ahead")
	// AttrHolder is the name in the store of the lease that was in the way:
	// host, process, chance and ticket.
	AttrHolder = attribute.Key("leasehold.holder")
	// AttrLink is what a link leads to: see [Relation].
	AttrLink = attribute.Key("leasehold.link")
	// AttrKey is the key, and AttrToken the fencing token of the hold, on spans
	// only, and only with [Config.KeyAttribute].
	AttrKey   = attribute.Key("leasehold.key")
	AttrToken = attribute.Key("leasehold.token")
	// AttrCause is why a lease was lost: [CauseNotRenewed] or [CauseTakenAway].
	AttrCause = attribute.Key("leasehold.cause")
	// AttrHandoff is "local", from one hold of a process to the next, or
	// "remote", from another process.
	AttrHandoff = attribute.Key("leasehold.handoff")
	// AttrNotice is what a notice that was missed would have told: "grant" or
	// "want".
	AttrNotice = attribute.Key("leasehold.notice")
	// AttrAlarm is the kind of an alarm: see [AlarmKind].
	AttrAlarm = attribute.Key("leasehold.alarm")
	// AttrHolds is how many holds a lease served.
	AttrHolds = attribute.Key("leasehold.holds")
	// AttrOperation is what was asked of a stock: see [Operation].
	AttrOperation = attribute.Key("leasehold.operation")
	// AttrErrorType is OpenTelemetry's own: the outcome, where it is an error.
	AttrErrorType = attribute.Key("error.type")
)

// The events of spans.
const (
	EventQueued        = "lock.queued"         // behind others of this process
	EventLeaseAsked    = "lock.lease_asked"    // the store was asked for the lease
	EventDenied        = "lock.denied"         // another process has it: AttrHolder
	EventWanted        = "lock.wanted"         // another process waits for the lease here
	EventHandoff       = "lock.handoff"        // another process handed the lease over
	EventDowngraded    = "lock.downgraded"     // from here on the hold is a shared one
	EventRenewalFailed = "lock.renewal_failed" // a renewal was not answered, and is tried again
	EventRenewalLate   = "lock.renewal_late"   // see [LateRenewal]
	EventStoreFailed   = "lock.store_failed"   // another command was not answered
	EventLost          = "lock.lost"           // the lease was lost: AttrCause
	EventAlarm         = "lock.alarm"          // an alarm was raised: AttrAlarm
)

// The metrics, with their units.
const (
	MetricWait     = "leasehold.wait.duration"    // histogram, s: calls that did not enter at once; class, mode, outcome
	MetricHold     = "leasehold.hold.duration"    // histogram, s: class, mode, outcome
	MetricLateness = "leasehold.renewal.lateness" // histogram, s: how long after a third of the TTL a renewal was in

	MetricWaiters = "leasehold.waiter.count" // {waiter}: callers waiting now; class
	MetricHolds   = "leasehold.hold.count"   // {lock}: holds now; class
	MetricLeases  = "leasehold.lease.count"  // {lease}: leases that the process has now, idle ones included; class
	MetricKeys    = "leasehold.key.count"    // {key}: keys that the process knows of now; class

	MetricGrants         = "leasehold.grants"          // {lock}: class, path
	MetricWaits          = "leasehold.waits"           // {wait}: calls that did not enter at once; class, outcome
	MetricHandoffs       = "leasehold.handoffs"        // {handoff}: class, handoff
	MetricYields         = "leasehold.yields"          // {handoff}: leases passed to another process while callers waited here; class
	MetricRenewals       = "leasehold.renewals"        // {renewal}: class
	MetricLosses         = "leasehold.losses"          // {lease}: lost under their holders; class, cause
	MetricExpired        = "leasehold.expired"         // {lock}: holds that outlasted their MaxHold; class
	MetricMissed         = "leasehold.notices.missed"  // {notice}: found by looking, not told; class, notice
	MetricCommands       = "leasehold.redis.commands"  // {command}: sent to the store; class
	MetricFailures       = "leasehold.redis.failures"  // {command}: not answered, or with an error; class
	MetricFailedReleases = "leasehold.releases.failed" // {lease}: left to expire; class
	MetricAlarms         = "leasehold.alarms"          // {alarm}: class, alarm
	MetricDropped        = "leasehold.dropped"         // {record}: spans, alarms and log lines that a slow receiver made us drop

	MetricStockOrders   = "leasehold.stock.orders"         // {order}: answered; class, operation, outcome
	MetricStockUnits    = "leasehold.stock.units"          // {unit}: of orders that were carried out; class, operation
	MetricStockKnown    = "leasehold.stock.sold_out.known" // {order}: of those that were sold out, answered with no command; class, operation
	MetricStockBatch    = "leasehold.stock.batch.size"     // histogram, {order}: orders that one command carried; class
	MetricStockCommands = "leasehold.stock.commands"       // {command}: sent for stock; class
	MetricStockFailures = "leasehold.stock.failures"       // {command}: of them, not answered, or with an error; class
	MetricStockMoves    = "leasehold.stock.moves"          // {move}: requests to segments for units that another is short of; class
	MetricStockMoved    = "leasehold.stock.moved"          // {unit}: that they gave; class
	MetricStockLooks    = "leasehold.stock.looks"          // {look}: at all segments of a stock; class
)

// Path is how a hold was granted.
type Path string

// The paths.
const (
	PathRetained Path = "retained" // at once, under a lease that was here
	PathPassed   Path = "passed"   // a reader, without asking: counted, not timed
	PathLocal    Path = "local"    // handed over by another hold of this process
	PathRedis    Path = "redis"    // the store granted the lease on being asked
	PathHandoff  Path = "handoff"  // another process handed the lease over
	PathReentry  Path = "reentry"  // the caller was inside already
)

// Outcome is what a wait, a hold or a lease came to.
type Outcome string

// The outcomes.
const (
	Acquired    Outcome = "acquired"    // a wait: it holds
	Busy        Outcome = "busy"        // a TryLock: somebody else has it
	Timeout     Outcome = "timeout"     // a wait: its time, or its context's deadline, was over
	Canceled    Outcome = "canceled"    // a wait: its context was canceled
	Refused     Outcome = "refused"     // a wait that could not be: too many waiters, another kind of lock, an upgrade
	Unavailable Outcome = "unavailable" // a wait: the store did not answer
	Closed      Outcome = "closed"      // the coordinator was closed
	Released    Outcome = "released"    // a hold that was unlocked; a lease that was given back
	Lost        Outcome = "lost"        // a hold whose lease was lost; such a lease
	Expired     Outcome = "expired"     // a hold that outlasted its MaxHold, or the context of EndWith; an order whose reservation had run out
	SoldOut     Outcome = "sold_out"    // an order: not enough is left
	Done        Outcome = "done"        // an order: carried out
	Repeated    Outcome = "repeated"    // an order: it had been carried out before
	Limited     Outcome = "limited"     // an order: over the user's limit
	Uncertain   Outcome = "uncertain"   // an order: whether it was carried out is not known
)

// Why a lease was lost.
const (
	CauseNotRenewed = "not_renewed" // within its time to live
	CauseTakenAway  = "taken_away"  // deleted, flushed, forced, or lost in a failover
)

// Failed says that an outcome is an error, as spans show it.
func (o Outcome) Failed() bool {
	switch o {
	case Timeout, Refused, Unavailable, Lost, Expired, Uncertain:
		return true
	}
	return false
}

// Relation is what a link leads to.
type Relation string

// The relations.
const (
	// LinkHolder: a hold that had the key when the wait began, or that is known to
	// have had it while the wait went on.
	LinkHolder Relation = "holder"
	// LinkPredecessor: the hold that ended last before the grant.
	LinkPredecessor Relation = "predecessor"
	// LinkAsker: of a lease, the call for which it was asked for first.
	LinkAsker Relation = "asker"
)
