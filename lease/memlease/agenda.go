package memlease

import (
	"sync"
	"time"
)

// agenda is what a store has to do, each thing at its time; things of one time
// in the order in which they were added.
type agenda struct {
	wake chan struct{} // has room for one: wake-ups may merge

	mu struct {
		sync.Mutex

		tasks []task // a heap
		seq   uint64
		open  int // requests not answered yet

		closing bool // no more requests
		aborted bool // and those not answered yet are given up
	}
}

// task is one thing to do. If it is given up, the call is still to be answered.
type task struct {
	at   time.Time
	seq  uint64
	run  func()
	call *call
}

func (t *task) before(u *task) bool {
	if t.at.Equal(u.at) {
		return t.seq < u.seq
	}
	return t.at.Before(u.at)
}

func (a *agenda) add(at time.Time, c *call, run func()) {
	a.mu.Lock()
	a.addLocked(at, c, run)
	a.mu.Unlock()
	a.ring()
}

func (a *agenda) addLocked(at time.Time, c *call, run func()) {
	a.mu.seq++
	tasks := append(a.mu.tasks, task{at: at, seq: a.mu.seq, run: run, call: c})
	i := len(tasks) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !tasks[i].before(&tasks[parent]) {
			break
		}
		tasks[i], tasks[parent] = tasks[parent], tasks[i]
		i = parent
	}
	a.mu.tasks = tasks
}

// addCall adds the sending of a request, unless there are to be no more.
func (a *agenda) addCall(c *call, run func()) bool {
	a.mu.Lock()
	if a.mu.closing {
		a.mu.Unlock()
		return false
	}
	a.mu.open++
	a.addLocked(c.sent, c, run)
	a.mu.Unlock()
	a.ring()
	return true
}

// answered counts down what addCall counted up.
func (a *agenda) answered() {
	a.mu.Lock()
	a.mu.open--
	a.mu.Unlock()
}

// close says that no more requests come, and abort that those not answered yet
// are not to be waited for either.
func (a *agenda) close(abort bool) {
	a.mu.Lock()
	a.mu.closing = true
	a.mu.aborted = a.mu.aborted || abort
	a.mu.Unlock()
	a.ring()
}

func (a *agenda) ring() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// next takes the next thing due, or says how long there is nothing (-1: until
// something is added), or that all is done.
func (a *agenda) next(now time.Time) (due task, wait time.Duration, done bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.aborted || a.mu.closing && a.mu.open == 0 {
		return task{}, 0, true
	}
	if len(a.mu.tasks) == 0 {
		return task{}, -1, false
	}
	if wait := a.mu.tasks[0].at.Sub(now); wait > 0 {
		return task{}, wait, false
	}
	return a.popLocked(), 0, false
}

func (a *agenda) popLocked() task {
	tasks := a.mu.tasks
	top := tasks[0]
	n := len(tasks) - 1
	tasks[0], tasks[n] = tasks[n], task{}
	tasks = tasks[:n]
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < n; child++ {
			if tasks[child].before(&tasks[least]) {
				least = child
			}
		}
		if least == i {
			break
		}
		tasks[i], tasks[least] = tasks[least], tasks[i]
		i = least
	}
	a.mu.tasks = tasks
	return top
}

// rest takes all that is left.
func (a *agenda) rest() []task {
	a.mu.Lock()
	defer a.mu.Unlock()
	var rest []task
	for len(a.mu.tasks) > 0 {
		rest = append(rest, a.popLocked())
	}
	return rest
}
