package jaegertest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/telemetry"
)

// The names of the relations, as they stand in Jaeger.
const (
	toHolder      = string(telemetry.LinkHolder)
	toPredecessor = string(telemetry.LinkPredecessor)
)

// Whoever waits finds in its own trace whom it waited for: the very hold, in the trace of another service.
func TestAWaitLeadsToTheHoldOfAnotherService(t *testing.T) {
	t.Parallel()
	for _, over := range []struct{ name, checkout, billing string }{
		{"http to grpc", overHTTP, overGRPC},
		{"grpc to http", overGRPC, overHTTP},
	} {
		t.Run(over.name, func(t *testing.T) {
			t.Parallel()
			const key = "order:4711-of-Ada"
			j, prefix := startJaeger(t), redistest.Prefix(t)
			checkout := startService(t, j, settings{Name: "checkout", Protocol: over.checkout, Prefix: prefix})
			billing := startService(t, j, settings{Name: "billing", Protocol: over.billing, Prefix: prefix})

			order := checkout.serve(t, "order", asMutex, key, 0)
			ordering, orderToken := checkout.holds(t, "order")
			checkout.told(t, key)
			invoice := billing.serve(t, "invoice", asMutex, key, 0)
			billing.waiters(t, key, "1")
			checkout.wanted(t, key)
			checkout.finish("order")
			invoicing, invoiceToken := billing.holds(t, "invoice")
			billing.finish("invoice")
			checkout.flush(t)
			billing.flush(t)

			require.ElementsMatch(t, []string{"checkout", "billing"}, j.services(t))
			there, here := j.await(t, order.trace, 4), j.await(t, invoice.trace, 4)
			found := j.find(t, "billing", "operation", telemetry.SpanAcquire)
			require.Len(t, found, 1)
			require.Equal(t, invoice.trace, found[0].TraceID)

			blocking, wait := there.span(t, telemetry.SpanHold), here.span(t, telemetry.SpanAcquire)
			require.Equal(t, ordering, blocking.is(), "the span in the context of the hold")
			require.Equal(t, "checkout", blocking.service)
			require.Equal(t, "billing", wait.service)
			require.NoError(t, childOf(wait, invoice))
			require.NoError(t, followsFrom(wait, ordering))
			require.Error(t, followsFrom(wait, order), "not to the request, but to its hold")
			require.Error(t, followsFrom(wait, invoicing), "not to the waiter's own hold")
			require.Equal(t, []string{toHolder}, j.linked(t, wait.is(), string(telemetry.AttrLink)))
			require.NoError(t, overlap(blocking, wait))

			requireTags(t, wait, map[string]string{
				string(telemetry.AttrClass): "order", string(telemetry.AttrMode): "exclusive",
				string(telemetry.AttrPath): string(telemetry.PathHandoff), string(telemetry.AttrAhead): "0",
				string(telemetry.AttrOutcome): string(telemetry.Acquired), "error": "", "error.type": "",
				"otel.scope.name": telemetry.ScopeName, "otel.scope.version": telemetry.Version,
			})
			require.Subset(t, wait.events(), []string{telemetry.EventLeaseAsked, telemetry.EventDenied, telemetry.EventHandoff})
			require.Contains(t, blocking.events(), telemetry.EventWanted)
			requireTags(t, blocking, map[string]string{
				string(telemetry.AttrClass): "order", string(telemetry.AttrMode): "exclusive",
				string(telemetry.AttrOutcome): string(telemetry.Released), "error": "",
			})

			mine := here.span(t, telemetry.SpanHold)
			require.Equal(t, invoicing, mine.is())
			require.NoError(t, childOf(mine, invoice), "the hold is beside the wait, below the request")
			require.NoError(t, followsFrom(mine))
			require.LessOrEqual(t, wait.end(), mine.StartTime+1, "the hold begins as the wait ends; Jaeger's µs are rounded")
			work := here.span(t, "work")
			require.NoError(t, childOf(work, invoicing), "the work is below the hold")

			requireHidden(t, j, []string{"checkout", "billing"}, key, orderToken, invoiceToken)
		})
	}
}

