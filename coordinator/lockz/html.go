package lockz

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"html/template"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

//go:embed page.html page.css page.js
var files embed.FS

func file(name string) string {
	text, err := files.ReadFile(name)
	if err != nil {
		panic(err) // it is embedded
	}
	return string(text)
}

var (
	style  = file("page.css")
	script = file("page.js")

	// page escapes all that it is given, but for style and script.
	page = template.Must(template.New("page").Parse(file("page.html")))

	// policy lets the page have its own style and script and nothing else, so that
	// what might slip in does nothing.
	policy = strings.Join([]string{
		"default-src 'none'", "style-src " + digest(style), "script-src " + digest(script), "connect-src 'self'",
		"img-src data:", "form-action 'self'", "base-uri 'none'", "frame-ancestors 'none'",
	}, "; ")
)

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// view is what the HTML is made of.
type view struct {
	*Page
	Style  template.CSS
	Script template.JS

	Filter  string  // Page.Query, as it can be shown
	Hidden  []Field // what else was asked for, to go with another filter
	Refresh int     // seconds; 0: never
	Counts  []Count // Page.Totals, in an order that makes sense

	Branches     []Branch
	MoreBranches int

	AsJSON, WithFleet, WithoutFleet, Whole, Still string // addresses
}

// Field is a parameter of the page's address.
type Field struct{ Name, Value string }

// Count is one of Page.Totals.
type Count struct {
	Name  string
	Count uint64
}

// Branch is a key that is waited for, in the tree of who is in whose way.
type Branch struct {
	Key     Name
	Holds   []Hold // some of those who have it
	More    int    // other holds
	Readers int
	Holder  string // another process that has it
	Trace   *Trace // of its hold
	Phase   string
	Cycle   bool

	Waits     []Twig  // calls that hold up others
	Rest      int     // other calls
	Longest   Seconds // of these
	MoreBelow int     // keys below that there was no room for
}

// Twig is a call that waits, and what it holds up.
type Twig struct {
	Caller int
	Mode   string
	Age    Seconds
	Cycle  bool
	Trace  *Trace  // of the request
	Behind *Waiter // of a reader: the writer before it
	Held   []Branch
}

func (p *picture) view() *view {
	v := &view{
		Page: &p.Page, Style: template.CSS(style), Script: template.JS(script), //nolint:gosec // they are files of this package
		Filter: clip(p.Query), Refresh: p.asked.refresh, MoreBranches: p.rest,
	}
	values := p.asked.values()
	values.Del("q")
	for _, name := range slices.Sorted(maps.Keys(values)) {
		v.Hidden = append(v.Hidden, Field{name, values.Get(name)})
	}
	if p.asked.fleet && v.Refresh > 0 {
		v.Refresh = max(v.Refresh, fleetRefresh)
	}
	for _, t := range p.total {
		v.Counts = append(v.Counts, Count{strings.ReplaceAll(t.name, "_", " "), t.count})
	}
	for _, b := range p.tree {
		v.Branches = append(v.Branches, p.branch(b))
	}
	v.AsJSON = p.asked.address(func(r *request) { r.json = true })
	v.WithFleet = p.asked.address(func(r *request) { r.fleet = true })
	v.WithoutFleet = p.asked.address(func(r *request) { r.fleet = false })
	v.Still = p.asked.address(func(r *request) { r.refresh = 0 })
	v.Whole = p.asked.address(func(r *request) { r.query, r.limit = "", defaultLimit })
	return v
}

// maxHoldsShown is how many holders of a key the tree names.
const maxHoldsShown = 3

// branch returns a branch in words. The numbers of callers are those of the Page.
func (p *picture) branch(b *branch) Branch {
	k := &p.graph.keys[b.key]
	shown := Branch{
		Key: nameOf(k.Key), Readers: k.Readers, Holder: clip(k.Holder), Trace: p.h.trace(k.HolderTrace), Phase: k.Phase, Cycle: b.loop,
		Rest: b.rest, MoreBelow: b.more, More: max(len(k.Holds)-maxHoldsShown, 0),
	}
	for i := range k.Holds[:len(k.Holds)-shown.More] {
		hold := &k.Holds[i]
		h := Hold{Mode: hold.Mode.String(), Age: seconds(hold.Age), Trace: p.h.trace(hold.Trace)}
		if p.graph.seenAgain(hold.Owner) {
			h.Caller = p.caller(hold.Owner)
		}
		shown.Holds = append(shown.Holds, h)
	}
	open := map[int]bool{}
	for _, t := range b.open {
		open[t.wait.at] = true
	}
	for i := range k.Waiters {
		if !open[i] {
			shown.Longest = max(shown.Longest, seconds(k.Waiters[i].Waited))
		}
	}
	for _, t := range b.open {
		w := p.graph.waiter(t.wait)
		twig := Twig{Mode: w.Mode.String(), Age: seconds(w.Waited), Cycle: p.graph.stuck[t.wait], Trace: p.h.trace(w.Trace)}
		if len(w.Owners) > 0 {
			twig.Caller = p.caller(w.Owners[0])
		}
		if writer := p.graph.behind(t.wait); writer != nil {
			behind := p.waiter(writer)
			twig.Behind = &behind
		}
		for _, held := range t.held {
			twig.Held = append(twig.Held, p.branch(held))
		}
		shown.Waits = append(shown.Waits, twig)
	}
	return shown
}

// address returns the page's address with something changed, without its path.
func (r request) address(change func(*request)) string {
	change(&r)
	return "?" + r.values().Encode()
}

// values returns what is asked for as parameters, but for what is so anyway.
func (r request) values() url.Values {
	values := url.Values{}
	set := func(name, value string, differs bool) {
		if differs {
			values.Set(name, value)
		}
	}
	set("q", r.query, r.query != "")
	set("limit", strconv.Itoa(r.limit), r.limit != defaultLimit)
	set("each", strconv.Itoa(r.each), r.each != defaultEach)
	set("refresh", strconv.Itoa(r.refresh), r.refresh != defaultRefresh)
	set("fleet", "1", r.fleet)
	set("format", "json", r.json)
	return values
}
