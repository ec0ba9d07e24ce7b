//go:build unix

package program_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/examples/internal/program"
	"github.com/go-leasehold/leasehold/examples/internal/programtest"
)

func TestMain(m *testing.M) {
	programtest.Main(m, func() { os.Exit(program.Main("sample", parse, run)) })
}

// settings of a program that waits for its end, or fails.
type settings struct {
	wait bool
	fail string
}

func parse(args []string, out io.Writer) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("sample", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.BoolVar(&s.wait, "wait", false, "wait for a Ctrl-C")
	flags.StringVar(&s.fail, "fail", "", "how to fail")
	err := program.Parse(flags, args, func() error {
		if s.wait && s.fail != "" {
			return errors.New("-wait or -fail")
		}
		return nil
	})
	return s, err
}

func run(ctx context.Context, s settings, out, progress io.Writer) error {
	fmt.Fprintln(progress, "running")
	if s.fail != "" {
		return errors.New(s.fail)
	}
	if s.wait {
		<-ctx.Done()
		fmt.Fprintln(progress, "interrupted")
	}
	fmt.Fprintln(out, "done")
	return nil
}

func TestExitCodes(t *testing.T) {
	for _, test := range []struct {
		args          []string
		out, progress string
		code          int
	}{
		{nil, "done\n", "running\n", 0},
		{[]string{"-fail", "no luck today"}, "", "running\nsample: no luck today\n", 1},
		{[]string{"-fail", "x", "-wait"}, "", "sample: -wait or -fail\n", 2},
		{[]string{"surplus"}, "", "sample: unexpected argument \"surplus\"\n", 2},
	} {
		out, progress, code := programtest.Run(t, os.Environ(), test.args...)
		require.Equal(t, test.out, out)
		require.Equal(t, test.progress, progress)
		require.Equal(t, test.code, code)
	}
	_, progress, code := programtest.Run(t, os.Environ(), "-nothing-of-that-name")
	require.Contains(t, progress, "not defined")
	require.Equal(t, 2, code)
	_, progress, code = programtest.Run(t, os.Environ(), "-h")
	require.Contains(t, progress, "wait for a Ctrl-C")
	require.Zero(t, code)
}

func TestCtrlCEndsTheContext(t *testing.T) {
	out, progress := programtest.Interrupt(t, "running", "-wait")
	require.Equal(t, "done\n", out)
	require.Equal(t, "interrupted\n", progress)
}
