package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-leasehold/leasehold/bench/contender"
	"github.com/go-leasehold/leasehold/bench/harness"
	"github.com/go-leasehold/leasehold/bench/scenario"
)

// options are what was asked for.
type options struct {
	scenarios  []harness.Scenario
	contenders []contender.Info
	redis      string // host:port; empty: a server of our own
	plan       harness.Plan
	out        string // directory of the report; empty: none
	list       bool
	check      bool
	pages      bool
}

const usage = `bench measures leasehold beside other locks, and beside what memory and Redis allow, in one run.

  go run .                                 a quick look, under three minutes
  go run . -full                           everything, with network delays: about forty minutes
  go run . -scenario hot,handoff -contender leasehold,rueidislock -rtt 0,1
  go run . -list                           what there is to choose from
  go run . -pages                          puts the numbers of report/full into docs/performance.md and README.md
  go run . -check                          fails where leasehold has become slower than its floors

`

const (
	maxRounds    = 1000
	maxRoundTrip = 10 * time.Second
	minFor       = 10 * time.Millisecond
	maxFor       = time.Minute
)

// parse reads the arguments of the program.
func parse(args []string, output io.Writer) (options, error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(output)
	flags.Usage = func() {
		fmt.Fprint(output, usage)
		flags.PrintDefaults()
	}
	scenarios := flags.String("scenario", "", "scenarios, with commas; all if empty")
	contenders := flags.String("contender", "", "contenders, with commas; all if empty")
	redis := flags.String("redis", "", "`host:port` of a server that runs already, which is neither flushed nor stopped; one of our own if empty")
	delays := flags.String("rtt", "", "network delay added to each round trip, in milliseconds, with commas: 0,0.2,1,5")
	full := flags.Bool("full", false, "measure at all points, with all delays, and longer")
	rounds := flags.Int("rounds", 0, "rounds of each measurement")
	length := flags.Duration("for", 0, "how long a round is measured")
	out := flags.String("out", "", "directory for the report; report/quick or report/full if empty, - for none")
	list := flags.Bool("list", false, "list scenarios and contenders")
	check := flags.Bool("check", false, "measure four ratios, and fail where one is below its floor")
	pages := flags.Bool("pages", false, "make the tables of docs/performance.md and README.md from report/full, and measure nothing")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	if flags.NArg() > 0 {
		return options{}, fmt.Errorf("%q is no flag: what to measure is said by -scenario", flags.Arg(0))
	}
	o := options{redis: *redis, plan: harness.Quick, out: *out, list: *list, check: *check, pages: *pages}
	switch {
	case *full && *check:
		return options{}, errors.New("-full and -check are two different runs: choose one")
	case *full:
		o.plan = harness.Full
	case *check:
		o.plan = harness.Check
	}
	if err := o.choose(*scenarios, *contenders, *delays); err != nil {
		return options{}, err
	}
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if err := errors.Join(o.lengths(given, *rounds, *length), o.server(given)); err != nil {
		return options{}, err
	}
	o.out = directory(o, given["scenario"] || given["contender"])
	return o, nil
}

// choose sets what is measured, from lists with commas.
func (o *options) choose(scenarios, contenders, delays string) (err error) {
	if o.check {
		scenarios = cmp.Or(scenarios, "hot,processes,handoff,stock")
		contenders = cmp.Or(contenders, "leasehold,semaphore,ping,pipeline")
		o.plan.Only = func(scenario string, point harness.Point) bool { return checked[scenario] == point.Label }
	}
	if o.scenarios, err = scenario.Choose(split(scenarios)); err != nil {
		return err
	}
	if o.contenders, err = chosen(split(contenders)); err != nil {
		return err
	}
	if delays != "" {
		o.plan.Delays, err = milliseconds(split(delays))
	}
	return err
}

// checked are the points that have floors.
var checked = map[string]string{"hot": "64", "processes": "4", "handoff": "1", "stock": "with IDs"}

// lengths sets how much is measured, where that was asked for.
func (o *options) lengths(given map[string]bool, rounds int, length time.Duration) error {
	if given["rounds"] {
		if rounds < 1 || rounds > maxRounds {
			return fmt.Errorf("-rounds %d: from 1 to %d", rounds, maxRounds)
		}
		o.plan.Rounds = rounds
	}
	if given["for"] {
		if length < minFor || length > maxFor {
			return fmt.Errorf("-for %v: from %v to %v", length, minFor, maxFor)
		}
		o.plan.For = length
	}
	return nil
}

// server looks whether the server's address is one.
func (o *options) server(given map[string]bool) error {
	if !given["redis"] {
		return nil
	}
	if host, port, err := net.SplitHostPort(o.redis); err != nil || host == "" || port == "" {
		return fmt.Errorf("-redis %q: it has to be host:port", o.redis)
	}
	return nil
}

// directory is where the report goes.
func directory(o options, some bool) string {
	switch {
	case o.out == "-":
		return ""
	case o.out != "":
		return o.out
	case o.check:
		return ""
	case o.plan.Full && some:
		return filepath.Join("report", "partial") // what has not all in it does not take the place of what has
	case o.plan.Full:
		return filepath.Join("report", "full")
	}
	return filepath.Join("report", "quick")
}

func split(list string) []string {
	return slices.DeleteFunc(strings.Split(list, ","), func(s string) bool { return s == "" })
}

// chosen returns the contenders of names. None is all.
func chosen(names []string) ([]contender.Info, error) {
	if len(names) == 0 {
		return contender.All(), nil
	}
	for _, name := range names {
		if _, err := contender.Find(name); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(contender.All(), func(info contender.Info) bool {
		return !slices.Contains(names, info.Name)
	}), nil
}

func milliseconds(list []string) ([]time.Duration, error) {
	most := maxRoundTrip.Milliseconds()
	if len(list) == 0 {
		return nil, fmt.Errorf("-rtt names no number of milliseconds from 0 to %d", most)
	}
	var all []time.Duration
	for _, text := range list {
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || !(n >= 0 && n <= float64(most)) { // NaN is neither
			return nil, fmt.Errorf("-rtt %s: %q is no number of milliseconds from 0 to %d", strings.Join(list, ","), text, most)
		}
		all = append(all, time.Duration(n*float64(time.Millisecond)))
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}
