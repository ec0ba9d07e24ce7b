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
const programVariable = "LEASEHOLD_CACHEDREAD_PROGRAM"

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

// brief is what all runs here have in common: enough writes and expiries for a second.
var brief = []string{"-duration", "1s", "-clients", "16", "-keys", "10", "-writes", "20", "-expiry", "300ms", "-delay", "5ms"}

func TestOneRebuildAndNoStaleReadOnRedisServer(t *testing.T) {
	out, progress, err := cachedread(t, os.Environ(), append(brief, "-processes", "3")...)
	require.NoError(t, err, progress)
	require.Contains(t, progress, "redis-server")
	requireTable(t, out)
	require.NotContains(t, out, "not known")
	require.NotContains(t, cells(t, out, "writes"), "0")
	require.Equal(t, "0.0 %", cells(t, out, "reads out of memory")[0])
	require.NotEqual(t, "0.0 %", cells(t, out, "reads out of memory")[1])
}

func TestOneRebuildAndNoStaleReadOnMiniredis(t *testing.T) {
	environment := append(os.Environ(), "PATH="+t.TempDir())
	out, progress, err := cachedread(t, environment, append(brief, "-processes", "2")...)
	require.NoError(t, err, progress)
	require.Contains(t, progress, "miniredis")
	requireTable(t, out)
}

func TestOneProductAndOneClientWill(t *testing.T) {
	out, progress, err := cachedread(t, os.Environ(),
		"-duration", "300ms", "-keys", "1", "-clients", "1", "-processes", "1", "-writes", "0", "-delay", "0s")
	require.NoError(t, err, progress)
	requireTable(t, out)
}

func TestCachedreadSaysWhenThereIsNoRedis(t *testing.T) {
	_, progress, err := cachedread(t, os.Environ(), "-redis", "127.0.0.1:1")
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 1, exit.ExitCode())
	require.Contains(t, progress, "connect to 127.0.0.1:1")
}

func TestCachedreadRefusesBadFlags(t *testing.T) {
	_, progress, err := cachedread(t, os.Environ(), "-keys", "0")
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 2, exit.ExitCode())
	require.Contains(t, progress, "-keys must be")
}

// A Ctrl-C reaches the whole process group, as at a terminal: what was done is counted, and nobody stays.
func TestCtrlCEndsItCleanly(t *testing.T) {
	cmd := program(t, os.Environ(), append(brief, "-duration", "1h", "-processes", "2")...)
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
	require.Contains(t, out.String(), "stale reads")
	require.Eventually(t, func() bool {
		return errors.Is(syscall.Kill(-cmd.Process.Pid, 0), syscall.ESRCH)
	}, 20*time.Second, 5*time.Millisecond, "a server stayed behind")
}

func TestTeamTellsWhatAServerSaid(t *testing.T) {
	t.Setenv(programVariable, "1")
	_, err := startTeam(t.Context(), settings{processes: 1}, "127.0.0.1:1")
	require.ErrorContains(t, err, "connect to 127.0.0.1:1")
}

func cachedread(t *testing.T, environment []string, args ...string) (out, progress string, err error) {
	t.Helper()
	cmd := program(t, environment, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	return stdout.String(), stderr.String(), err
}

// requireTable wants a table of both rounds in which something happened, and the second was right.
func requireTable(t *testing.T, out string) {
	t.Helper()
	require.Equal(t, "0", cells(t, out, "stale reads")[1])
	require.Equal(t, "0", cells(t, out, "too many")[1])
	require.Equal(t, "1.00", cells(t, out, "rebuilds per expiry")[1])
	for _, name := range []string{"reads", "reads per second", "rebuilds", "Redis commands per read", "read p50", "read p99"} {
		require.NotContains(t, cells(t, out, name), "0", "%s in\n%s", name, out)
	}
}

// cells returns what a row of the table says of the two rounds.
func cells(t *testing.T, out, name string) []string {
	t.Helper()
	found := regexp.MustCompile(`(?m)^ *` + name + ` {2,}(.+?) {2,}(.+)$`).FindStringSubmatch(out)
	require.Len(t, found, 3, "%s in\n%s", name, out)
	return found[1:]
}
