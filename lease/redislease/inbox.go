package redislease

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/go-leasehold/leasehold/lease"
)

// Messages of an inbox. The key comes last, for it may hold anything.
//
//	grant <owner> <first token> <last token> <contended: 0 or 1> <key>
//	want <owner of the lease wanted> <owner that wants an answer, or -> <key>
//	busy <owner that asked> <key>
//	changed <owner of a lease that was taken away> <key>
//	trace <owner that waits> <1: of the hold that has just ended, else 0> <traceparent> <key>
//	probe
const (
	verbGrant   = "grant"
	verbWant    = "want"
	verbBusy    = "busy"
	verbAsk     = "ask"
	verbChanged = "changed"
	verbTrace   = "trace"
	verbProbe   = "probe"
)

// parseMessage makes an event of an inbox's message. A probe gives no event,
// and no error.
func parseMessage(id, message string) (event lease.Event, err error) {
	verb, rest, _ := strings.Cut(message, " ")
	words := wordsOf(verb)
	if verb == verbProbe && rest == "" {
		return lease.Event{}, nil
	}
	if words == 0 {
		return event, fmt.Errorf("the verb %q is not known", shorten(verb))
	}
	var word [4]string
	for i := range words {
		var ok bool
		if word[i], rest, ok = strings.Cut(rest, " "); !ok {
			return event, fmt.Errorf("%s has %d of %d words", verb, i, words)
		}
	}
	if event.Ticket, err = ownTicket(id, word[0]); err != nil {
		return lease.Event{}, fmt.Errorf("%s: %w", verb, err)
	}
	event.Key = rest
	switch verb {
	case verbGrant:
		event.Type = lease.Granted
		return event, parseGrant(&event, word[1], word[2], word[3])
	case verbWant:
		event.Type = lease.Wanted
		if word[1] != "-" {
			event.Asker, err = asker(verb, word[1])
		}
	case verbAsk:
		event.Type = lease.Asked
		event.Asker, err = asker(verb, word[1])
	case verbBusy:
		event.Type = lease.InUse
	case verbChanged:
		event.Type = lease.Changed
	case verbTrace:
		event.Type = lease.Traced
		return event, parseTrace(&event, word[1], word[2])
	}
	return event, err
}

// asker is the owner that wants an answer.
func asker(verb, word string) (string, error) {
	if _, _, ok := lease.ParseOwner(word); !ok {
		return "", fmt.Errorf("%s: the asker %q is not an owner", verb, shorten(word))
	}
	return word, nil
}

// wordsOf is how many words a message has between its verb and its key; 0: the verb is not known.
func wordsOf(verb string) int {
	switch verb {
	case verbGrant:
		return 4
	case verbTrace:
		return 3
	case verbWant, verbAsk:
		return 2
	case verbBusy, verbChanged:
		return 1
	}
	return 0
}

func parseTrace(event *lease.Event, passing, trace string) error {
	if passing != "0" && passing != "1" {
		return fmt.Errorf("trace: passing is %q, not 0 or 1", shorten(passing))
	}
	if !lease.ValidTrace(trace) {
		return fmt.Errorf("trace: %q is no traceparent", shorten(trace))
	}
	event.Passing, event.Trace = passing == "1", trace
	return nil
}

func parseGrant(event *lease.Event, first, last, contended string) (err error) {
	if event.First, err = strconv.ParseUint(first, 10, 64); err == nil {
		event.Last, err = strconv.ParseUint(last, 10, 64)
	}
	// Both are written without zeros before them, and none is 0.
	if err != nil || first[0] == '0' || last[0] == '0' || event.Last < event.First {
		return fmt.Errorf("grant: the tokens %q to %q are none", shorten(first), shorten(last))
	}
	if contended != "0" && contended != "1" {
		return fmt.Errorf("grant: contended is %q, not 0 or 1", shorten(contended))
	}
	event.Contended = contended == "1"
	return nil
}

// ownTicket is the ticket of an owner, which must be one of ours.
func ownTicket(id, owner string) (lease.Ticket, error) {
	of, ticket, ok := lease.ParseOwner(owner)
	if !ok || of != id {
		return 0, fmt.Errorf("the owner %q is not of %s", shorten(owner), id)
	}
	return ticket, nil
}

// shorten keeps what somebody else wrote from filling the log.
func shorten(s string) string {
	const limit = 64
	if len(s) > limit {
		return s[:limit] + "..."
	}
	return s
}
