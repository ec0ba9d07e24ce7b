package render

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// Progress tells how far a run is: on a terminal by a line that is written again and again, elsewhere not at all. One
// goroutine uses it.
type Progress struct {
	to       io.Writer // nil: nobody looks
	columns  func() int
	scenario string
	number   int // of the scenario, from one
	total    int
	began    time.Time
	entered  time.Time // when the scenario began
	told     time.Time
}

// NewProgress tells on a file, if it is a terminal.
func NewProgress(file *os.File, scenarios int) *Progress {
	p := &Progress{total: scenarios, began: time.Now()}
	if fd := int(file.Fd()); term.IsTerminal(fd) {
		p.to = file
		p.columns = func() int {
			columns, _, err := term.GetSize(fd)
			if err != nil || columns < 1 {
				return 80
			}
			return columns
		}
	}
	return p
}

// toldEach is how often a person can read a line.
const toldEach = 100 * time.Millisecond

// clearLine goes to the start of the line and empties it.
const clearLine = "\r\x1b[K"

// Step tells what is measured now.
func (p *Progress) Step(scenario, point string, delay time.Duration, contender string, round, rounds int) {
	now := time.Now()
	if scenario != p.scenario {
		p.scenario, p.entered = scenario, now
		p.number++
	}
	if p.to == nil || now.Sub(p.told) < toldEach {
		return
	}
	p.told = now
	line := fmt.Sprintf("%v%s  %d/%d %s at %s, %s, round %d of %d: %s", now.Sub(p.began).Round(time.Second), p.left(now),
		p.number, p.total, scenario, point, added(delay), round, rounds, contender)
	fmt.Fprint(p.to, clearLine, clipped(line, p.columns()-1))
}

// left tells about how long it still takes, supposed that the scenarios to come take as long as those that are done.
func (p *Progress) left(now time.Time) string {
	done := p.number - 1
	if done < 1 || p.total < p.number {
		return ""
	}
	each := p.entered.Sub(p.began) / time.Duration(done)
	left := time.Duration(p.total-done)*each - now.Sub(p.entered)
	return fmt.Sprintf(", about %v to go", max(left, 0).Round(time.Second))
}

// clipped is as much of a line as fits, for a line that breaks can't be written over.
func clipped(line string, columns int) string {
	runes := []rune(line)
	return string(runes[:max(0, min(len(runes), columns))])
}

// Done empties the line.
func (p *Progress) Done() {
	if p.to != nil {
		fmt.Fprint(p.to, clearLine)
	}
}
