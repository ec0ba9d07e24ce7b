package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/go-leasehold/leasehold/bench/harness"
	"github.com/go-leasehold/leasehold/bench/render"
	"github.com/go-leasehold/leasehold/bench/result"
	"github.com/go-leasehold/leasehold/bench/scenario"
)

func main() {
	if harness.IsChild() {
		exit(harness.Child(scenario.Services()))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = run(ctx, o, os.Stdout)
	}
	exit(err)
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// run does what was asked for.
func run(ctx context.Context, o options, output io.Writer) error {
	if o.list {
		list(o, output)
		return nil
	}
	if o.pages {
		return fill(filepath.Join("report", "full", render.JSONFile), pages)
	}
	if o.out != "" {
		if err := render.Ready(o.out, names(o.scenarios)...); err != nil {
			return fmt.Errorf("report: %w", err)
		}
	}
	report, err := measure(ctx, o)
	if err != nil && len(report.Scenarios) == 0 {
		return err
	}
	if err != nil {
		o.out = "" // half a report does not take the place of a whole one
	}
	return errors.Join(err, tell(o, report, output)) // what was measured until then is told
}

// list tells what there is to choose from.
func list(o options, output io.Writer) {
	for _, s := range o.scenarios {
		fmt.Fprintf(output, "%-14s %s\n", s.Name, s.Question)
	}
	fmt.Fprintln(output)
	for _, info := range o.contenders {
		fmt.Fprintf(output, "%-24s %s\n", info.Name, info.About)
	}
}

// measure runs the scenarios, one after the other.
func measure(ctx context.Context, o options) (report result.Report, err error) {
	server, err := open(o.redis)
	if err != nil {
		return report, err
	}
	stage, err := harness.NewStage(server, o.plan)
	if err != nil {
		server.Close()
		return report, err
	}
	defer func() { err = errors.Join(err, stage.Close()) }()
	report = result.Report{
		Started: time.Now().UTC().Truncate(time.Second), Command: command(os.Args[1:]), Size: size(o), Rounds: o.plan.Rounds, RoundFor: o.plan.For,
		Machine: machine(server.Version), Contenders: participants(o.contenders),
	}
	began := time.Now()
	progress := newProgress(o)
	defer progress.Done()
	for _, s := range o.scenarios {
		measured, err := stage.Run(ctx, s, o.contenders, progress.Step)
		report.Took = time.Since(began)
		if len(measured.Cells) > 0 {
			report.Scenarios = append(report.Scenarios, measured)
		}
		if err != nil {
			return report, fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	return report, nil
}

// open returns the server to measure.
func open(addr string) (*harness.Server, error) {
	if addr == "" {
		return harness.StartServer()
	}
	return harness.ConnectServer(addr)
}

func names(scenarios []harness.Scenario) []string {
	var all []string
	for _, s := range scenarios {
		all = append(all, s.Name)
	}
	return all
}

// command is what was typed, without the program's path, and without where the report goes.
func command(args []string) string {
	text := "go run ."
	for i := 0; i < len(args); i++ {
		if name := strings.TrimLeft(args[i], "-"); name == "out" {
			i++
			continue
		} else if strings.HasPrefix(name, "out=") {
			continue
		}
		text += " " + args[i]
	}
	return text
}

func size(o options) string {
	switch {
	case o.check:
		return "check"
	case o.plan.Full:
		return "full"
	}
	return "quick"
}
