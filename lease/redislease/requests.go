package redislease

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/go-leasehold/leasehold/lease"
)

// maxTokens bounds a block of tokens: far more than anybody needs, and little
// enough to leave the counter exact for centuries.
const maxTokens = 1 << 20

// maxTTL bounds the time to live of a lease: far more than makes sense, and what every server can count.
const maxTTL = 366 * 24 * time.Hour

// plan is a request made ready: what the server is to be sent.
type plan struct {
	script *script // nil: publish
	names  lockNames
	args   []string
	watch  []string // fields of the lock to be read with tracking

	channel, message string // publish
}

// lockNames are the names in Redis of what belongs to one key.
type lockNames struct {
	key                  string // the user's
	lock, queue, counter string
	slot                 uint16 // on a cluster
	inboxEnd             string // of the inboxes of its slot
}

// namesOf makes the names of a key.
func (s *Store) namesOf(key string) lockNames {
	lock := s.names.lock(key)
	tail := s.names.tail(lock)
	n := lockNames{key: key, lock: lock, queue: s.names.helperName("queue", tail), counter: s.names.helperName("token", tail)}
	if s.cluster {
		n.slot = slotOf(lock)
		if s.sharded {
			n.inboxEnd = inboxEnd(n.slot)
		}
	}
	return n
}

// validate refuses what no script should see.
func validate(r *lease.Request) error {
	switch {
	case r.Op < lease.Acquire || r.Op > lease.Ask:
		return fmt.Errorf("redislease: %v is not a request", r.Op)
	case r.Op == lease.Busy:
		if _, _, ok := lease.ParseOwner(r.Asker); !ok {
			return fmt.Errorf("redislease: busy: the asker %q is not an owner", shorten(r.Asker))
		}
		return nil
	case r.Op == lease.Ask && r.Ticket == 0:
		return errors.New("redislease: ask: ticket 0 is none")
	case r.Op == lease.Ask:
		if _, _, ok := lease.ParseOwner(r.Holder); !ok {
			return fmt.Errorf("redislease: ask: the holder %q is not an owner", shorten(r.Holder))
		}
		return nil
	case r.Kind != lease.Mutex && r.Kind != lease.ReadWrite:
		return fmt.Errorf("redislease: %v: %v is not a kind of lock", r.Op, r.Kind)
	case r.Ticket == 0:
		return fmt.Errorf("redislease: %v: ticket 0 is none", r.Op)
	case (r.Op == lease.Annotate || r.Op == lease.Release) && r.Trace != "" && !lease.ValidTrace(r.Trace):
		return fmt.Errorf("redislease: %v: the trace %q is no traceparent", r.Op, shorten(r.Trace))
	case r.Op == lease.Annotate:
		return nil
	case r.Op == lease.Downgrade && r.Kind != lease.ReadWrite:
		return errors.New("redislease: downgrade: a mutex has no shared leases")
	case r.Op == lease.Acquire:
		return validateTerms(r.Op, r.Kind, r.Mode, r.TTL, r.Tokens)
	case r.Op == lease.Release && r.Next == nil:
		return nil
	case r.Op == lease.Release && r.Next.Ticket == 0:
		return errors.New("redislease: release: the next ticket 0 is none")
	case r.Op == lease.Release:
		return validateTerms(r.Op, r.Kind, r.Next.Mode, r.Next.TTL, r.Next.Tokens)
	default: // Renew, Downgrade
		return validateTerms(r.Op, r.Kind, lease.Exclusive, r.TTL, r.Tokens)
	}
}

func validateTerms(op lease.Op, kind lease.Kind, mode lease.Mode, ttl time.Duration, tokens int) error {
	switch {
	case mode != lease.Exclusive && mode != lease.Shared:
		return fmt.Errorf("redislease: %v: %v is not a mode", op, mode)
	case mode == lease.Shared && kind == lease.Mutex:
		return fmt.Errorf("redislease: %v: a mutex has no shared leases", op)
	case ttl < time.Millisecond:
		return fmt.Errorf("redislease: %v: a TTL of %v is below the limit of 1ms", op, ttl)
	case ttl > maxTTL:
		return fmt.Errorf("redislease: %v: a TTL of %v is over the limit of %v", op, ttl, maxTTL)
	case tokens < 0 || tokens > maxTokens:
		return fmt.Errorf("redislease: %v: %d tokens are not between 0 and %d", op, tokens, maxTokens)
	}
	return nil
}

// joins says whether the request may put a ticket into the queue, or else have a message come for it.
func joins(r *lease.Request) bool {
	return r.Op == lease.Acquire && r.Queue || r.Op == lease.Release && r.Next != nil || r.Op == lease.Ask
}

