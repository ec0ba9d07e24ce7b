package segment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/go-leasehold/leasehold/coordinator"
)

// ill is what befalls one command of a process.
type ill struct {
	At    int // which command of a deed, from 0
	What  illness
	Later int // how many commands of all processes later a copy arrives
}

type illness int

const (
	replyLost    illness = iota // it is run, and nobody knows
	commandLost                 // it is not run, and nobody knows
	commandTwice                // it is run, and a copy arrives later
	commandLate                 // it seems lost, and arrives later
	cutOff                      // it and the next ones are lost
	diesBefore                  // the process dies, and it is not sent
	diesAfter                   // it is run, and the process dies
	illnesses
)

func (i ill) String() string {
	return fmt.Sprintf("%s at %d", [...]string{
		"reply lost", "command lost", "command twice", "command late", "cut off", "dies before", "dies after",
	}[i.What], i.At)
}

// awayFor is how many commands of a process are lost while it is cut off: more than it takes to give up.
const awayFor = 8

var errNoReply = errors.New("segment: no reply")

// stragglers are commands that arrive late, on the way to a server.
type stragglers struct {
	server
	mu    sync.Mutex
	calls []call
	due   []int // how many commands are to pass before
}

func (s *stragglers) add(c *call, due int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls, s.due = append(s.calls, *c), append(s.due, due)
}

// run runs calls, after late ones that are due.
func (s *stragglers) run(ctx context.Context, calls []call) []answer {
	s.pass(len(calls))
	return s.server.run(ctx, calls)
}

// pass has the late ones arrive that are due when n more commands have passed.
func (s *stragglers) pass(n int) {
	s.mu.Lock()
	var calls []call
	for i := len(s.calls) - 1; i >= 0; i-- {
		if s.due[i] -= n; s.due[i] < 0 {
			calls = append(calls, s.calls[i])
			s.calls, s.due = slices.Delete(s.calls, i, i+1), slices.Delete(s.due, i, i+1)
		}
	}
	s.mu.Unlock()
	for i := range calls {
		s.server.run(context.Background(), calls[i:i+1])
	}
}

// unwell is the server as one process sees it.
type unwell struct {
	late *stragglers

	mu   sync.Mutex
	ills []ill // of the present deeds
	sent int
	away int
	dead bool
}

// begin is told what befalls the commands that follow.
func (u *unwell) begin(ills []ill) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ills, u.sent = append(u.ills, ills...), 0
}

func (u *unwell) isDead() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.dead
}

// befalls takes the ill of the next command; run: it is to be run.
func (u *unwell) befalls(c *call) (run bool, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	at := slices.IndexFunc(u.ills, func(i ill) bool { return i.At <= u.sent })
	u.sent++
	switch {
	case u.dead:
		return false, errGone
	case u.away > 0:
		u.away--
		return false, errNoReply
	case at < 0:
		return true, nil
	}
	what, later := u.ills[at].What, u.ills[at].Later
	u.ills = slices.Delete(u.ills, at, at+1)
	switch what {
	case replyLost:
		return true, errNoReply
	case commandTwice:
		if !c.once {
			u.late.add(c, later)
		}
		return true, nil
	case commandLate:
		u.late.add(c, later)
	case cutOff:
		u.away = awayFor
	case diesBefore, diesAfter:
		u.dead = true
		return what == diesAfter, errGone
	}
	return false, errNoReply
}

func (u *unwell) run(ctx context.Context, calls []call) []answer {
	answers := make([]answer, len(calls))
	for i := range calls {
		run, err := u.befalls(&calls[i])
		if run {
			answers[i] = u.late.run(ctx, calls[i:i+1])[0]
		}
		if err != nil {
			answers[i] = answer{err: err}
		}
	}
	return answers
}

// handles are a process's, on stocks of these names.
func handles(c *coordinator.Coordinator, names []string, conf Config, settings coordinator.Settings, at server) []*Stock {
	all := make([]*Stock, len(names))
	for i, name := range names {
		all[i] = newStock(c, name, conf, settings, at)
	}
	return all
}
