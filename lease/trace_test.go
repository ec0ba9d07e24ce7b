package lease_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
)

// trace is the example of the Recommendation.
const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func TestValidTrace(t *testing.T) {
	for _, good := range []string{
		trace, trace[:53] + "00", trace[:53] + "ff",
		"00-" + strings.Repeat("0", 31) + "1-" + strings.Repeat("0", 15) + "1-00",
	} {
		require.True(t, lease.ValidTrace(good), good)
	}
	for _, bad := range []string{
		"", "00", trace[:54], trace + "0", trace + "-", " " + trace[1:], strings.ToUpper(trace), "01" + trace[2:], "ff" + trace[2:], "0" + trace,
		"00-" + strings.Repeat("0", 32) + trace[35:], trace[:36] + strings.Repeat("0", 16) + trace[52:], strings.ReplaceAll(trace, "-", "_"),
		trace[:54] + "g", trace[:54] + "\n", trace[:54] + "/", trace[:54] + ":", trace[:54] + "`", strings.Repeat("-", 55), strings.Repeat("é", 28)[:55],
	} {
		require.False(t, lease.ValidTrace(bad), bad)
	}
	for i := range trace { // each place counts
		require.False(t, lease.ValidTrace(trace[:i]+"x"+trace[i+1:]), i)
	}
}

func FuzzValidTrace(f *testing.F) {
	form := regexp.MustCompile(`\A00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}\z`)
	f.Add(trace)
	f.Add(strings.ToUpper(trace))
	f.Add("00-" + strings.Repeat("0", 32) + trace[35:])
	f.Fuzz(func(t *testing.T, s string) {
		want := form.MatchString(s) && s[3:35] != strings.Repeat("0", 32) && s[36:52] != strings.Repeat("0", 16)
		require.Equal(t, want, lease.ValidTrace(s))
	})
}
