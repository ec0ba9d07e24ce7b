package redislease

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
)

func TestMessagesAreRead(t *testing.T) {
	for message, want := range map[string]lease.Event{
		"grant a:7 10 19 1 k":         {Type: lease.Granted, Key: "k", Ticket: 7, First: 10, Last: 19, Contended: true},
		"grant a:7 10 10 0 k with ":   {Type: lease.Granted, Key: "k with ", Ticket: 7, First: 10, Last: 10},
		"want a:7 - \n":               {Type: lease.Wanted, Key: "\n", Ticket: 7},
		"want a:7 b:9 grant x":        {Type: lease.Wanted, Key: "grant x", Ticket: 7, Asker: "b:9"},
		"busy a:7 ":                   {Type: lease.InUse, Key: "", Ticket: 7},
		"changed a:7 k":               {Type: lease.Changed, Key: "k", Ticket: 7},
		"trace a:7 0 " + trace + " ":  {Type: lease.Traced, Key: "", Ticket: 7, Trace: trace},
		"trace a:7 1 " + trace + " k": {Type: lease.Traced, Key: "k", Ticket: 7, Trace: trace, Passing: true},
		"probe":                       {},
	} {
		event, err := parseMessage("a", message)
		require.NoError(t, err, message)
		require.Equal(t, want, event, message)
	}
}

func TestBadMessagesAreRefused(t *testing.T) {
	for _, message := range []string{
		"", " ", "grant", "grant a:7", "grant a:7 1 2 1", "grant b:7 1 2 1 k", "grant a:0 1 2 1 k", "grant a 1 2 1 k",
		"grant a:7 0 2 1 k", "grant a:7 01 2 1 k", "grant a:7 1 02 1 k", "grant a:07 1 2 1 k",
		"want a:7  k", "want a:7 nobody k", "want a:7 b:0 k", "ask a:7 - k", "ask a:7  k", "ask a:7 b: k",
		"grant a:7 3 2 1 k", "grant a:7 -1 2 1 k", "grant a:7 1 2 2 k", "grant a:7 1 2  k",
		"grant a:7 1 99999999999999999999 1 k", "want a:7 -", "want b:7 - k", "busy a:7", "changed", "probe k", "GRANT a:7 1 2 1 k",
		"trace", "trace a:7 0 " + trace, "trace b:7 0 " + trace + " k", "trace a:7 2 " + trace + " k", "trace a:7 - " + trace + " k", "trace a:7 0  k",
		"trace a:7 0 " + trace[:54] + " k", "trace a:7 0 " + trace + "0 k", "trace a:7 0 01" + trace[2:] + " k",
		"trace a:7 0 " + strings.ToUpper(trace) + " k", "trace a:7 0 " + strings.Repeat("x", 1000) + " k",
	} {
		event, err := parseMessage("a", message)
		require.Error(t, err, message)
		require.Less(t, len(err.Error()), 300)
		_ = event
	}
}

func TestPlacesAreRead(t *testing.T) {
	waiter, ok := parsePlace("R1500/64:host-1-a:7", "1796035063767638")
	require.True(t, ok)
	require.Equal(t, lease.Waiter{
		Owner: "host-1-a:7", Mode: lease.Shared, TTL: 1500 * time.Millisecond, Since: time.UnixMicro(1796035063767638),
	}, waiter)
	for _, member := range []string{"", "W", "W5/1", "W:a:1", "W0/1:a:1", "Wx/1:a:1", "W-5/1:a:1", "W5/:a:1", "W5:a:1", "W5/1:", "5/1:a:1", "WW5/1:a:1", "W+5/1:a:1"} {
		_, ok := parsePlace(member, "1")
		require.False(t, ok, member)
	}
}
