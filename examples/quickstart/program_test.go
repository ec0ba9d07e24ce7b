//go:build unix

package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// programVariable makes this test binary the program itself: what a user runs, under the race detector.
const programVariable = "LEASEHOLD_QUICKSTART_PROGRAM"

func TestMain(m *testing.M) {
	if _, ok := os.LookupEnv(programVariable); ok {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// program returns the command that runs the program with these arguments.
func program(t *testing.T, environment []string, args ...string) *exec.Cmd {
	t.Helper()
	binary, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(binary, args...)
	// Each process of a race-detecting binary would linger for a second at its end.
	cmd.Env = append(environment, programVariable+"=1", "GORACE=atexit_sleep_ms=10 "+os.Getenv("GORACE"))
	return cmd
}

var exact = regexp.MustCompile(`(?m)^counter +([\d,]+) exact +([\d,]+) exact$`)

func TestQuickstartIsExactOnRedisServer(t *testing.T) {
	out, progress, err := quickstart(t, os.Environ(), "-duration", "700ms", "-processes", "3", "-goroutines", "20", "-keys", "10")
	require.NoError(t, err, progress)
	require.Contains(t, progress, "redis-server")
	requireTable(t, out, 3)
	require.NotContains(t, out, "not known")
}

func TestQuickstartIsExactOnMiniredis(t *testing.T) {
	environment := append(os.Environ(), "PATH="+t.TempDir())
	out, progress, err := quickstart(t, environment, "-duration", "700ms", "-processes", "2", "-goroutines", "10", "-keys", "5")
	require.NoError(t, err, progress)
	require.Contains(t, progress, "miniredis")
	requireTable(t, out, 2)
}

func TestQuickstartSaysWhenThereIsNoRedis(t *testing.T) {
	_, progress, err := quickstart(t, os.Environ(), "-redis", "127.0.0.1:1")
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 1, exit.ExitCode())
	require.Contains(t, progress, "connect to 127.0.0.1:1")
}

func TestQuickstartRefusesBadFlags(t *testing.T) {
	_, progress, err := quickstart(t, os.Environ(), "-keys", "0")
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 2, exit.ExitCode())
	require.Contains(t, progress, "-keys must be")
}

// A Ctrl-C reaches the whole process group, as at a terminal: the locks so far are counted, and nobody stays.
func TestCtrlCEndsItCleanly(t *testing.T) {
	cmd := program(t, os.Environ(), "-duration", "1h", "-processes", "2", "-goroutines", "10")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out bytes.Buffer
	cmd.Stdout = &out
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer cmd.Process.Kill() // it has ended, unless the test has failed
	lines := bufio.NewScanner(stderr)
	var progress strings.Builder
	for lines.Scan() {
		progress.WriteString(lines.Text() + "\n")
		if strings.HasPrefix(lines.Text(), "round 1") {
			break
		}
	}
	require.NoError(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGINT))
	rest, err := io.ReadAll(stderr)
	require.NoError(t, err)
	require.NoError(t, cmd.Wait(), "%s%s", progress.String(), rest)
	require.Contains(t, string(rest), "interrupted")
	require.Contains(t, out.String(), " exact")
	require.Eventually(t, func() bool {
		return errors.Is(syscall.Kill(-cmd.Process.Pid, 0), syscall.ESRCH)
	}, 20*time.Second, 5*time.Millisecond, "a worker stayed behind")
}

func quickstart(t *testing.T, environment []string, args ...string) (out, progress string, err error) {
	t.Helper()
	cmd := program(t, environment, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	return stdout.String(), stderr.String(), err
}

func requireTable(t *testing.T, out string, processes int) {
	t.Helper()
	counters := exact.FindStringSubmatch(out)
	require.Len(t, counters, 3, out)
	require.NotContains(t, counters[1:], "0")
	require.Equal(t, processes, strings.Count(out, "share of process"), out)
	for _, row := range []string{"locks per second", "Redis commands per lock", "wait p50", "wait p99"} {
		require.Contains(t, out, row)
	}
}
