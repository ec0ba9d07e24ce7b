package render

import (
	"fmt"
	"strings"
	"time"

	"github.com/go-leasehold/leasehold/bench/claim"
	"github.com/go-leasehold/leasehold/bench/result"
)

// Pages have blocks that are made from a report, so that no number in them is written by hand, or older than the others:
//
//	<!-- bench: table hot -->
//	...
//	<!-- /bench -->
const (
	blockStart = "<!-- bench: "
	blockEnd   = "<!-- /bench -->"
)

// Fill makes all blocks of a page anew. There are:
//
//	machine              what it ran on, when, and with which command
//	numbers              three of the claims, in words
//	claims               what was promised, and what was measured
//	contenders           who took part, and with which settings
//	table NAME [DELAY]   the metric to look at first of a scenario, at all points
//	all NAME POINT       all metrics of a scenario at a point, which is the rest of the line
func Fill(page string, r result.Report) (string, error) {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(page, blockStart)
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		name, rest, ok := strings.Cut(rest, " -->")
		inside, after, closed := strings.Cut(rest, blockEnd)
		if !ok || !closed || strings.Contains(name, "\n") || strings.Contains(inside, blockStart) {
			return "", fmt.Errorf("the block %q has no end", shortened(name))
		}
		text, err := block(name, r)
		if err != nil {
			return "", fmt.Errorf("the block %q: %w", name, err)
		}
		fmt.Fprintf(&out, "%s%s -->\n%s\n%s", blockStart, name, strings.Trim(text, "\n"), blockEnd)
		page = after
	}
}

// shortened is for a name that may be the rest of a page.
func shortened(name string) string { return name[:min(len(name), 40)] }

func block(name string, r result.Report) (string, error) {
	p := &page{}
	words := strings.SplitN(name, " ", 3)
	switch words[0] {
	case "machine":
		p.line("`%s`, %s, %v; medians of %d rounds", r.Command, r.Started.Format(time.DateOnly), r.Took.Round(time.Second), r.Rounds)
		p.machine(r)
		return p.text.String(), nil
	case "claims":
		p.claims(r)
		return strings.TrimPrefix(p.text.String(), "\n## What was promised\n"), nil
	case "numbers":
		return numbers(r)
	case "contenders":
		p.contenders(r)
		return strings.TrimPrefix(p.text.String(), "\n## Who took part\n"), nil
	}
	if len(words) < 2 {
		return "", fmt.Errorf("it is not known, or does not say of which scenario")
	}
	s, ok := r.Scenario(words[1])
	if !ok {
		return "", fmt.Errorf("the report has no scenario %q", words[1])
	}
	switch {
	case words[0] == "table":
		delay := time.Duration(0)
		if len(words) == 3 {
			var err error
			if delay, err = time.ParseDuration(words[2]); err != nil {
				return "", err
			}
		}
		if len(points(s, delay)) == 0 {
			return "", fmt.Errorf("%s was not measured with a delay of %v", s.Name, delay)
		}
		p.headline(s, delay)
	case words[0] == "all" && len(words) == 3:
		if len(metrics(s, words[2], 0)) == 0 {
			return "", fmt.Errorf("%s was not measured at %q", s.Name, words[2])
		}
		p.details(s, words[2], 0)
	default:
		return "", fmt.Errorf("it is not known")
	}
	return p.text.String(), nil
}

// numbers are three, for a page that has no room for more: each of a claim, with whom it was compared to.
func numbers(r result.Report) (string, error) {
	verdicts := map[string]claim.Verdict{}
	for _, v := range claim.Judge(r) {
		verdicts[v.Name] = v
	}
	for _, name := range []string{"hot", "hot-peer", "processes-peer", "processes-commands", "handoff-peer-1ms"} {
		if !verdicts[name].Known {
			return "", fmt.Errorf("the report does not have what %q is about", name)
		}
	}
	tell := func(name string) string { return digits(verdicts[name].Median) }
	beside := func(name string) string { return verdicts[name].Beside }
	return strings.Join([]string{
		fmt.Sprintf("- **%s × the best peer** (%s) where 64 goroutines of a process want one lock: %s of a semaphore in memory.",
			tell("hot-peer"), beside("hot-peer"), tell("hot")),
		fmt.Sprintf("- **%s × the best peer** (%s) where four processes of 16 goroutines want one lock, with %s Redis commands a lock.",
			tell("processes-peer"), beside("processes-peer"), tell("processes-commands")),
		fmt.Sprintf("- **%s of %s's time** for a hand-off to another process, with a network of 1 ms.",
			tell("handoff-peer-1ms"), beside("handoff-peer-1ms")),
	}, "\n"), nil
}
