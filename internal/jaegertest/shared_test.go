package jaegertest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/telemetry"
)

// Within a process it is no other: the waits of two requests lead to the holds of the requests before them.
func TestAWaitLeadsToTheHoldOfAnotherRequestOfItsService(t *testing.T) {
	t.Parallel()
	const key = "order:4711-of-Ada"
	j := startJaeger(t)
	checkout := startService(t, j, settings{Name: "checkout", Protocol: overGRPC, Prefix: redistest.Prefix(t)})

	checkout.serve(t, "first", asMutex, key, 0)
	firstHold, firstToken := checkout.holds(t, "first")
	second := checkout.serve(t, "second", asMutex, key, 0)
	checkout.waiters(t, key, "1")
	third := checkout.serve(t, "third", asMutex, key, 0)
	checkout.waiters(t, key, "2")
	checkout.finish("first")
	secondHold, secondToken := checkout.holds(t, "second")
	checkout.finish("second")
	_, thirdToken := checkout.holds(t, "third")
	checkout.finish("third")
	checkout.flush(t)

	trace := j.await(t, second.trace, 4)
	wait := trace.span(t, telemetry.SpanAcquire)
	require.NoError(t, childOf(wait, second))
	require.NoError(t, followsFrom(wait, firstHold))
	require.Equal(t, []string{toHolder}, j.linked(t, wait.is(), string(telemetry.AttrLink)))
	requireTags(t, wait, map[string]string{
		string(telemetry.AttrPath): string(telemetry.PathLocal), string(telemetry.AttrAhead): "0",
		string(telemetry.AttrHolder): "",
	})
	require.Contains(t, wait.events(), telemetry.EventQueued)
	require.NotContains(t, wait.events(), telemetry.EventLeaseAsked, "the lease was here")

	trace = j.await(t, third.trace, 4)
	wait = trace.span(t, telemetry.SpanAcquire)
	require.NoError(t, childOf(wait, third))
	require.NoError(t, followsFrom(wait, firstHold, secondHold))
	require.Equal(t, []string{toHolder, toPredecessor}, j.linked(t, wait.is(), string(telemetry.AttrLink)))
	require.Equal(t, "1", wait.tag(string(telemetry.AttrAhead)))

	require.Len(t, j.find(t, "checkout"), 3, "a trace for each request, and no other")
	requireHidden(t, j, []string{"checkout"}, key, firstToken, secondToken, thirdToken)
}

// A writer is led to the reader that kept it out, and a reader behind it to both.
func TestReadersAndWritersLeadToEachOther(t *testing.T) {
	t.Parallel()
	const key = "catalog:shoes-of-Ada"
	j, prefix := startJaeger(t), redistest.Prefix(t)
	shop := startService(t, j, settings{Name: "shop", Protocol: overHTTP, Prefix: prefix})
	editor := startService(t, j, settings{Name: "editor", Protocol: overGRPC, Prefix: prefix})
	search := startService(t, j, settings{Name: "search", Protocol: overHTTP, Prefix: prefix})

	browse := shop.serve(t, "browse", asReader, key, 0)
	browsing, browseToken := shop.holds(t, "browse")
	shop.told(t, key)
	edit := editor.serve(t, "edit", asWriter, key, 0)
	editor.waiters(t, key, "1")
	query := search.serve(t, "query", asReader, key, 0)
	search.waiters(t, key, "1")
	shop.finish("browse")
	editing, editToken := editor.holds(t, "edit")
	editor.finish("edit")
	_, queryToken := search.holds(t, "query")
	search.finish("query")
	for _, d := range []driver{shop, editor, search} {
		d.flush(t)
	}

	trace := j.await(t, browse.trace, 4)
	reading := trace.span(t, telemetry.SpanHold)
	require.Equal(t, browsing, reading.is())
	require.Equal(t, "shared", reading.tag(string(telemetry.AttrMode)))

	trace = j.await(t, edit.trace, 4)
	wait, writing := trace.span(t, telemetry.SpanAcquire), trace.span(t, telemetry.SpanHold)
	require.NoError(t, childOf(wait, edit))
	require.NoError(t, followsFrom(wait, browsing))
	require.NoError(t, overlap(reading, wait))
	require.Equal(t, "exclusive", wait.tag(string(telemetry.AttrMode)))
	require.Equal(t, editing, writing.is())
	require.Equal(t, "exclusive", writing.tag(string(telemetry.AttrMode)))

	trace = j.await(t, query.trace, 4)
	wait = trace.span(t, telemetry.SpanAcquire)
	require.NoError(t, childOf(wait, query))
	require.NoError(t, followsFrom(wait, browsing, editing))
	requireInTurn(t, j, wait.is())
	require.NoError(t, overlap(writing, wait))
	require.Equal(t, "shared", wait.tag(string(telemetry.AttrMode)))

	requireHidden(t, j, []string{"shop", "editor", "search"}, key, browseToken, editToken, queryToken)
}
