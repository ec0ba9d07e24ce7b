package redislease

import (
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/go-leasehold/leasehold/lease"
)

// statuses of the scripts' answers, as their headers have them.
var statuses = [...]lease.Status{1: lease.Held, 2: lease.Waiting, 3: lease.Denied, 4: lease.Lost, 5: lease.Done, deafStatus: lease.Waiting}

// deafStatus says that a ticket waits whose inbox is not subscribed where it waits.
const deafStatus = 6

// answered is a reply with what only the store needs to know.
type answered struct {
	lease.Reply

	deaf bool // it waits, and its inbox is not subscribed where it waits
}

// parseReply reads a script's answer. An answer of another form is an error:
// nothing is guessed. A trace that is none is left out, for nothing depends on it.
func parseReply(op lease.Op, result rueidis.RedisResult) (reply answered, err error) {
	values, err := result.ToArray()
	if err != nil {
		return reply, err
	}
	number := func(i int) int64 {
		if err != nil {
			return 0
		}
		var n int64
		if n, err = values[i].ToInt64(); err == nil && n < 0 {
			err = fmt.Errorf("the script's answer has %d in place %d", n, i)
		}
		return n
	}
	if len(values) == 0 {
		return reply, fmt.Errorf("the script's answer is empty")
	}
	status := number(0)
	if err != nil {
		return reply, err
	}
	want := map[int64]int{1: 5, 2: 6, 3: 6, 4: 1, 5: 1, deafStatus: 6}[status]
	if want == 6 && len(values) == 7 {
		want = 7 // with a trace
	}
	if want == 0 || want != len(values) {
		return reply, fmt.Errorf("the script's answer has status %d and %d values", status, len(values))
	}
	reply.Status, reply.deaf = statuses[status], status == deafStatus
	switch reply.Status {
	case lease.Held:
		reply.First, reply.Last = uint64(number(1)), uint64(number(2))
		reply.Contended = number(3) == 1
		if n := int(number(4)); op == lease.Renew || op == lease.Downgrade {
			reply.Waiters = n
		} else {
			reply.Already = n == 1
		}
		if err == nil && (reply.Last < reply.First || reply.First == 0 != (reply.Last == 0)) {
			err = fmt.Errorf("the script's answer has the tokens %d to %d", reply.First, reply.Last)
		}
	case lease.Waiting, lease.Denied:
		reply.Remaining = time.Duration(number(1)) * time.Millisecond
		reply.Rank, reply.Token = int(number(2)), uint64(number(3))
		if err == nil {
			reply.Holder, err = values[4].ToString()
		}
		reply.Told = int(number(5))
		if want == 7 {
			reply.Trace = parseTraceOf(values[6])
		}
	}
	if err != nil {
		return answered{}, err
	}
	return reply, nil
}

// parseTraceOf reads the trace of a holder, or nothing.
func parseTraceOf(message rueidis.RedisMessage) string {
	if trace, err := message.ToString(); err == nil && lease.ValidTrace(trace) {
		return trace
	}
	return ""
}

// parsePresence reads the answer of the look with tracking: whether one of
// the fields is there.
func parsePresence(result rueidis.RedisResult) (bool, error) {
	values, err := result.ToArray()
	for i := range values {
		if !values[i].IsNil() {
			return true, err
		}
	}
	return false, err
}
