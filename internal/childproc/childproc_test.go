package childproc

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

const roleVariable = "CHILDPROC_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "wait":
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(3)
	case "stay": // whatever becomes of its parent and its input
		time.Sleep(time.Hour)
	case "parent": // starts a child, says its pid and dies without ending it
		child, err := Start(roleCommand("stay"))
		if err != nil {
			panic(err)
		}
		println(child.Pid())
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func roleCommand(role string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	return cmd
}

func TestStartFailsWhenThereIsNoProgram(t *testing.T) {
	_, err := Start(exec.Command("/does/not/exist"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestWaitTellsHowTheChildEnded(t *testing.T) {
	cmd := roleCommand("wait")
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	child, err := Start(cmd)
	require.NoError(t, err)
	require.NoError(t, stdin.Close())
	var exit *exec.ExitError
	require.ErrorAs(t, child.Wait(), &exit)
	require.Equal(t, 3, exit.ExitCode())
	require.NoError(t, child.Signal(os.Kill), "a child that has ended is no error")
	child.Kill()
}

func TestKillEndsAStoppedChild(t *testing.T) {
	cmd := roleCommand("wait")
	_, err := cmd.StdinPipe()
	require.NoError(t, err)
	child, err := Start(cmd)
	require.NoError(t, err)
	require.NoError(t, child.Stop())
	require.NoError(t, child.Stop(), "it is stopped already")
	require.NoError(t, child.Cont())
	require.NoError(t, child.Stop())
	child.Kill()
	require.NoError(t, child.Stop(), "a child that has ended is no error")
	require.Error(t, child.Wait())
}

func TestTailKeepsTheEnd(t *testing.T) {
	var tail Tail
	for range 3 {
		_, err := tail.Write([]byte(strings.Repeat("a", tailSize/2)))
		require.NoError(t, err)
	}
	_, err := tail.Write([]byte("end"))
	require.NoError(t, err)
	require.Len(t, tail.String(), tailSize)
	require.True(t, strings.HasSuffix(tail.String(), "aend"))
}
