package lockz

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/telemetry"
)

// These hold docs/lockz.md and the package's documentation to the code.

func TestDocsHaveTheLimits(t *testing.T) {
	text, err := os.ReadFile("../../docs/lockz.md")
	require.NoError(t, err)
	page := string(text)
	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	for _, row := range []string{
		"| `q=` | |",
		fmt.Sprintf("| `limit=` | %d | keys shown, up to %d (in the trees %d),", defaultLimit, maxLimit, maxBranches),
		fmt.Sprintf("| `each=` | %d | holds and waiting calls shown of a key, up to %d;", defaultEach, maxEach),
		fmt.Sprintf("| `refresh=` | %d |", defaultRefresh),
		fmt.Sprintf("the page then stays for %d s at least |", fleetRefresh),
		fmt.Sprintf("that somebody waits for, %d at most, the longest waits first, and for a second at most.", maxAsked),
		fmt.Sprintf("Half of the\n%d are kept", maxAsked),
		fmt.Sprintf("which waits for %.1f s and then", checkPatience.Seconds()),
		fmt.Sprintf("more than %d bytes", maxKeyShown),
	} {
		shows(t, page, row, "docs/lockz.md")
	}
	for _, path := range []telemetry.Path{
		telemetry.PathRetained, telemetry.PathLocal, telemetry.PathRedis, telemetry.PathHandoff, telemetry.PathPassed,
	} {
		shows(t, page, "`"+string(path)+"`", "docs/lockz.md")
	}
	for _, line := range []string{
		fmt.Sprintf("limit=%d at most so many keys, up to %d", defaultLimit, maxLimit),
		fmt.Sprintf("each=%d at most so many holds and waiting calls of a key, up to %d", defaultEach, maxEach),
		fmt.Sprintf("refresh=%d seconds", defaultRefresh),
		fmt.Sprintf("waited for, %d at most", maxAsked),
	} {
		shows(t, strings.Join(strings.Fields(string(doc)), " "), line, "doc.go")
	}
}

// The form keeps what else was asked for.
func TestTheFormKeepsTheRest(t *testing.T) {
	onStage(t, func(t *testing.T, s *scene) {
		body := s.get("/?limit=7&each=3&refresh=9&fleet=1&q=x").Body.String()
		for name, value := range map[string]string{"limit": "7", "each": "3", "refresh": "9", "fleet": "1"} {
			shows(t, body, `<input type="hidden" name="`+name+`" value="`+value+`">`)
		}
		shows(t, body, `href="?each=3&amp;fleet=1&amp;format=json&amp;limit=7&amp;q=x&amp;refresh=9"`)
		showsNot(t, s.get("/").Body.String(), `type="hidden"`)
	})
}
