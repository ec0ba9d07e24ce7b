package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// ID names a handle on a hold, or an owner that was fixed beforehand. No two of a
// history are the same. "" is none.
type ID string

// Mode is what a hold is for.
type Mode string

// The modes.
const (
	Read  Mode = "read"
	Write Mode = "write"
)

// What says what an event is about.
type What string

// What a process tells of its calls.
const (
	Locked     What = "locked"     // a call returned Hold
	Refused    What = "refused"    // a call to lock returned an error: it did nothing
	Alive      What = "alive"      // Hold was asked, and said that it is safe
	Unlocked   What = "unlocked"   // Unlock said that Hold was safe until then
	Downgraded What = "downgraded" // Hold became Next
	Lost       What = "lost"       // Hold, asked in any way, said that it is over
	Odd        What = "odd"        // an answer that is never right
)

// What is done to processes and keys from outside.
const (
	Killed  What = "killed"  // the process; Call is before it was
	Paused  What = "paused"  // the process stood still from Call to Return, at least
	Deleted What = "deleted" // the key, at some moment from Call to Return; Token is the newest that had been given out
	// Shaken: a server lost what it had acknowledged, or may have, from Call to Return: a failover, a restart, a flush. Key is ""
	// where that befell all keys. Leases with tokens up to Token are from before.
	Shaken What = "shaken"
)

// Event is one line of a record. Call and Return are readings of [Now] before and
// after a call.
type Event struct {
	What    What   `json:"what"`
	Process int    `json:"process"`
	Lane    int    `json:"lane,omitempty"`
	Key     string `json:"key,omitempty"`
	Hold    ID     `json:"hold,omitempty"`
	Owner   ID     `json:"owner,omitempty"` // of Locked: the hold's own ID where it has no other
	Next    ID     `json:"next,omitempty"`
	Mode    Mode   `json:"mode,omitempty"`
	Token   uint64 `json:"token,omitempty"`
	Call    int64  `json:"call"`
	Return  int64  `json:"return"`
	Note    string `json:"note,omitempty"` // what was called, or the error
}

// Load returns the events of a record. The last line of a process that was killed
// may be torn; it is passed over.
func Load(r io.Reader) ([]Event, error) {
	var events []Event
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return nil, fmt.Errorf("history: %w", err)
		}
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("history: line %d: %w", len(events)+1, err)
		}
		events = append(events, e)
	}
}

// Save writes a record.
func Save(w io.Writer, events []Event) error {
	lines := json.NewEncoder(w)
	for i := range events {
		if err := lines.Encode(&events[i]); err != nil {
			return fmt.Errorf("history: %w", err)
		}
	}
	return nil
}

// Count returns how many events there are of each kind; those of [Locked] are
// counted by mode as well.
func Count(events []Event) map[string]int {
	counts := map[string]int{}
	for i := range events {
		e := &events[i]
		counts[string(e.What)]++
		if e.What == Locked {
			counts[string(e.Mode)]++
		}
	}
	return counts
}
