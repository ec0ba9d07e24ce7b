package telemetry_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// FuzzClassNames: whatever a user's function makes of keys, a class has a name that can be told, there are not more of
// them than there may be, and the same name is the same class.
func FuzzClassNames(f *testing.F) {
	f.Add("order", 3)
	f.Add("", 1)
	f.Add("\xff\xfe", 2)
	f.Add(strings.Repeat("é", 40), 1)
	f.Add(strings.Repeat("x", 63)+"é", 1)
	f.Add(strings.Repeat("\xff", 64), 1)
	f.Add("other", 100)
	f.Add("panic", 1)
	f.Fuzz(func(t *testing.T, key string, more int) {
		of := func(key string) string {
			if key == "panic" {
				panic("no class")
			}
			return key
		}
		tel, err := telemetry.New(telemetry.Config{KeyClass: of, HoldAlarm: -1}, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		defer tel.Close(time.Minute)
		class := tel.Class(key)
		require.True(t, utf8.ValidString(class.Name()))
		require.LessOrEqual(t, len(class.Name()), telemetry.MaxClassName)
		require.NotEmpty(t, class.Name())
		require.Same(t, class, tel.Class(key))
		switch {
		case key == "" || key == "panic":
			require.Same(t, tel.Other(), class)
		case utf8.ValidString(key) && len(key) <= telemetry.MaxClassName:
			require.Equal(t, key, class.Name())
		case utf8.ValidString(key):
			require.True(t, strings.HasPrefix(key, class.Name()))
			require.Greater(t, len(class.Name()), telemetry.MaxClassName-utf8.UTFMax)
		}
		names := map[string]bool{}
		for i := range max(0, more%200) {
			names[tel.Class(strings.Repeat("n", i%90)+key).Name()] = true
		}
		require.LessOrEqual(t, len(names), telemetry.MaxClasses+1)
	})
}

// FuzzTraces: what leads to a span is what stores pass on as a trace, and is the trace that it says.
func FuzzTraces(f *testing.F) {
	const good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for _, s := range []string{good, "", "01" + good[2:], strings.ToUpper(good), good[:53] + "ff", good + "-x", "ff" + good[2:], good[:54]} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		span := telemetry.ParseTrace(s)
		if lease.ValidTrace(s) && s[53:] <= "03" { // OpenTelemetry knows no other flags
			require.True(t, span.IsValid(), "%q is passed on, and leads nowhere", s)
			require.Equal(t, s, telemetry.FormatTrace(span))
			require.Equal(t, s[3:35], span.TraceID().String())
			require.Equal(t, s[36:52], span.SpanID().String())
		}
		url := telemetry.Config{TraceURL: "http://x/{trace}/{span}"}.URL(span)
		require.Equal(t, span.HasTraceID(), url != "")
	})
}
