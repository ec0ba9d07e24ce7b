package coordinator

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestReadmeHasTheDefaults compares the README's table of options with the code.
func TestReadmeHasTheDefaults(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	d := defaults()
	short := func(d time.Duration) string {
		for _, unit := range []struct {
			size time.Duration
			name string
		}{{time.Hour, " h"}, {time.Second, " s"}, {time.Millisecond, " ms"}} {
			if d%unit.size == 0 {
				return strconv.Itoa(int(d/unit.size)) + unit.name
			}
		}
		return d.String()
	}
	for option, value := range map[string]string{
		"WithTTL(d)":                 short(d.ttl),
		"WithRetention(d)":           short(d.retention),
		"WithHandoff(budget, slice)": strconv.Itoa(d.budget) + ", " + short(d.slice),
		"WithKeyPrefix(p)":           "`" + d.prefix + "`",
		"WithTokenRetention(d)":      short(d.tokenRetention),
		"WithUnavailableAfter(d)":    short(d.unavailableAfter),
		"WithMaxWaiters(n)":          strconv.Itoa(d.maxWaiters),
	} {
		_, row, found := strings.Cut(string(text), "| `"+option+"` | ")
		require.True(t, found, "README.md has no row for %s", option)
		shown, _, _ := strings.Cut(row, " |")
		require.Equal(t, value, shown, "README.md, %s", option)
	}
}