// prepare makes the plan of a request that is valid.
func (s *Store) prepare(r *lease.Request, n lockNames) plan {
	p := plan{names: n}
	owner := lease.Owner(s.id, r.Ticket)
	switch r.Op {
	case lease.Acquire:
		p.script = acquireScript
		p.args = s.args(r.Kind, n, 8, owner, s.form(r.Kind, r.Mode), millis(r.TTL), strconv.Itoa(r.Tokens),
			flag(r.Queue), flag(r.Ask), micros(r.Age), flag(r.Traced))
	case lease.Release:
		p.script = releaseScript
		if next := r.Next; next != nil {
			p.args = s.args(r.Kind, n, 10, owner, lease.Owner(s.id, next.Ticket), s.form(r.Kind, next.Mode), millis(next.TTL),
				strconv.Itoa(next.Tokens), flag(next.Ask), micros(next.Age), flag(next.Traced), flag(r.Annotated), r.Trace)
		} else {
			p.args = s.args(r.Kind, n, 10, owner, "", "", "", "", "", "", "", flag(r.Annotated), r.Trace)
		}
	case lease.Renew:
		p.script = renewScript
		p.args = s.args(r.Kind, n, 4, owner, millis(r.TTL), strconv.Itoa(r.Tokens), flag(r.Annotated))
	case lease.Downgrade:
		p.script = downgradeScript
		p.args = s.args(r.Kind, n, 4, owner, millis(r.TTL), strconv.Itoa(r.Tokens), flag(r.Annotated))
	case lease.Annotate:
		p.script = annotateScript
		p.args = s.args(r.Kind, n, 2, owner, r.Trace)
	case lease.Busy:
		of, _, _ := lease.ParseOwner(r.Asker)
		p.channel = s.names.inbox() + of + n.inboxEnd
		p.message = verbBusy + " " + r.Asker + " " + r.Key
		if r.Idle {
			p.message = verbChanged + " " + r.Asker + " " + r.Key
		}
	case lease.Ask:
		of, _, _ := lease.ParseOwner(r.Holder)
		p.channel = s.names.inbox() + of + n.inboxEnd
		p.message = verbAsk + " " + r.Holder + " " + owner + " " + r.Key
	}
	if r.Watch != "" && s.capabilities.Tracking && (r.Op == lease.Acquire || r.Op == lease.Renew) {
		p.watch = []string{r.Watch}
		if r.Kind == lease.ReadWrite {
			p.watch = append(p.watch, r.Watch+":write")
		}
	}
	return p
}

// args are the arguments of a script: those of the prelude, then its own.
func (s *Store) args(kind lease.Kind, n lockNames, own int, rest ...string) []string {
	args := make([]string, 0, 7+own)
	name := "mutex"
	if kind == lease.ReadWrite {
		name = "rw"
	}
	args = append(args, name, s.publish, s.names.inbox(), n.inboxEnd, s.keep,
		strconv.Itoa(s.names.keyFrom(n.key)+1), s.tailFrom)
	return append(args, rest...)
}

// form is how a waiter is written in the queue.
func (s *Store) form(kind lease.Kind, mode lease.Mode) string {
	form := "W"
	switch {
	case kind == lease.Mutex:
		form = "M"
	case mode == lease.Shared:
		form = "R"
	}
	if !s.capabilities.Receipts {
		form = string(form[0] + 'a' - 'A')
	}
	return form
}

// millis is d in milliseconds, rounded up: a lease must not end before its holder thinks so.
func millis(d time.Duration) string {
	ms := d / time.Millisecond
	if d%time.Millisecond > 0 {
		ms++
	}
	return strconv.FormatInt(int64(ms), 10)
}

func micros(d time.Duration) string {
	if d < 0 {
		return "-1"
	}
	return strconv.FormatInt(d.Microseconds(), 10)
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// how a plan is sent.
type manner uint8

const (
	byName   manner = iota // EVALSHA
	byText                 // EVAL, where the server doesn't know the script
	bareLock               // EVAL with the lock as the only key, while its slot moves
)

// commands appends the plan's commands: the script, and the look with tracking
// behind it.
func (s *Store) commands(to []rueidis.Completed, p *plan, how manner) []rueidis.Completed {
	b := s.client.B()
	if p.script == nil {
		if s.sharded {
			return append(to, b.Spublish().Channel(p.channel).Message(p.message).Build())
		}
		return append(to, b.Publish().Channel(p.channel).Message(p.message).Build())
	}
	verb, body := "EVALSHA", ""
	if how == byName {
		body = p.script.sha()
	} else {
		verb, body = "EVAL", p.script.text
	}
	cmd := b.Arbitrary(verb, body)
	if how == bareLock {
		cmd = cmd.Args("1").Keys(p.names.lock)
	} else {
		cmd = cmd.Args("3").Keys(p.names.lock, p.names.queue, p.names.counter)
	}
	to = append(to, cmd.Args(p.args...).Build())
	if len(p.watch) > 0 {
		to = append(to, b.ClientCaching().Yes().Build(), b.Hmget().Key(p.names.lock).Field(p.watch...).Build())
	}
	return to
}
