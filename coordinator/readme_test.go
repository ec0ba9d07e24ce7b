package coordinator_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReadme: the code that the README shows first is that of the example, which
// runs.
func TestReadme(t *testing.T) {
	source, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	require.Contains(t, string(source), "\n"+block(t, "README.md", "go")+"\n",
		"the first Go block of README.md is not in coordinator/example_test.go word for word")
}

// TestTestingPage: the same for docs/testing.md.
func TestTestingPage(t *testing.T) {
	source, err := os.ReadFile("docs_example_test.go")
	require.NoError(t, err)
	require.Contains(t, string(source), "\n"+block(t, "docs/testing.md", "go"),
		"the first Go block of docs/testing.md is not in coordinator/docs_example_test.go word for word")
}
