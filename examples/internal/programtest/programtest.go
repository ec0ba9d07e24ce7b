//go:build unix

// Package programtest runs an example in its tests as a user runs it: in a process of its own, with arguments, a
// terminal's Ctrl-C and an exit code, and under the race detector if the tests are.
package programtest

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// Variable makes a test binary the program itself.
const Variable = "LEASEHOLD_EXAMPLE_PROGRAM"

// Main is for TestMain: it runs the program where the variable says so, and otherwise the tests.
func Main(m *testing.M, program func()) {
	if _, ok := os.LookupEnv(Variable); ok {
		program()
		return
	}
	goleak.VerifyTestMain(m)
}

// command returns what runs the program with these arguments.
func command(t *testing.T, environment []string, args ...string) *exec.Cmd {
	t.Helper()
	binary, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(binary, args...)
	// Each process of a race-detecting binary would linger for a second at its end.
	cmd.Env = append(environment, Variable+"=1", "GORACE=atexit_sleep_ms=10 "+os.Getenv("GORACE"))
	return cmd
}

// Run runs the program to its end, and returns what it wrote, on either output, and its exit code.
func Run(t *testing.T, environment []string, args ...string) (out, progress string, code int) {
	t.Helper()
	cmd := command(t, environment, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

// Interrupt runs the program until a line of its progress begins with moment, and then presses Ctrl-C, which reaches
// the whole process group, as at a terminal. It wants the program to end well, and none of its processes to stay
// behind, and returns what it wrote, of its progress what came after.
func Interrupt(t *testing.T, moment string, args ...string) (out, progress string) {
	t.Helper()
	cmd := command(t, os.Environ(), args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer cmd.Process.Kill() //nolint:errcheck // it has ended, unless the test has failed
	reader := bufio.NewReader(stderr)
	var before strings.Builder
	for line := ""; !strings.HasPrefix(line, moment); before.WriteString(line) {
		line, err = reader.ReadString('\n')
		require.NoError(t, err, "before %q there came\n%s%s", moment, before.String(), line)
	}
	require.NoError(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGINT))
	after, err := io.ReadAll(reader)
	require.NoError(t, err)
	require.NoError(t, cmd.Wait(), "%s%s", before.String(), after)
	require.Eventually(t, func() bool {
		return errors.Is(syscall.Kill(-cmd.Process.Pid, 0), syscall.ESRCH)
	}, 20*time.Second, 5*time.Millisecond, "a process stayed behind")
	return stdout.String(), string(after)
}
