package jaegertest

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// driver tells a service process what to do.
type driver struct{ *faults.Child }

// startService starts a service that locks on the binary's shared server, below a prefix.
func startService(t *testing.T, j *jaeger, set settings) driver {
	t.Helper()
	set.Endpoint = j.otlp[set.Protocol]
	set.Redis = redistest.Shared(t).Addr()
	if set.TTL == 0 {
		set.TTL = 30 * time.Second // no wait ends, and nothing is renewed, within a test
	}
	text, err := json.Marshal(set)
	require.NoError(t, err)
	d := driver{faults.StartChild(t, "service", string(text))}
	d.Expect(t, "ready")
	return d
}

// serve has the service begin a request that locks a key, and returns the request's span. With a limit of 0 it
// waits until it has the lock.
func (d driver) serve(t *testing.T, request, mode, key string, limit time.Duration) spanID {
	t.Helper()
	d.Send(strings.Join([]string{"serve", request, mode, key, limit.String()}, " "))
	words := strings.Fields(d.Expect(t, "serving "+request))
	return spanID{words[0], words[1]}
}

// holds waits until a request holds its lock, and returns the span and the token of its hold.
func (d driver) holds(t *testing.T, request string) (hold spanID, token string) {
	t.Helper()
	words := strings.Fields(d.Expect(t, "holds "+request))
	return spanID{words[0], words[1]}, words[2]
}

// failed waits until a request's wait was in vain, and returns the name of the lease in its way.
func (d driver) failed(t *testing.T, request string) string {
	t.Helper()
	return d.Expect(t, "failed "+request)
}

// finish has a request unlock, and end.
func (d driver) finish(request string) { d.Send("finish " + request) }

// waiters waits until that many calls of the process wait for a key, and the process is in its queue.
func (d driver) waiters(t *testing.T, key, number string) {
	t.Helper()
	d.Send("waiters " + key + " " + number)
	d.Expect(t, "waits "+key)
}

// wanted waits until the process knows that another wants a key that it has.
func (d driver) wanted(t *testing.T, key string) {
	t.Helper()
	d.Send("wanted " + key)
	d.Expect(t, "wanted "+key)
}

// told waits until Redis knows the trace of who has the key.
func (d driver) told(t *testing.T, key string) {
	t.Helper()
	d.Send("told " + key)
	d.Expect(t, "known "+key)
}

// renewals waits until the process has renewed that often.
func (d driver) renewals(t *testing.T, number string) {
	t.Helper()
	d.Send("renewals " + number)
	d.Expect(t, "renewed")
}

// flush has everything that ended so far be in Jaeger.
func (d driver) flush(t *testing.T) {
	t.Helper()
	d.Send("flush")
	d.Expect(t, "flushed")
}
