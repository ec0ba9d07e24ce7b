package lockz

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-leasehold/leasehold/lease"
)

const (
	// checkWithin bounds a question to the server.
	checkWithin = 5 * time.Second
	// checkPatience is how long a page waits for the answer.
	checkPatience = 300 * time.Millisecond
	// maxProblems bounds what is shown of the answer.
	maxProblems = 50
)

// checker asks whether something is wrong with the server, once in a while and
// when a page is looked at.
type checker struct {
	check func(context.Context) ([]lease.Problem, error)
	every time.Duration

	mu   sync.Mutex
	last Check
	done chan struct{} // of the question on its way, closed with the answer; nil: there is none
}

func newChecker(check func(context.Context) ([]lease.Problem, error), every time.Duration) *checker {
	k := &checker{check: check, every: every, last: Check{State: "unknown"}}
	if every <= 0 {
		k.last.State = "off"
	}
	return k
}

// result returns the last answer. It asks, if that is old; then it waits a moment
// for the new one.
func (k *checker) result(ctx context.Context) Check {
	k.mu.Lock()
	asked := k.done == nil && k.every > 0 && (k.last.At.IsZero() || time.Since(k.last.At) >= k.every)
	if asked {
		k.done = make(chan struct{})
		go k.ask() // ends within checkWithin
	}
	done := k.done
	first := k.last.At.IsZero()
	k.mu.Unlock()
	if done != nil && (asked || first) {
		patience := time.NewTimer(checkPatience)
		defer patience.Stop()
		select {
		case <-done:
		case <-patience.C:
		case <-ctx.Done():
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	answer := k.last
	if !answer.At.IsZero() {
		answer.Age = seconds(time.Since(answer.At))
	}
	return answer
}

// ask asks the server. It is nobody's request: several wait for what it brings.
func (k *checker) ask() {
	ctx, cancel := context.WithTimeout(context.Background(), checkWithin)
	defer cancel()
	answer := answerOf(k.problems(ctx))
	answer.At = time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last = answer
	close(k.done)
	k.done = nil
}

// problems calls the store, which may be a user's own: its panic is an error.
func (k *checker) problems(ctx context.Context) (problems []lease.Problem, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the check panicked: %v", p)
		}
	}()
	return k.check(ctx)
}

func answerOf(problems []lease.Problem, err error) Check {
	if err != nil {
		return Check{State: "failed", Error: clip(err.Error())}
	}
	if len(problems) == 0 {
		return Check{State: "ok"}
	}
	answer := Check{State: "problems"}
	for _, p := range problems[:min(len(problems), maxProblems)] {
		answer.Problems = append(answer.Problems, Problem{Code: clip(p.Code), Fatal: p.Fatal, Text: clip(p.Text)})
	}
	return answer
}
