package render

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-leasehold/leasehold/bench/claim"
	"github.com/go-leasehold/leasehold/bench/result"
)

// Markdown tells a report as a page, which shows the plots that lie beside it.
func Markdown(r result.Report, drawn []Plot) string {
	p := &page{}
	p.line("# Benchmark report, %s", r.Size)
	p.line("")
	p.line("`%s` on %s, for %v; medians of %d rounds. Made by `bench`, not by hand.",
		r.Command, r.Started.Format(time.DateOnly), r.Took.Round(time.Second), r.Rounds)
	p.machine(r)
	p.line("\nPeers are locks on Redis as leasehold is one; limits are none, and show what memory, the network and Redis allow. " +
		"What counts commands, bytes and CPU time is for one operation; violations and errors are of all rounds together. " +
		"Plots show the medians, and thin bars from the least to the most.")
	p.claims(r)
	p.contenders(r)
	for _, s := range r.Scenarios {
		p.scenario(s, names(drawn, s.Name))
	}
	return p.text.String()
}

// page is a page of Markdown in the making.
type page struct{ text strings.Builder }

func (p *page) line(format string, args ...any) { fmt.Fprintf(&p.text, format+"\n", args...) }

// table writes a table. Bars in a text would end its cell.
func (p *page) table(head []string, rows [][]string) {
	p.line("")
	p.line("| %s |", strings.Join(head, " | "))
	p.line("|%s", strings.Repeat(" --- |", len(head)))
	for _, row := range rows {
		for i := range row {
			row[i] = strings.ReplaceAll(row[i], "|", "\\|")
		}
		p.line("| %s |", strings.Join(row, " | "))
	}
	p.line("")
}

func (p *page) machine(r result.Report) {
	m := r.Machine
	p.table([]string{"machine", ""}, [][]string{
		{"processor", fmt.Sprintf("%s, %d cores", m.CPU, m.Cores)}, {"memory", fmt.Sprintf("%.0f GiB", m.MemoryG)},
		{"system", m.Kernel}, {"Go", m.Go}, {"Redis", m.Redis + ", on the same machine, nothing on disk"},
		{"load before", digits(m.Load)},
	})
	p.line("Clients, server and, where there is one, the network delay share these cores. Only what stands in one table was measured side by side: " +
		"in each round all contenders take turns, in any order. A number is the median over the rounds; in brackets are the least and the most.")
}

func (p *page) claims(r result.Report) {
	p.line("\n## What was promised")
	var rows [][]string
	for _, v := range claim.Judge(r) {
		if !v.Known {
			rows = append(rows, []string{v.Text, asked(v.Claim), v.Missing(), ""})
			continue
		}
		met := "no"
		if v.Met {
			met = "yes"
		}
		rows = append(rows, []string{v.Text, asked(v.Claim), Verdict(v), met})
	}
	p.table([]string{"what", "asked", "measured", "met"}, rows)
}

func asked(c claim.Claim) string { return c.Bound() + " " + Number(c.Unit, c.Asked) }

// Verdict tells what was measured of a claim.
func Verdict(v claim.Verdict) string {
	text := Number(v.Unit, v.Median)
	if low, high := Number(v.Unit, v.Min), Number(v.Unit, v.Max); low != high {
		text += fmt.Sprintf(" (%s to %s)", low, high)
	}
	if v.Beside != "" {
		text += ", beside " + v.Beside
	}
	return text
}

func (p *page) contenders(r result.Report) {
	p.line("\n## Who took part")
	var rows [][]string
	for _, c := range r.Contenders {
		rows = append(rows, []string{c.Name, c.Kind, c.About, c.Version, strings.Join(c.Settings, "; ")})
	}
	p.table([]string{"name", "kind", "what", "version", "settings"}, rows)
}

func (p *page) scenario(s result.Scenario, drawn []Plot) {
	p.line("\n## %s\n", s.Title)
	p.line("%s %s", s.Question, s.Method)
	for _, plot := range drawn {
		p.line("\n![%s](%s.svg)", plot.Alt, plot.Name)
	}
	for _, delay := range delays(s) {
		p.headline(s, delay)
	}
	if troubles := Troubles(s); len(troubles) > 0 {
		p.line("\nWhat failed:\n")
		for _, text := range troubles {
			p.line("- %s", text)
		}
	}
	p.line("\n<details><summary>All that was measured</summary>")
	for _, delay := range delays(s) {
		for _, point := range points(s, delay) {
			p.details(s, point, delay)
		}
	}
	p.line("\n</details>")
}

func (p *page) headline(s result.Scenario, delay time.Duration) {
	p.line("\n%s by %s, %s:", capital(title(s.Headline)), s.Axis, added(delay))
	var rows [][]string
	for _, name := range contenders(s, delay) {
		row := []string{name}
		for _, point := range points(s, delay) {
			cell, _ := s.Of(name, point, delay)
			row = append(row, Of(cell, s.Headline))
		}
		rows = append(rows, row)
	}
	p.table(append([]string{""}, points(s, delay)...), rows)
}

// capital starts a sentence with a text.
func capital(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	if size == 0 {
		return "What was measured"
	}
	return string(unicode.ToUpper(first)) + text[size:]
}

func (p *page) details(s result.Scenario, point string, delay time.Duration) {
	p.line("\n%s %s, %s:", s.Axis, point, added(delay))
	all := metrics(s, point, delay)
	head := []string{""}
	for _, m := range all {
		head = append(head, m.Title)
	}
	var rows [][]string
	for _, name := range contenders(s, delay) {
		cell, ok := s.Of(name, point, delay)
		if !ok {
			continue
		}
		row := []string{name}
		for _, m := range all {
			row = append(row, Of(cell, m.Name))
		}
		rows = append(rows, row)
	}
	p.table(head, rows)
}
