package coordinator

import (
	"time"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// phase is where a ticket is in its life:
//
//	free → acquiring → queued → held → (released) free
//	             ↘──────────────↗
//
// "releasing" is not a phase of a ticket: a ticket is retired the moment its
// release is decided, and lives on as a debt only (actor.owed). The next ticket
// may already be acquiring in the very command that releases the last.
type phase uint8

const (
	free phase = iota
	acquiring
	queued
	held
)

func (p phase) String() string {
	return [...]string{"free", "acquiring", "queued", "held"}[p]
}

// block is a block of fencing tokens, dealt out from next to last.
type block struct{ next, last uint64 }

func (b block) left() uint64 {
	if b.next == 0 || b.next > b.last {
		return 0
	}
	return b.last - b.next + 1
}

// tenure is the life of one ticket, and with it of one lease. The zero tenure
// is none. It is guarded by actor.mu.
type tenure struct {
	ticket lease.Ticket
	mode   lease.Mode
	phase  phase
	ttl    time.Duration
	began  instant

	// Asking. A grant that comes by message counts from answered, the sending
	// of the newest look that was answered "still waiting", or, before any
	// answer, from asked, the first sending; and only if its tokens are newer
	// than seen, the newest in that answer (design rule 1).
	asked    instant // 0: nothing was sent yet
	answered instant // 0: no answer yet
	seen     uint64
	resent   bool // an acquire of it may still arrive late
	asking   bool // its wants ask the holder for an answer: only TryLocks wait
	cached   bool // a Cached one among them
	askUntil instant
	direct   bool // the holder itself is asked: the store knows nothing of the ticket yet
	replied  bool // the holder has answered those who asked: a TryLock that comes later asks anew
	lookAt   instant
	holder   string
	rank     int
	checked  bool // has been looked at after checkHoldAfter

	// A want is remembered from acquiring on, for it may overtake the grant
	// (rule 3). From wantFrom on, spent counts the local grants.
	wanted   bool
	wants    int // how often it was
	wantFrom instant
	wantNth  uint64        // the last claim that came before it
	wantLook time.Duration // to the next look whether somebody still wants it
	spent    int

	// Holding.
	from, until instant // it is ours in [from, until), as far as anybody can know
	lapsed      bool    // until has passed: over, but to be released (rule 9)
	renewAt     instant
	idleFrom    instant // the last hold ended then; never while there are some
	served      int     // local grants, all told
	reads       int     // the newest of these that were to read and came close upon each other
	readAt      instant // the last of them
	readersTurn bool    // the newest was to write: those that wait to read come next, all of them
	lowering    bool    // a downgrade is to be sent, or is not answered yet: shared here, either there
	dealt       uint64  // the newest token dealt out, where readers may share it
	tokens      block
	spare       block // dealt out when tokens is used up
	size        int   // of the last block asked for

	verifyAt   instant // look or renew then, whatever the schedule says: something may have changed
	verifiedAt instant // when that was last done
	doubted    bool    // notices were lost since the last command: look at it even if it is granted

	// What telemetry knows of the lease.
	byMessage bool            // another process handed it over
	annotated bool            // the store was told of a hold's trace
	shows     *claimTrace     // of which hold; nil: of none any more
	unsay     bool            // it is to be told that this one is over
	late      bool            // an alarm was raised for its renewal
	heldBy    []heldElsewhere // the holds elsewhere that keep us waiting, as they became known
	passedBy  heldElsewhere   // the one that ended last there, and when that was known
	asker     *telemetry.Call // of the first who waited for it; with Config.LeaseSpans only
	wonAt     instant
}

// safe returns how long a lease that was asked for at a given moment may be
// believed in: its TTL, less what clocks may drift apart in that time, and less
// what a timer may be late.
func safe(ttl time.Duration) time.Duration {
	return ttl - ttl/100 - 2*time.Millisecond
}

// extend counts the lease from the sending of a command that granted or
// renewed it. A late answer never shortens it.
func (t *tenure) extend(sent instant) {
	if sent < t.from {
		return
	}
	t.from = sent
	t.until = sent.add(safe(t.ttl))
	t.renewAt = sent.add(t.ttl / 3)
}

// want notes that somebody else waits for the lease. Budget and slice run from
// now, or from the grant where that is still to come (rule 7).
func (a *actor) want(now instant) {
	t := &a.cur
	t.wants++
	if t.wanted {
		return
	}
	t.wantLook = checkHoldAfter
	t.wanted, t.wantFrom, t.wantNth, t.spent = true, now, a.came, 0
	a.tell(telemetry.EventWanted, now)
	a.annotateOne()
}

// take adds a block of tokens. The block in use goes on; no token is given
// twice (rule 10).
func (t *tenure) take(first, last uint64) {
	if t.tokens.left() == 0 && t.spare.left() > 0 {
		t.tokens, t.spare = t.spare, block{last: t.spare.last}
	}
	switch {
	case first == 0 || last < first || first <= t.tokens.last || first <= t.spare.last:
	case t.tokens.left() == 0:
		t.tokens = block{first, last}
	case t.spare.left() == 0:
		t.spare = block{first, last}
	}
}

// token deals out the next token. The caller has made sure that there is one.
func (t *tenure) token() uint64 {
	if t.tokens.left() == 0 {
		t.tokens, t.spare = t.spare, block{last: t.spare.last}
	}
	n := t.tokens.next
	t.tokens.next++
	return n
}

// tokenFor deals out the token of a hold. Readers share one with each other, and
// with the write before them: as long as two tokens are the same, nobody has
// written in between.
func (t *tenure) tokenFor(mode lease.Mode) uint64 {
	if mode == lease.Exclusive || t.dealt == 0 {
		t.dealt = t.token()
	}
	return t.dealt
}

// deals says whether there is a token for a hold.
func (t *tenure) deals(mode lease.Mode) bool {
	return t.tokensLeft() > 0 || mode == lease.Shared && t.dealt > 0
}

func (t *tenure) tokensLeft() uint64 { return t.tokens.left() + t.spare.left() }

// short says that the tokens are running out, so that the next block is asked
// for before they have.
func (t *tenure) short() bool { return t.tokensLeft() < uint64(t.size+1)/2 }
