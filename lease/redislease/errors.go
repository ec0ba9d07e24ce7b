package redislease

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/redis/rueidis"

	"github.com/go-leasehold/leasehold/lease"
)

// Stages at which a request can fail.
const (
	// StageConnect: no connection could be had; nothing was sent.
	StageConnect = "connect"
	// StageReply: sent, or perhaps sent, and no answer came; the outcome is
	// unknown.
	StageReply = "reply"
	// StageServer: the server answered with an error.
	StageServer = "server"
	// StageInbox: not sent, for grants could not have been received.
	StageInbox = "inbox"
)

// Error is a request that failed for a reason that has to do with the server
// or the way to it. Its text says plainly which.
type Error struct {
	Op    string // what was asked for: "acquire", "open", ...
	Addr  string // the server's address, as it was configured
	Stage string // how far it got: StageConnect, ...
	Code  string // the first word of the server's error ("READONLY", "NOPERM", ...); empty if it sent none
	Err   error
}

// Error returns the whole story in one sentence.
func (e *Error) Error() string {
	return fmt.Sprintf("redislease: %s at %s: %s (%s: %v)", e.Op, e.Addr, e.reason(), e.Stage, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// reasons says what an error code of the server means for a lock.
var reasons = map[string]string{
	"READONLY":    "the server is a read-only replica",
	"LOADING":     "the server is loading its data set",
	"MASTERDOWN":  "the replica has lost its master",
	"BUSY":        "the server is busy with a script that doesn't end",
	"OOM":         "the server has reached its maxmemory",
	"MISCONF":     "the server can't write its snapshots and refuses changes",
	"NOREPLICAS":  "the server has too few replicas to accept changes",
	"NOPERM":      "the user is not permitted to do this",
	"NOAUTH":      "the server wants a password and none was given",
	"WRONGPASS":   "the user name or the password is wrong",
	"CLUSTERDOWN": "the cluster is down",
	"TRYAGAIN":    "the key's slot is moving to another node",
	"CROSSSLOT":   "the key's names are not in one slot",
	"MOVED":       "the key's slot is on another node",
	"ASK":         "the key's slot is moving to another node",
	"UNKILLABLE":  "the server is busy with a script that can't be killed",
}

// reason says in words what e is about.
func (e *Error) reason() string {
	if e.Stage == StageInbox {
		return "notices don't come in, so a grant would be missed: " + why(stageOf(e.Code, e.Err), e.Code, e.Err)
	}
	return why(e.Stage, e.Code, e.Err)
}

// stageOf is how far it got.
func stageOf(code string, err error) string {
	switch {
	case code == "NOAUTH" || code == "WRONGPASS" || code == "" && unsent(err):
		return StageConnect
	case code == "":
		return StageReply
	}
	return StageServer
}

// why says in words what is wrong.
func why(stage, code string, err error) string {
	switch {
	case code == "NOPERM" && strings.Contains(err.Error(), "eval"):
		return "the user is not permitted to run scripts"
	case code == "ERR" && strings.Contains(strings.ToLower(err.Error()), "unknown command"):
		return "the server has no such command"
	case code != "" && reasons[code] != "":
		return reasons[code]
	case code != "":
		return "the server answered with an error"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the server is down: nothing listens there"
	case stage == StageConnect && timedOut(err):
		return "the server can't be reached: no connection in time"
	case stage == StageConnect:
		return "the server can't be reached"
	case timedOut(err):
		return "the server is silent: the connection is open, or half open, and no answer came in time"
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE),
		errors.Is(err, net.ErrClosed), errors.Is(err, errReplica), errors.Is(err, errMisplaced):
		return "the connection was lost before the answer"
	default:
		return "no answer"
	}
}

var (
	// errPatience ends a request that was not answered in time.
	errPatience = errors.New("not answered in time")

	// errClosed ends a request that was on its way when Close ran out of time.
	errClosed = errors.New("the store was closed before the answer")

	// errReplica ends what is under way on a connection that is given up.
	errReplica = errors.New("the connection led to a replica and was closed")

	// errMisplaced ends what is under way on a connection that is given up.
	errMisplaced = errors.New("an inbox was subscribed at another server than its grants come from; the connection was closed")

	// errInbox is why nothing joins a queue now.
	errInbox = errors.New("the inbox is not subscribed")
)

// code is the first word of an error that the server sent, or empty.
func code(err error) string {
	var answer *rueidis.RedisError
	if !errors.As(err, &answer) {
		return ""
	}
	text := answer.Error()
	if strings.Contains(text, "The user executing the script can't") {
		return "NOPERM" // Redis 7.0 sends this one without its code
	}
	word, _, _ := strings.Cut(text, " ")
	if word != "" && word == strings.ToUpper(word) {
		return word
	}
	// Before Redis 7 an error inside a script is wrapped in a sentence: "Error
	// running script (call to f_...): @user_script:1: @user_script: 1: -READONLY You can't ..."
	if _, inner, ok := strings.Cut(text, "@user_script:"); ok {
		for _, word := range strings.Fields(inner) {
			word = strings.TrimPrefix(word, "-")
			if reasons[word] != "" || word == "WRONGTYPE" {
				return word
			}
		}
	}
	return "ERR" // the client leaves this one out
}

// wrap makes the caller's error out of the client's.
func (s *Store) wrap(op string, err error) error {
	c := code(err)
	if c == "KIND" || c == "WRONGTYPE" {
		return fmt.Errorf("%w: %s", lease.ErrKind, strings.TrimPrefix(err.Error(), "KIND "))
	}
	return &Error{Op: op, Addr: s.addr, Stage: stageOf(c, err), Code: c, Err: err}
}

// timedOut says that something did not come in time.
func timedOut(err error) bool {
	var netErr net.Error
	return errors.Is(err, errPatience) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.As(err, &netErr) && netErr.Timeout()
}

// unsent says that a request can't have reached the server, for there was no
// connection.
func unsent(err error) bool {
	var dial *dialError
	return errors.As(err, &dial) || errors.Is(err, rueidis.ErrClosing) || errors.Is(err, rueidis.ErrNoSlot)
}

// broken says that the connection broke under a request: sending it again at
// once may do.
func broken(err error) bool {
	if err == nil {
		return false
	}
	var answer *rueidis.RedisError
	return !errors.As(err, &answer) && !unsent(err) && !errors.Is(err, context.Canceled) &&
		!errors.Is(err, context.DeadlineExceeded) && !rueidis.IsParseErr(err)
}
