package main

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/bench/contender"
)

func TestMachineIsThisOne(t *testing.T) {
	m := machine("7.0.15")
	require.Equal(t, "7.0.15", m.Redis)
	require.Equal(t, runtime.NumCPU(), m.Cores)
	require.Equal(t, runtime.Version(), m.Go)
	require.NotEmpty(t, m.CPU)
	require.NotEmpty(t, m.Kernel)
	if runtime.GOOS == "linux" {
		require.Positive(t, m.MemoryG)
		require.NotEqual(t, runtime.GOOS, m.Kernel, "with its release")
	}
}

func TestFieldOfAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "info")
	require.NoError(t, os.WriteFile(path, []byte("no colon\nmodel name\t: one : two\nmodel name: other\nempty:\n"), 0o600))
	require.Equal(t, "one : two", field(path, "model name"), "the first, whole")
	require.Empty(t, field(path, "empty"))
	require.Empty(t, field(path, "model"), "names are compared whole")
	require.Empty(t, field(path+"-missing", "model name"))
}

// TestParticipantsHaveVersions: a reader of the report has to know which release of a peer was measured.
func TestParticipantsHaveVersions(t *testing.T) {
	for _, p := range participants(contender.All()) {
		require.NotEmpty(t, p.Version, p.Name)
		require.NotEmpty(t, p.About, p.Name)
		if p.Kind == string(contender.Peer) {
			require.Regexp(t, `^github\.com/\S+ v\d+\.\d+\.\d+`, p.Version, p.Name)
			require.NotEmpty(t, p.Settings, p.Name)
		}
	}
}
