package faults

import (
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestChildHearsAndAnswers(t *testing.T) {
	t.Parallel()
	c := StartChild(t, "echo", "one", "-two")
	require.Equal(t, "[one -two]", c.Expect(t, "ready"))
	c.Send("first")
	c.Send("second")
	require.Equal(t, "cond", c.Expect(t, "heard se"), "lines before it are passed over")
	c.CloseInput()
	c.Expect(t, "input ended")
	require.NoError(t, c.Wait())
}

func TestStoppedChildSaysNothingUntilItGoesOn(t *testing.T) {
	t.Parallel()
	c := StartChild(t, "echo")
	c.Expect(t, "ready")
	c.Stop()
	c.Send("hello")
	_, err := c.await(50*time.Millisecond, "heard")
	require.ErrorContains(t, err, "did not say")
	c.Cont()
	require.Equal(t, "hello", c.Expect(t, "heard"))
}

func TestKilledChildIsGone(t *testing.T) {
	t.Parallel()
	c := StartChild(t, "echo")
	c.Expect(t, "ready")
	c.Stop()
	c.Kill()
	<-c.Done()
	require.Error(t, c.Wait())
	_, err := c.await(ExpectLimit, "heard")
	require.ErrorContains(t, err, "signal: killed")
	c.Send("nobody hears it")
}

func TestChildThatFailsTellsHow(t *testing.T) {
	t.Parallel()
	for role, code := range map[string]int{"fail": 4, "no such role": 2} {
		c := StartChild(t, role)
		var exit *exec.ExitError
		require.ErrorAs(t, c.Wait(), &exit)
		require.Equal(t, code, exit.ExitCode(), role)
		require.NotEmpty(t, c.stderr.String())
	}
}
