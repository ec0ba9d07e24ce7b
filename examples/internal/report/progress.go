package report

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// showEvery is how often the line is written anew.
const showEvery = 200 * time.Millisecond

// Progress is the line that shows how far a round is; on anything but a terminal there is none.
type Progress struct {
	Out    io.Writer
	Round  string // the round's name
	Length time.Duration
	Unit   string        // of what is counted
	Note   func() string // what else there is to say, if anything
}

// Watch shows the line until the round has had its length, ctx ends, or over is closed.
func (p Progress) Watch(ctx context.Context, over <-chan struct{}, count func() int64) {
	p.watch(ctx, over, count, isTerminal(p.Out))
}

func (p Progress) watch(ctx context.Context, over <-chan struct{}, count func() int64, shown bool) {
	start := time.Now()
	end := time.NewTimer(p.Length)
	defer end.Stop()
	var ticks <-chan time.Time
	if shown {
		ticker := time.NewTicker(showEvery)
		defer ticker.Stop()
		defer fmt.Fprintf(p.Out, "\r%79s\r", "")
		ticks = ticker.C
	}
	for {
		select {
		case <-ticks:
			p.show(time.Since(start), count())
		case <-end.C:
			return
		case <-over:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (p Progress) show(passed time.Duration, count int64) {
	const width = 24
	done := min(int(passed*width/p.Length), width)
	line := fmt.Sprintf("%-12s [%s%s] %s %s",
		p.Round, strings.Repeat("#", done), strings.Repeat(".", width-done), Thousands(count), p.Unit)
	if p.Note != nil {
		if note := p.Note(); note != "" {
			line += ", " + note
		}
	}
	fmt.Fprintf(p.Out, "\r%-78s ", line) // over all of the line before
}

func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
