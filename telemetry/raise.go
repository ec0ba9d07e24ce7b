package telemetry

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Raise raises an alarm: a log line, a count, and the user's function. It does not
// block, and may be called anywhere but under a lock that the logger needs.
func (t *Telemetry) Raise(a Alarm) {
	a.TraceURL = t.conf.URL(a.Trace)
	attrs := []slog.Attr{
		slog.String("alarm", string(a.Kind)), slog.String("key", shown(a.Key)), slog.String("class", a.Class),
		slog.String("mode", a.Mode), slog.Time("since", a.Since), slog.Duration("lasted", a.Lasted), slog.Duration("limit", a.Limit),
	}
	text := func(name, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(name, value))
		}
	}
	text("owner", a.Owner)
	text("holder", a.Holder)
	if a.Token > 0 {
		attrs = append(attrs, slog.Uint64("token", a.Token))
	}
	attrs = append(attrs, slog.Int("waiters", a.Waiters), slog.Bool("wanted", a.Wanted))
	if a.Trace.HasTraceID() {
		text("trace_id", a.Trace.TraceID().String())
		text("span_id", a.Trace.SpanID().String())
	}
	text("trace_url", a.TraceURL)
	text("locked_at", a.Stack)
	t.log.LogAttrs(context.Background(), slog.LevelWarn, "leasehold: "+a.Kind.sentence(), attrs...)
	t.soon.put(func() { t.alarmed(a.Class, a.Kind, 1) })
	if t.conf.OnAlarm != nil {
		t.raised.put(func() { t.conf.OnAlarm(a) })
	}
}

// alarmed counts alarms.
func (t *Telemetry) alarmed(class string, k AlarmKind, n int64) {
	defer func() { _ = recover() }()
	t.alarms.Add(context.Background(), n, metric.WithAttributeSet(attribute.NewSet(AttrClass.String(class), AttrAlarm.String(string(k)))))
}

// sentence is what a log line says of the alarm.
func (k AlarmKind) sentence() string {
	switch k {
	case LongHold:
		return "a lock has been held for long"
	case LongWait:
		return "a lock has been waited for for long"
	case LateRenewal:
		return "a lease was renewed late"
	}
	return string(k)
}
