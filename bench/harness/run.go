package harness

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/go-leasehold/leasehold/bench/contender"
	"github.com/go-leasehold/leasehold/bench/result"
)

// Scenario is a question, and how it is measured.
type Scenario struct {
	Name, Title, Question, Method string // as in result.Scenario
	Axis, Headline, Main          string //

	// Points are where it is measured.
	Points func(full bool) []Point
	// Enters tells who takes part at a point.
	Enters func(contender.Info, Point) bool
	// Delayed tells at which points it is measured with a network delay, too. nil: nowhere.
	Delayed func(Point) bool
	// Processes is how many a contender has at a point. nil: one.
	Processes func(Point) int
	// TTL is that of locks. Zero: the plan's.
	TTL time.Duration
	// Rounds is how many there are at most, and QuickRounds in a quick run. Zero: as many as the plan has.
	Rounds, QuickRounds int
	// Environment is set for its processes, as "name=value".
	Environment []string
	// Round measures once. It is called for one contender after the other, round by round.
	Round func(context.Context, *Cast) (result.Round, error)
}

// Progress is told what happens.
type Progress func(scenario string, point Point, delay time.Duration, contender string, round, rounds int)

// Run measures a scenario: at each point and with each delay, all contenders take turns in each round, in any order.
// What fails is told in the cell, and nobody else is hindered by it.
func (s *Stage) Run(ctx context.Context, scenario Scenario, contenders []contender.Info, progress Progress) (result.Scenario, error) {
	out := result.Scenario{
		Name: scenario.Name, Title: scenario.Title, Question: scenario.Question, Method: scenario.Method,
		Axis: scenario.Axis, Headline: scenario.Headline, Main: scenario.Main,
	}
	for _, point := range scenario.Points(s.Plan.Full) {
		if s.Plan.Only != nil && !s.Plan.Only(scenario.Name, point) {
			continue
		}
		for _, delay := range s.Plan.Delays {
			if delay > 0 && (scenario.Delayed == nil || !scenario.Delayed(point)) {
				continue
			}
			cells, err := s.point(ctx, scenario, point, delay, contenders, progress)
			out.Cells = append(out.Cells, cells...)
			if err != nil {
				return out, err
			}
		}
	}
	return out, nil
}

// entry is one contender at one point.
type entry struct {
	cast *Cast
	cell result.Cell
}

func (s *Stage) point(
	ctx context.Context, scenario Scenario, point Point, delay time.Duration, contenders []contender.Info, progress Progress,
) ([]result.Cell, error) {
	var entries []*entry
	defer func() {
		for _, e := range entries {
			_ = e.cast.end(context.WithoutCancel(ctx)) // what was measured is measured
		}
	}()
	for _, info := range contenders {
		if scenario.Enters(info, point) {
			entries = append(entries, s.enter(ctx, scenario, point, delay, info))
		}
	}
	rounds := s.Plan.Rounds
	if scenario.Rounds > 0 {
		rounds = min(rounds, scenario.Rounds)
	}
	if scenario.QuickRounds > 0 && !s.Plan.Full {
		rounds = min(rounds, scenario.QuickRounds)
	}
	for round := range rounds {
		for _, i := range rand.Perm(len(entries)) {
			if err := ctx.Err(); err != nil {
				return cellsOf(entries), err
			}
			e := entries[i]
			progress(scenario.Name, point, delay, e.cast.Contender.Name, round+1, rounds)
			e.measure(ctx, scenario, round)
		}
	}
	return cellsOf(entries), nil
}

// enter starts the processes of a contender. One that can't be started has a cell that says why.
func (s *Stage) enter(ctx context.Context, scenario Scenario, point Point, delay time.Duration, info contender.Info) *entry {
	ttl := scenario.TTL
	if ttl == 0 {
		ttl = s.Plan.TTL
	}
	e := &entry{
		cast: &Cast{Stage: s, Contender: info, Point: point, Delay: delay, TTL: ttl, scenario: scenario.Name, environment: scenario.Environment},
		cell: result.Cell{Contender: info.Name, Point: point.Label, X: point.X, Delay: delay},
	}
	processes := 1
	if scenario.Processes != nil {
		processes = scenario.Processes(point)
	}
	for range processes {
		if _, err := e.cast.Join(ctx); err != nil {
			e.fail(err.Error())
			return e
		}
	}
	if err := e.cast.rest(ctx); err != nil {
		e.fail(err.Error())
	}
	return e
}

// measure measures one round. A contender that failed once is not asked again.
func (e *entry) measure(ctx context.Context, scenario Scenario, round int) {
	if e.cell.Failure != "" {
		return
	}
	e.cast.round, e.cast.failed = round, ""
	e.cast.ClearGuard()
	measured, err := e.round(ctx, scenario)
	switch {
	case ctx.Err() != nil: // that is no fault of the contender's
	case err != nil:
		e.fail(fmt.Sprintf("round %d: %v", round+1, err))
	default:
		e.cell.Rounds = append(e.cell.Rounds, measured)
		e.cell.Error = cmp.Or(e.cell.Error, e.cast.failed)
	}
}

// round is one round, of processes that rest before and after it.
func (e *entry) round(ctx context.Context, scenario Scenario) (result.Round, error) {
	if err := e.cast.wake(); err != nil {
		return nil, err
	}
	measured, err := scenario.Round(ctx, e.cast)
	if err != nil {
		return nil, err
	}
	for name, value := range measured {
		if math.IsNaN(value) || math.IsInf(value, 0) {
			return nil, fmt.Errorf("%s is %v, which is no measurement", name, value)
		}
	}
	return measured, e.cast.rest(ctx)
}

// fail notes why there is nothing more of a contender, and ends it.
func (e *entry) fail(why string) {
	e.cell.Failure = why
	e.cast.kill()
}

func cellsOf(entries []*entry) []result.Cell {
	var cells []result.Cell
	for _, e := range entries {
		cells = append(cells, e.cell)
	}
	return cells
}
