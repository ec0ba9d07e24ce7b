package redislease

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/go-leasehold/leasehold/lease"
)

// maxSends is how often a call is sent at most: again where the server did not
// know its script by name or the connection broke, and once more since the
// client may send the second copy into that same connection. (It answers what
// was under way before it notes that the connection is lost, so that who is
// quick gets it once again.)
const maxSends = 3

// sending is a call on its way to the server, and how it goes there.
type sending struct {
	call   *call
	how    manner
	resent bool // an earlier copy may still arrive
}

// deliver sends a batch in one go and answers it.
func (s *Store) deliver(l *lane, batch []*call) {
	calls := make([]sending, 0, len(batch))
	for _, c := range batch {
		if c.refusal != nil {
			l.answer(c, lease.Reply{}, c.refusal)
			continue
		}
		calls = append(calls, sending{call: c, how: byName})
	}
	for n := 1; len(calls) > 0; n++ {
		calls = s.send(l, calls, n == maxSends)
	}
}

// send sends calls in one go, and answers them but for those that are to be
// sent again, which it returns.
func (s *Store) send(l *lane, calls []sending, last bool) []sending {
	var commands []rueidis.Completed
	known := map[*script]bool{} // by the earlier ones of this pipeline
	sizes := make([]int, len(calls))
	for i, c := range calls {
		if c.how == byText {
			if known[c.call.plan.script] {
				c.how = byName
			}
			known[c.call.plan.script] = true
		}
		before := len(commands)
		commands = s.commands(commands, &c.call.plan, c.how)
		sizes[i] = len(commands) - before
	}
	sent := time.Now()
	results := s.exchange(l, commands)
	var again []sending
	for i, c := range calls {
		mine := results[:sizes[i]]
		results = results[sizes[i]:]
		// One that was answered meanwhile, for its time was up, must not arrive
		// behind what its caller did then.
		if then, ok := s.retry(c, mine); ok && !last && !l.over(c.call) {
			again = append(again, then)
		} else {
			s.conclude(l, c.call, mine, sent, c.resent)
		}
	}
	return again
}

// exchange has the client send commands, and notes whether anything was answered.
func (s *Store) exchange(l *lane, commands []rueidis.Completed) []rueidis.RedisResult {
	results := s.client.DoMulti(context.Background(), commands...)
	if results[0].NonRedisError() == nil {
		l.answered()
	}
	return results
}

// retry says whether, and how, a call is to be sent once more.
func (s *Store) retry(c sending, results []rueidis.RedisResult) (sending, bool) {
	err := results[0].Error()
	if err == nil {
		// A connection that broke behind the script's answer leaves the look
		// with tracking undone, which is told as such.
		return sending{}, false
	}
	switch {
	case code(err) == "NOSCRIPT":
		c.how = byText
	case code(err) == "TRYAGAIN" && c.call.request.Op == lease.Renew:
		c.how = bareLock
	case broken(err):
		c.how, c.resent = byText, true
	default:
		return sending{}, false
	}
	return c, true
}

// conclude answers a call with what came back.
func (s *Store) conclude(l *lane, c *call, results []rueidis.RedisResult, sent time.Time, resent bool) {
	reply, err := s.read(c, results)
	if err != nil {
		err = s.wrap(c.request.Op.String(), err)
		l.answer(c, lease.Reply{}, err)
		s.suspect(err)
		return
	}
	reply.Sent, reply.Resent = sent, resent
	l.answer(c, reply, nil)
	if reply.Status == lease.Waiting && deaf(results[0]) && c.life == s.inbox.life.Load() {
		s.mover.misplaced()
	}
}

// read makes a reply of the results of a plan.
func (s *Store) read(c *call, results []rueidis.RedisResult) (lease.Reply, error) {
	if c.plan.script == nil {
		heard, err := results[0].AsInt64()
		if !s.capabilities.Receipts {
			heard = -1
		}
		return lease.Reply{Status: lease.Done, Told: int(heard)}, err
	}
	reply, err := parseReply(c.request.Op, results[0])
	if err != nil {
		if results[0].Error() == nil {
			err = fmt.Errorf("%s: %w", c.plan.script.name, err)
		}
		return reply, err
	}
	if reply.Status == lease.Waiting && !s.capabilities.Receipts {
		reply.Told = -1
	}
	if len(results) == 3 && results[1].Error() == nil {
		if present, err := parsePresence(len(c.plan.watch), results[2]); err == nil {
			reply.Watched, reply.Present = true, present
		}
	}
	return reply, nil
}

// suspect closes the connections when an answer shows that they lead to the
// wrong server: one that was a master and is a replica now, behind a name that
// has moved on, would otherwise be asked for ever.
func (s *Store) suspect(err error) {
	var failure *Error
	if errors.As(err, &failure) && failure.Code == "READONLY" {
		s.dropPlain()
		if s.dropConnections(errReplica) {
			s.log.Warn("leasehold: the server is a read-only replica; connecting anew", "addr", s.addr)
		}
	}
}

// unstick closes a connection on which nothing was answered for as long as a
// request may take. On a cluster the others are fine, and the client finds the
// silent one itself.
func (s *Store) unstick() {
	if !s.cluster {
		s.dropConnections(errPatience)
	}
}

// dropConnections closes all connections, at most once in the time that a
// request may take; it says whether it did.
func (s *Store) dropConnections(why error) bool {
	if !s.due(&s.dropped) {
		return false
	}
	s.conns.drop(why)
	return true
}

// due says whether something can be done again that was last done then, and
// notes that it is.
func (s *Store) due(then *atomic.Int64) bool {
	now := int64(time.Since(s.born))
	last := then.Load()
	return (last == 0 || now-last >= int64(s.config.patience())) && then.CompareAndSwap(last, now)
}