// A wait that ends in vain is an error, and says who was in its way.
func TestAWaitInVainIsAnErrorThatLeadsToTheHold(t *testing.T) {
	t.Parallel()
	const key = "order:4711-of-Ada"
	j, prefix := startJaeger(t), redistest.Prefix(t)
	checkout := startService(t, j, settings{Name: "checkout", Protocol: overHTTP, Prefix: prefix})
	billing := startService(t, j, settings{Name: "billing", Protocol: overGRPC, Prefix: prefix})

	order := checkout.serve(t, "order", asMutex, key, 0)
	ordering, token := checkout.holds(t, "order")
	checkout.told(t, key)
	invoice := billing.serve(t, "invoice", asMutex, key, time.Second)
	holder := billing.failed(t, "invoice")
	require.NotEmpty(t, holder)
	checkout.finish("order")
	checkout.flush(t)
	billing.flush(t)

	there, here := j.await(t, order.trace, 4), j.await(t, invoice.trace, 2) // no hold, and no work
	found := j.find(t, "billing", "tags", `{"error.type":"timeout","leasehold.outcome":"timeout"}`)
	require.Len(t, found, 1, "as a person searches for waits in vain")
	require.Equal(t, invoice.trace, found[0].TraceID)
	require.Empty(t, j.find(t, "checkout", "tags", `{"error.type":"timeout"}`), "the holder did nothing wrong")

	wait := here.span(t, telemetry.SpanAcquire)
	require.NoError(t, childOf(wait, invoice))
	require.NoError(t, followsFrom(wait, ordering))
	require.Equal(t, []string{toHolder}, j.linked(t, wait.is(), string(telemetry.AttrLink)))
	require.NoError(t, overlap(there.span(t, telemetry.SpanHold), wait))
	requireTags(t, wait, map[string]string{
		"error": "true", "otel.status_code": "ERROR", "error.type": string(telemetry.Timeout),
		string(telemetry.AttrOutcome): string(telemetry.Timeout), string(telemetry.AttrHolder): holder,
		string(telemetry.AttrPath): "",
	})
	requireHidden(t, j, []string{"checkout", "billing"}, key, token)
}

// Who waits behind another waiter finds both: who had the lock when it came, and who had it just before.
func TestAWaitBehindAnotherLeadsToBothHolds(t *testing.T) {
	t.Parallel()
	const key = "order:4711-of-Ada"
	j, prefix := startJaeger(t), redistest.Prefix(t)
	checkout := startService(t, j, settings{Name: "checkout", Protocol: overHTTP, Prefix: prefix})
	billing := startService(t, j, settings{Name: "billing", Protocol: overGRPC, Prefix: prefix})
	shipping := startService(t, j, settings{Name: "shipping", Protocol: overGRPC, Prefix: prefix})

	checkout.serve(t, "order", asMutex, key, 0)
	ordering, _ := checkout.holds(t, "order")
	checkout.told(t, key)
	invoice := billing.serve(t, "invoice", asMutex, key, 0)
	billing.waiters(t, key, "1")
	parcel := shipping.serve(t, "parcel", asMutex, key, 0)
	shipping.waiters(t, key, "1")
	checkout.finish("order")
	invoicing, _ := billing.holds(t, "invoice")
	billing.finish("invoice")
	shipping.holds(t, "parcel")
	shipping.finish("parcel")
	for _, d := range []driver{checkout, billing, shipping} {
		d.flush(t)
	}

	second, third := j.await(t, invoice.trace, 4), j.await(t, parcel.trace, 4)
	require.NoError(t, followsFrom(second.span(t, telemetry.SpanAcquire), ordering))
	wait := third.span(t, telemetry.SpanAcquire)
	require.NoError(t, childOf(wait, parcel))
	require.NoError(t, followsFrom(wait, ordering, invoicing))
	requireInTurn(t, j, wait.is())
	require.NoError(t, overlap(second.span(t, telemetry.SpanHold), wait))
}

// Calls of programs that trace nothing else have traces of their own, which lead to each other all the same.
func TestAWaitWithoutARequestIsATraceOfItsOwn(t *testing.T) {
	t.Parallel()
	const key = "order:4711-of-Ada"
	j, prefix := startJaeger(t), redistest.Prefix(t)
	checkout := startService(t, j, settings{Name: "checkout", Protocol: overHTTP, Prefix: prefix, Bare: true})
	billing := startService(t, j, settings{Name: "billing", Protocol: overGRPC, Prefix: prefix, Bare: true})

	checkout.serve(t, "order", asMutex, key, 0)
	ordering, _ := checkout.holds(t, "order")
	checkout.told(t, key)
	billing.serve(t, "invoice", asMutex, key, 0)
	billing.waiters(t, key, "1")
	checkout.finish("order")
	invoicing, _ := billing.holds(t, "invoice")
	billing.finish("invoice")
	checkout.flush(t)
	billing.flush(t)

	there, here := j.await(t, ordering.trace, 3), j.await(t, invoicing.trace, 3)
	require.NotEqual(t, there.TraceID, here.TraceID)
	wait, hold := here.span(t, telemetry.SpanAcquire), here.span(t, telemetry.SpanHold)
	require.Len(t, wait.References, 1, "no parent")
	require.NoError(t, followsFrom(wait, ordering))
	require.NoError(t, childOf(hold, wait.is()), "where there is no request, the hold is below the wait")
	require.NoError(t, overlap(there.span(t, telemetry.SpanHold), wait))
}

// requireInTurn holds a wait elsewhere to what its two links are: the first leads to who had the lock, and so does the
// second, if that was told while it lasted, and not only when it was over.
func requireInTurn(t *testing.T, j *jaeger, wait spanID) {
	t.Helper()
	relations := j.linked(t, wait, string(telemetry.AttrLink))
	require.Len(t, relations, 2)
	require.Equal(t, toHolder, relations[0])
	require.Contains(t, []string{toHolder, toPredecessor}, relations[1])
}
