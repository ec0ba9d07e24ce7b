package history

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

// Recorder records what one process does.
type Recorder struct {
	// Refusal says that an error is one with which a call to lock may fail.
	Refusal func(error) bool
	// Over says that an error of Unlock or Downgrade tells of a hold that was lost.
	Over func(error) bool

	process int

	mu   sync.Mutex
	w    io.Writer
	next int
	err  error
}

// NewRecorder returns one that writes to w, each event with one Write before the
// process goes on, so that a file has all that a killed process knew. Numbers of
// processes, also of those one after the other, differ.
func NewRecorder(w io.Writer, process int) *Recorder {
	return &Recorder{w: w, process: process}
}

// ID returns a new name.
func (r *Recorder) ID() ID {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next++
	return ID(fmt.Sprintf("%d.%d", r.process, r.next))
}

// Err returns the error of the first write that failed.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// put records an event, which has just returned.
func (r *Recorder) put(e Event) {
	e.Process, e.Return = r.process, Now()
	line, err := json.Marshal(&e)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		_, err = r.w.Write(append(line, '\n'))
	}
	if r.err == nil {
		r.err = err
	}
}

// Hold is what a lock gives.
type Hold interface {
	Token() uint64
	Valid() bool
	Unlock() error
}

// Lane records the calls of one goroutine.
type Lane struct {
	r      *Recorder
	number int
}

// Lane returns the lane of that number.
func (r *Recorder) Lane(number int) *Lane { return &Lane{r, number} }

// Odd records an answer that is never right.
func (l *Lane) Odd(key string, call int64, format string, args ...any) {
	l.r.put(Event{What: Odd, Lane: l.number, Key: key, Call: call, Note: fmt.Sprintf(format, args...)})
}

// Lock calls lock, and records what it said; name is what it is. The hold is
// owner's, or its own if that is "". It returns nil where there is none.
func (l *Lane) Lock(key string, mode Mode, owner ID, name string, lock func() (Hold, error)) *Handle {
	call := Now()
	hold, err := lock()
	if err != nil {
		l.Refused(key, mode, name, call, err)
		return nil
	}
	return l.Entered(key, mode, owner, name, call, hold)
}

// Refused records the error of a call to lock.
func (l *Lane) Refused(key string, mode Mode, name string, call int64, err error) {
	if !l.r.Refusal(err) {
		l.Odd(key, call, "%s: %v", name, err)
		return
	}
	l.r.put(Event{What: Refused, Lane: l.number, Key: key, Mode: mode, Call: call, Note: name + ": " + err.Error()})
}

// Entered records a hold that was had otherwise than by a call that returned it.
func (l *Lane) Entered(key string, mode Mode, owner ID, name string, call int64, hold Hold) *Handle {
	h := &Handle{Hold: hold, ID: l.r.ID(), Owner: owner, lane: l, key: key}
	if owner == "" {
		h.Owner = h.ID
	}
	h.put(Event{What: Locked, Owner: h.Owner, Mode: mode, Token: hold.Token(), Call: call, Note: name})
	return h
}

// Handle is a hold whose calls are recorded.
type Handle struct {
	Hold
	ID    ID
	Owner ID

	lane *Lane
	key  string
}

func (h *Handle) put(e Event) {
	e.Lane, e.Key, e.Hold = h.lane.number, h.key, h.ID
	h.lane.r.put(e)
}

// Valid asks the hold whether it is safe.
func (h *Handle) Valid() bool {
	call := Now()
	if !h.Hold.Valid() {
		h.put(Event{What: Lost, Call: call, Note: "Valid"})
		return false
	}
	h.put(Event{What: Alive, Call: call})
	return true
}

// Unlock ends the hold.
func (h *Handle) Unlock() {
	call := Now()
	h.Left("Unlock", call, h.Hold.Unlock())
}

// Left records the end of a hold that came otherwise than by Unlock, and what was
// said of it; name is what said it.
func (h *Handle) Left(name string, call int64, err error) {
	switch {
	case err == nil:
		h.put(Event{What: Unlocked, Call: call, Note: name})
	case h.lane.r.Over(err):
		h.put(Event{What: Lost, Call: call, Note: name + ": " + err.Error()})
	default:
		h.lane.Odd(h.key, call, "%s of %s: %v", name, h.ID, err)
	}
}

// Downgrade calls downgrade, and returns the hold that it gave, or nil.
func (h *Handle) Downgrade(downgrade func() (Hold, error)) *Handle {
	call := Now()
	hold, err := downgrade()
	if err != nil {
		h.Left("Downgrade", call, err)
		return nil
	}
	next := &Handle{Hold: hold, ID: h.lane.r.ID(), Owner: h.Owner, lane: h.lane, key: h.key}
	h.put(Event{What: Downgraded, Next: next.ID, Token: hold.Token(), Call: call})
	return next
}

// Key is the key of the hold.
func (h *Handle) Key() string { return h.key }
