package render

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// Progress tells how far a run is: on a terminal by a line that is written again and again, elsewhere not at all. One goroutine uses it.
type Progress struct {
	to       io.Writer // nil: nobody looks
	scenario string
	number   int // of the scenario, from one
	total    int
	began    time.Time
	told     time.Time
}

// NewProgress tells on a file, if it is a terminal.
func NewProgress(file *os.File, scenarios int) *Progress {
	p := &Progress{total: scenarios, began: time.Now()}
	if term.IsTerminal(int(file.Fd())) {
		p.to = file
	}
	return p
}

// toldEach is how often a person can read a line.
const toldEach = 100 * time.Millisecond

// clearLine goes to the start of the line and empties it.
const clearLine = "\r\x1b[K"

// Step tells what is measured now.
func (p *Progress) Step(scenario, point string, delay time.Duration, contender string, round, rounds int) {
	if scenario != p.scenario {
		p.scenario = scenario
		p.number++
	}
	if p.to == nil || time.Since(p.told) < toldEach {
		return
	}
	p.told = time.Now()
	fmt.Fprintf(p.to, "%s%v  %d/%d %s at %s, %s, round %d of %d: %s",
		clearLine, time.Since(p.began).Round(time.Second), p.number, p.total, scenario, point, added(delay), round, rounds, contender)
}

// Done empties the line.
func (p *Progress) Done() {
	if p.to != nil {
		fmt.Fprint(p.to, clearLine)
	}
}
