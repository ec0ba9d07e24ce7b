package jaegertest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/telemetry"
)

// A lease that is renewed for long, and looked at by who waits, makes not one span more.
func TestRenewalsAndLooksMakeNoSpans(t *testing.T) {
	t.Parallel()
	const key = "order:4711-of-Ada"
	j, prefix := startJaeger(t), redistest.Prefix(t)
	set := settings{Protocol: overGRPC, Prefix: prefix, TTL: 1500 * time.Millisecond} // renewed, and looked at, every 500 ms
	set.Name = "checkout"
	checkout := startService(t, j, set)
	set.Name = "billing"
	billing := startService(t, j, set)

	order := checkout.serve(t, "order", asMutex, key, 0)
	checkout.holds(t, "order")
	invoice := billing.serve(t, "invoice", asMutex, key, 0)
	billing.waiters(t, key, "1")
	checkout.renewals(t, "5")
	checkout.finish("order")
	billing.holds(t, "invoice")
	billing.finish("invoice")
	checkout.flush(t)
	billing.flush(t)

	for service, request := range map[string]spanID{"checkout": order, "billing": invoice} {
		found := j.find(t, service)
		require.Len(t, found, 1, "%s: the request's trace, and no other", service)
		require.Equal(t, request.trace, found[0].TraceID)
		trace := j.await(t, request.trace, 4)
		require.Subset(t, trace.operations(), []string{telemetry.SpanAcquire, telemetry.SpanHold, "work"})
	}
}

// A key and its tokens are in traces where that was asked for.
func TestKeysAndTokensAreShownWhereAskedFor(t *testing.T) {
	t.Parallel()
	const key = "order:4711-of-Ada"
	j := startJaeger(t)
	checkout := startService(t, j, settings{
		Name: "checkout", Protocol: overHTTP, Prefix: redistest.Prefix(t), KeyAttribute: true,
	})
	request := checkout.serve(t, "order", asMutex, key, 0)
	_, token := checkout.holds(t, "order")
	checkout.finish("order")
	checkout.flush(t)

	trace := j.await(t, request.trace, 4)
	requireTags(t, trace.span(t, telemetry.SpanHold), map[string]string{
		string(telemetry.AttrKey): key, string(telemetry.AttrToken): token, string(telemetry.AttrClass): "order",
	})
	require.Equal(t, key, trace.span(t, telemetry.SpanAcquire).tag(string(telemetry.AttrKey)))
	require.Len(t, j.find(t, "checkout", "tags", `{"leasehold.key":"`+key+`"}`), 1, "as a person searches for a key")

	require.Error(t, hidden(j.texts(t, "checkout"), key), "what looks for keys finds them")
	require.Error(t, hidden(j.texts(t, "checkout"), token), "what looks for tokens finds them")
	require.NoError(t, hidden(j.texts(t, "checkout"), key+"!", token+"0"))
}
