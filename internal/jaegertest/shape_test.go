package jaegertest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Spans made by hand show what Jaeger makes of a link, an event and an error, and that the checks of the other tests
// refuse what is not so.
func TestJaegerShowsALinkAsFollowsFrom(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{overGRPC, overHTTP} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			j := startJaeger(t)
			hold, request, wait := makeByHand(t, j, protocol)

			require.Equal(t, []string{"by hand"}, j.services(t))
			there := j.await(t, hold.trace, 1)
			here := j.await(t, wait.trace, 2)
			holding, waiting := there.span(t, "holding"), here.span(t, "waiting")
			require.Equal(t, hold, holding.is())
			require.Equal(t, wait, waiting.is())
			require.Equal(t, "by hand", waiting.service)

			require.NoError(t, childOf(waiting, request))
			require.NoError(t, followsFrom(waiting, hold))
			require.NoError(t, overlap(holding, waiting))
			require.Equal(t, "true", waiting.tag("error"))
			require.Equal(t, "ERROR", waiting.tag("otel.status_code"))
			require.Equal(t, "why", waiting.tag("otel.status_description"))
			require.Equal(t, "7", waiting.tag("number"))
			require.Equal(t, []string{"happened"}, waiting.events())
			require.Equal(t, "yes", text(waiting.Logs[0].Fields, "really"))

			require.Error(t, childOf(waiting, hold), "a link is no parent")
			require.Error(t, followsFrom(waiting, request), "a parent is no link")
			require.Error(t, followsFrom(waiting), "a link that should not be there")
			require.Error(t, followsFrom(waiting, hold, hold), "a link that is not there twice")
			require.Error(t, followsFrom(waiting, spanID{wait.trace, hold.span}), "the right span in the wrong trace")
			require.Error(t, followsFrom(waiting, spanID{hold.trace, wait.span}), "the wrong span in the right trace")
			require.Error(t, followsFrom(holding, hold), "no link at all")
			holding.Duration = waiting.StartTime - holding.StartTime
			require.Error(t, overlap(holding, waiting), "a hold that ended as the wait began")
			require.Empty(t, waiting.tag("not there"))
			require.Equal(t, []string{"holder"}, j.linked(t, wait, "relation"))
			require.Equal(t, []string{""}, j.linked(t, wait, "not there"))
			require.Empty(t, j.linked(t, request, "relation"))
		})
	}
}

// makeByHand has Jaeger know a hold in a trace of its own, and in another a request with a wait that is linked to it.
func makeByHand(t *testing.T, j *jaeger, protocol string) (hold, request, wait spanID) {
	t.Helper()
	provider, err := newProvider(t.Context(), "by hand", protocol, j.otlp[protocol])
	require.NoError(t, err)
	tracer := provider.Tracer("by hand")
	_, holding := tracer.Start(context.Background(), "holding")
	ctx, requesting := tracer.Start(context.Background(), "requesting")
	_, waiting := tracer.Start(ctx, "waiting",
		trace.WithLinks(trace.Link{SpanContext: holding.SpanContext(), Attributes: []attribute.KeyValue{attribute.String("relation", "holder")}}))
	waiting.AddEvent("happened", trace.WithAttributes(attribute.String("really", "yes")))
	waiting.SetAttributes(attribute.Int("number", 7))
	waiting.SetStatus(codes.Error, "why")
	holding.End()
	waiting.End()
	requesting.End()
	require.NoError(t, provider.ForceFlush(t.Context()))
	require.NoError(t, provider.Shutdown(t.Context()))
	return idOf(holding), idOf(requesting), idOf(waiting)
}

func idOf(span trace.Span) spanID {
	is := span.SpanContext()
	return spanID{is.TraceID().String(), is.SpanID().String()}
}
