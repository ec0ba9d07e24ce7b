package coordinator

import (
	"context"
	"errors"

	"github.com/go-leasehold/leasehold/telemetry"
)

// path is how a hold was granted, in a byte.
type path uint8

const (
	byHandOver path = iota
	byRetention
	byPassing
	byAsking
	byHandoff
)

// name is what telemetry calls it.
func (p path) name() telemetry.Path {
	return [...]telemetry.Path{
		byHandOver: telemetry.PathLocal, byRetention: telemetry.PathRetained, byPassing: telemetry.PathPassed,
		byAsking: telemetry.PathRedis, byHandoff: telemetry.PathHandoff,
	}[p]
}

// path is how the lease serves the next of those that wait.
func (a *actor) path() path {
	switch t := &a.cur; {
	case t.served > 0:
		return byHandOver
	case t.byMessage:
		return byHandoff
	}
	return byAsking
}

// granted counts a grant.
func (s *Stats) granted(by path) {
	s.Grants++
	switch by {
	case byRetention:
		s.Retained++
	case byAsking:
		s.Asked++
	case byHandoff:
		s.Handed++
	}
}

// outcomeOf says what a call came to that is told that it will not hold.
func outcomeOf(err error, try bool) telemetry.Outcome {
	switch {
	case errors.Is(err, ErrClosed):
		return telemetry.Closed
	case errors.Is(err, ErrUnavailable):
		return telemetry.Unavailable
	case try && errors.Is(err, ErrNotAcquired):
		return telemetry.Busy
	}
	return telemetry.Refused
}

// endOfContext says what a call came to whose context has ended.
func endOfContext(ctx context.Context) telemetry.Outcome {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return telemetry.Timeout
	}
	return telemetry.Canceled
}

// failed counts a call that came to nothing.
func (s *Stats) failed(o telemetry.Outcome) {
	switch o {
	case telemetry.Busy:
		s.Busy++
	case telemetry.Timeout:
		s.TimedOut++
	case telemetry.Canceled:
		s.Canceled++
	case telemetry.Refused:
		s.Refused++
	case telemetry.Unavailable:
		s.Unavailable++
	case telemetry.Closed:
		s.Closed++
	}
}

// endOf says what a hold came to.
func endOf(why error) telemetry.Outcome {
	switch {
	case errors.Is(why, ErrReleased):
		return telemetry.Released
	case errors.Is(why, ErrHoldExpired):
		return telemetry.Expired
	case errors.Is(why, ErrClosed):
		return telemetry.Closed
	}
	return telemetry.Lost
}

// causeOf says why a lease was lost.
func causeOf(why error) string {
	if errors.Is(why, errNotRenewed) {
		return telemetry.CauseNotRenewed
	}
	return telemetry.CauseTakenAway
}
