package childproc

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A parent that is killed takes its child with it, though nobody told the child anything.
func TestChildDiesWithItsParent(t *testing.T) {
	cmd := roleCommand("parent")
	_, err := cmd.StdinPipe()
	require.NoError(t, err)
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stderr = writer
	parent, err := Start(cmd)
	require.NoError(t, err)
	require.NoError(t, writer.Close())
	line, err := bufio.NewReader(reader).ReadString('\n')
	require.NoError(t, err)
	grandchild, err := strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err)
	require.True(t, alive(grandchild))
	parent.Kill()
	require.Eventually(t, func() bool { return !alive(grandchild) }, 20*time.Second, 5*time.Millisecond)
	require.NoError(t, reader.Close())
}

// alive tells whether pid runs; a zombie nobody has collected yet does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, ok := strings.Cut(string(stat), ") ")
	return ok && !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}
