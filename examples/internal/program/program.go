// Package program is what every example does with its command line and with a Ctrl-C.
package program

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Main parses the arguments, runs the program and returns its exit code: 0, 1 when it has failed, 2 when the
// arguments make no sense. The program's context ends with the first Ctrl-C; a second one ends it the hard way.
func Main[S any](
	name string,
	parse func(args []string, out io.Writer) (S, error),
	run func(ctx context.Context, settings S, out, progress io.Writer) error,
) int {
	s, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		return 2 // parse has said why
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	if err := run(ctx, s, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return 1
	}
	return 0
}

// Parse reads the flags, refuses what is no flag and what check refuses, and says why.
func Parse(flags *flag.FlagSet, args []string, check func() error) error {
	if err := flags.Parse(args); err != nil {
		return err // it has been said
	}
	err := check()
	if flags.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if err != nil {
		fmt.Fprintf(flags.Output(), "%s: %v\n", flags.Name(), err)
	}
	return err
}
