package redislease

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/redis/rueidis"

	"github.com/go-leasehold/leasehold/lease"
)

// statuses of the scripts' answers, as their headers have them.
var statuses = [...]lease.Status{1: lease.Held, 2: lease.Waiting, 3: lease.Denied, 4: lease.Lost, 5: lease.Done, deafStatus: lease.Waiting}

// deafStatus says that a ticket waits whose inbox is not subscribed where it waits.
const deafStatus = 6

// may are the answers that a request can have.
var may = map[lease.Op][]lease.Status{
	lease.Acquire:   {lease.Held, lease.Waiting, lease.Denied},
	lease.Release:   {lease.Done, lease.Held, lease.Waiting, lease.Denied},
	lease.Renew:     {lease.Held, lease.Lost},
	lease.Downgrade: {lease.Held, lease.Lost},
	lease.Annotate:  {lease.Done, lease.Lost},
}

// lengths are how many values each of them comes with, a trace left out.
var lengths = [...]int{1: 5, 2: 6, 3: 6, 4: 1, 5: 1, deafStatus: 6}

// answer reads the values of a script's answer by their place. The first that is not what it
// has to be is the error, and what is read after it is zero.
type answer struct {
	values []rueidis.RedisMessage
	err    error
}

// number is one that is not negative.
func (a *answer) number(i int) int64 {
	if a.err != nil {
		return 0
	}
	n, err := a.values[i].ToInt64()
	if err == nil && n < 0 {
		err = fmt.Errorf("the script's answer has %d in place %d", n, i)
	}
	if a.err = err; err != nil {
		return 0
	}
	return n
}

// flag is a number that is 0 or 1.
func (a *answer) flag(i int) bool {
	n := a.number(i)
	if n > 1 {
		a.err = fmt.Errorf("the script's answer has %d in place %d, which is 0 or 1", n, i)
	}
	return n == 1
}

// parseReply reads a script's answer. An answer of another form is an error:
// nothing is guessed. A trace that is none is left out, for nothing depends on it.
func parseReply(op lease.Op, result rueidis.RedisResult) (reply lease.Reply, err error) {
	values, err := result.ToArray()
	if err != nil {
		return reply, err
	}
	if len(values) == 0 {
		return reply, errors.New("the script's answer is empty")
	}
	a := answer{values: values}
	status := a.number(0)
	if a.err != nil {
		return reply, a.err
	}
	want := 0
	if status < int64(len(lengths)) {
		want = lengths[status]
	}
	if want == 6 && len(values) == 7 {
		want = 7 // with a trace
	}
	if want == 0 || want != len(values) {
		return reply, fmt.Errorf("the script's answer has status %d and %d values", status, len(values))
	}
	reply.Status = statuses[status]
	if !slices.Contains(may[op], reply.Status) {
		return lease.Reply{}, fmt.Errorf("the script's answer is %q, which is none to %v", reply.Status, op)
	}
	switch reply.Status {
	case lease.Held:
		a.held(op, &reply)
	case lease.Waiting, lease.Denied:
		a.waiting(&reply)
	}
	if a.err != nil {
		return lease.Reply{}, a.err
	}
	return reply, nil
}

func (a *answer) held(op lease.Op, reply *lease.Reply) {
	reply.First, reply.Last = uint64(a.number(1)), uint64(a.number(2))
	reply.Contended = a.flag(3)
	if op == lease.Renew || op == lease.Downgrade {
		reply.Waiters = int(a.number(4))
	} else {
		reply.Already = a.flag(4)
	}
	if a.err == nil && (reply.Last < reply.First || reply.First == 0 != (reply.Last == 0)) {
		a.err = fmt.Errorf("the script's answer has the tokens %d to %d", reply.First, reply.Last)
	}
}

func (a *answer) waiting(reply *lease.Reply) {
	reply.Remaining = ofMillis(a.number(1))
	reply.Rank, reply.Token = int(a.number(2)), uint64(a.number(3))
	if a.err == nil {
		reply.Holder, a.err = a.values[4].ToString()
	}
	reply.Told = int(a.number(5))
	if len(a.values) == 7 {
		reply.Trace = parseTraceOf(a.values[6])
	}
}

// ofMillis is a number of milliseconds that a server told, or the longest time that there is: a key
// can be given more by hand.
func ofMillis(ms int64) time.Duration {
	return time.Duration(min(ms, int64(math.MaxInt64/time.Millisecond))) * time.Millisecond
}

// deaf says that an answer is of a ticket that waits, and whose inbox is not subscribed there.
func deaf(result rueidis.RedisResult) bool {
	values, err := result.ToArray()
	if err != nil || len(values) == 0 {
		return false
	}
	status, err := values[0].ToInt64()
	return err == nil && status == deafStatus
}

// parseTraceOf reads the trace of a holder, or nothing.
func parseTraceOf(message rueidis.RedisMessage) string {
	if trace, err := message.ToString(); err == nil && lease.ValidTrace(trace) {
		return trace
	}
	return ""
}

// parsePresence reads the answer of the look with tracking: whether one of
// the fields that were asked for is there.
func parsePresence(fields int, result rueidis.RedisResult) (present bool, err error) {
	values, err := result.ToArray()
	if err != nil {
		return false, err
	}
	if len(values) != fields {
		return false, fmt.Errorf("the look has %d values, not %d", len(values), fields)
	}
	for i := range values {
		if values[i].IsNil() {
			continue
		}
		if _, err := values[i].ToString(); err != nil {
			return false, err
		}
		present = true
	}
	return present, nil
}
