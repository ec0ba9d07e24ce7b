package telemetry_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
	"pgregory.net/rapid"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

func made(t *testing.T, conf telemetry.Config) *telemetry.Telemetry {
	t.Helper()
	tel, err := telemetry.New(conf, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(func() { tel.Close(time.Second) })
	return tel
}

func TestConfigFillsInItsDefaults(t *testing.T) {
	conf := made(t, telemetry.Config{}).Config()
	require.Equal(t, 10*time.Second, conf.HoldAlarm)
	require.Zero(t, conf.WaitAlarm)
	require.Equal(t, 1000, conf.Roots)
	conf = made(t, telemetry.Config{HoldAlarm: -1, WaitAlarm: -1, Roots: -5}).Config()
	require.Zero(t, conf.HoldAlarm)
	require.Zero(t, conf.WaitAlarm)
	require.Zero(t, conf.Roots)
	conf = made(t, telemetry.Config{HoldAlarm: 1, WaitAlarm: 2, Roots: 3}).Config()
	require.Equal(t, []any{time.Duration(1), time.Duration(2), 3}, []any{conf.HoldAlarm, conf.WaitAlarm, conf.Roots})
}

func TestConfigThatCanNotBeIsRefused(t *testing.T) {
	require.NoError(t, telemetry.Config{TraceURL: "http://x/{trace}"}.Validate())
	_, err := telemetry.New(telemetry.Config{TraceURL: "http://x/{span}"}, slog.Default())
	require.ErrorIs(t, err, telemetry.ErrConfig)
	require.ErrorContains(t, err, "{trace}")
}

func TestURLOfATrace(t *testing.T) {
	is := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{0xab}, SpanID: trace.SpanID{0xcd}})
	conf := telemetry.Config{TraceURL: "http://x/{trace}/{span}?again={trace}"}
	id := "ab" + strings.Repeat("0", 30)
	require.Equal(t, "http://x/"+id+"/cd"+strings.Repeat("0", 14)+"?again="+id, conf.URL(is))
	require.Empty(t, conf.URL(trace.SpanContext{}))
	require.Empty(t, telemetry.Config{}.URL(is))
}

// TestTracesAreReadAsTheyWereWritten, and stores take them.
func TestTracesAreReadAsTheyWereWritten(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		conf := trace.SpanContextConfig{TraceFlags: trace.TraceFlags(rapid.IntRange(0, 1).Draw(r, "sampled"))}
		copy(conf.TraceID[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(r, "trace"))
		copy(conf.SpanID[:], rapid.SliceOfN(rapid.Byte(), 8, 8).Draw(r, "span"))
		is := trace.NewSpanContext(conf)
		text := telemetry.FormatTrace(is)
		if !is.IsValid() {
			require.Empty(r, text)
			return
		}
		require.True(r, lease.ValidTrace(text), text)
		got := telemetry.ParseTrace(text)
		require.True(r, got.IsRemote())
		require.True(r, got.WithRemote(false).Equal(is))
	})
}

func TestWhatIsNoTraceGivesNone(t *testing.T) {
	require.Empty(t, telemetry.FormatTrace(trace.SpanContext{}))
	good := "00-" + strings.Repeat("a", 32) + "-" + strings.Repeat("b", 16) + "-01"
	require.True(t, telemetry.ParseTrace(good).IsValid())
	for _, text := range []string{
		"", "x", good[:54], "00-" + strings.Repeat("0", 32) + good[35:], strings.Replace(good, "b", "g", 1), strings.ToUpper(good),
	} {
		require.False(t, telemetry.ParseTrace(text).IsValid(), "%q", text)
	}
}

func TestWhichOutcomesAreErrors(t *testing.T) {
	failed := map[telemetry.Outcome]bool{
		telemetry.Timeout: true, telemetry.Refused: true, telemetry.Unavailable: true, telemetry.Lost: true, telemetry.Expired: true,
		telemetry.Uncertain: true,
	}
	for _, o := range []telemetry.Outcome{
		telemetry.Acquired, telemetry.Busy, telemetry.Timeout, telemetry.Canceled, telemetry.Refused, telemetry.Unavailable, telemetry.Closed,
		telemetry.Released, telemetry.Lost, telemetry.Expired, telemetry.SoldOut, telemetry.Done, telemetry.Repeated, telemetry.Limited,
		telemetry.Uncertain,
	} {
		require.Equal(t, failed[o], o.Failed(), o)
	}
}
