package segment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// mishap is what befalls one command of a process.
type mishap struct {
	At        int    // which command of the deed, from 0
	On        string // of those of this kind, see kindOf; empty: of all
	What      misfortune
	Later     int   // how many commands later a copy arrives
	Meanwhile *deed // what another process does just before it
}

// misfortune is the kind of a mishap.
type misfortune int

const (
	fine        misfortune = iota
	meanwhile              // another process does something just before it
	unreachable            // it is refused before it was sent
	lostCommand            // it never arrives, and nobody knows
	lostReply              // it is run, and nobody knows
	doubled                // it is run, and once more at a later time
	delayed                // it seems lost, and is run at a later time
	crashBefore            // the process dies, the command was not sent
	crashAfter             // it is run, and the process dies
	crashDuring            // the process dies, and the command arrives at a later time
)

func (m misfortune) String() string {
	return [...]string{
		"fine", "meanwhile", "unreachable", "lost command", "lost reply", "doubled", "delayed",
		"crash before", "crash after", "crash during",
	}[m]
}

var (
	errLost        = errors.New("segment: the answer is lost")
	errUnreachable = &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("the server is away")}
)

// mayhem stands between all processes of a test and Redis. It runs their commands one by one and has
// each written down in the chronicle, in the order in which the server runs them.
type mayhem struct {
	redis server

	mu       sync.Mutex
	book     *chronicle
	late     []lateCopy
	commands int
	reached  map[string]int // how often what was met
}

// lateCopy is a command that arrives when so many have been run.
type lateCopy struct {
	call
	tag int
	due int
}

// perform has the server run a command, after those that are due. tag names the deed that it belongs to.
func (m *mayhem) perform(c *call, tag int) answer {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.commands++
	m.arrive(m.commands)
	return m.single(c, tag)
}

// arrive runs the late copies that are due. It needs mu.
func (m *mayhem) arrive(commands int) {
	rest := m.late[:0]
	for i := range m.late {
		if late := &m.late[i]; late.due <= commands {
			m.reached["late copy run"]++
			m.single(&late.call, late.tag)
		} else {
			rest = append(rest, *late)
		}
	}
	m.late = rest
}

func (m *mayhem) single(c *call, tag int) answer {
	ctx, cancel := context.WithTimeout(context.Background(), hangs)
	defer cancel()
	a := m.redis.run(ctx, []call{*c})[0]
	m.book.observe(c, &a, tag, m.reached)
	return a
}

// arriveAll has everything arrive that is still on its way.
func (m *mayhem) arriveAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.arrive(1 << 60)
}

// postpone has a copy of a command arrive later.
func (m *mayhem) postpone(c *call, tag, later int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.late = append(m.late, lateCopy{*c, tag, m.commands + 1 + later})
}

func (m *mayhem) reach(what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reached[what]++
}

// mark is the number of moments so far, and of commands.
func (m *mayhem) mark() (moments, commands int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.book.moments), m.commands
}

// setClock is called with what sets the clock that scripts read.
func (m *mayhem) setClock(now time.Time, set func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	set()
	m.book.clock(now.UnixMicro())
}

// faulty is the server as one process sees it. When it is gone, all that it does ends with errGone.
type faulty struct {
	mayhem *mayhem
	// choose decides what befalls a command. It is called with mu.
	choose func(c *call) mishap
	// aside has something happen in another process.
	aside func(d *deed)

	mu       sync.Mutex
	gone     bool
	tag      int
	befallen int // mishaps so far
}

func (f *faulty) run(_ context.Context, calls []call) []answer {
	answers := make([]answer, len(calls))
	for i := range calls {
		answers[i] = f.one(&calls[i])
	}
	return answers
}

func (f *faulty) one(c *call) answer {
	f.mu.Lock()
	m, tag := f.choose(c), f.tag
	if f.gone {
		f.mu.Unlock()
		return answer{err: errGone}
	}
	if m.What == doubled && c.once {
		m.What = fine // the network sends nothing twice, only we do
	}
	switch m.What {
	case fine, meanwhile, doubled:
	case crashBefore, crashAfter, crashDuring:
		f.gone = true
		f.befallen++
	default:
		f.befallen++
	}
	f.mu.Unlock()
	if m.What != fine {
		f.mayhem.reach(m.What.String())
	}
	return f.befall(c, &m, tag)
}

func (f *faulty) befall(c *call, m *mishap, tag int) answer {
	switch m.What {
	case meanwhile:
		f.aside(m.Meanwhile)
	case unreachable:
		return answer{err: errUnreachable}
	case lostCommand:
		return answer{err: errLost}
	case delayed:
		f.mayhem.postpone(c, tag, m.Later)
		return answer{err: errLost}
	case crashBefore:
		f.crashed()
		return answer{err: errGone}
	case crashDuring:
		f.mayhem.postpone(c, tag, m.Later)
		f.crashed()
		return answer{err: errGone}
	}
	a := f.mayhem.perform(c, tag)
	switch m.What {
	case doubled:
		f.mayhem.postpone(c, tag, m.Later)
	case lostReply:
		return answer{err: errLost}
	case crashAfter:
		f.crashed()
		return answer{err: errGone}
	}
	return a
}

// crashed notes what a crash has left half done.
func (f *faulty) crashed() {
	f.mayhem.mu.Lock()
	defer f.mayhem.mu.Unlock()
	if n := f.mayhem.book.underWay(); n > 0 {
		f.mayhem.reached["crash between give and credit"]++
	}
	if f.mayhem.book.loading != "" {
		f.mayhem.reached["crash while loading"]++
	}
}

// begin is told that a deed begins: what befalls its commands, and its name.
func (f *faulty) begin(tag int, choose func(c *call) mishap) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tag, f.choose = tag, choose
}

func (f *faulty) state() (gone bool, befallen int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gone, f.befallen
}

// plain has nothing befall.
func plain(*call) mishap { return mishap{} }

// scripted has mishaps befall the commands at their places.
func scripted(mishaps []mishap) func(*call) mishap {
	met := map[string]int{}
	return func(c *call) mishap {
		kind := kindOf(c)
		all, alike := met[""], met[kind]
		met[""]++
		if kind != "" {
			met[kind]++
		}
		for _, m := range mishaps {
			if m.On == "" && m.At == all || m.On != "" && m.On == kind && m.At == alike {
				return m
			}
		}
		return mishap{}
	}
}

// kindOf is what a command is for, where mishaps are aimed at that.
func kindOf(c *call) string {
	switch name := c.script.name; {
	case c.once:
		return "once"
	case name == "give", name == "rotate", name == "look":
		return name
	case name == "orders" && c.args[4] != "0":
		return "credit"
	}
	return ""
}

func (m mishap) String() string {
	at := fmt.Sprintf("at %s%d", m.On, m.At)
	switch m.What {
	case meanwhile:
		return fmt.Sprintf("%s meanwhile {%v}", at, m.Meanwhile)
	case doubled, delayed, crashDuring:
		return fmt.Sprintf("%s %v by %d", at, m.What, m.Later)
	}
	return fmt.Sprintf("%s %v", at, m.What)
}
