package lockz

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/telemetry"
)

// Option is an option of [Handler].
type Option func(*config)

type config struct {
	title      string
	checkEvery time.Duration
	telemetry  telemetry.Config
}

// WithTitle sets a name for the page, so that those of several services can be
// told apart. Default: none.
func WithTitle(title string) Option { return func(c *config) { c.title = title } }

// WithCheckInterval sets how old the answer to Coordinator.Check must be before
// the server is asked again by a request of the page, which then waits for the
// answer a moment, and shows the last one if it takes longer. Default 30 s; 0 or
// negative: it is never asked.
func WithCheckInterval(d time.Duration) Option { return func(c *config) { c.checkEvery = d } }

// Handler returns the page of a coordinator, which must not be nil. It answers GET
// and HEAD under any path.
//
// It shows keys, so mount it where only those get to who may see them.
func Handler(c *coordinator.Coordinator, opts ...Option) http.Handler {
	if c == nil {
		panic("lockz: the coordinator is nil")
	}
	h := &handler{c: c, conf: config{checkEvery: 30 * time.Second}, turn: make(chan struct{}, 1), fleetTurn: make(chan struct{}, 1)}
	for _, o := range opts {
		o(&h.conf)
	}
	h.conf.telemetry = c.Settings().Telemetry
	h.check = newChecker(c.Check, h.conf.checkEvery)
	return h
}

type handler struct {
	c     *coordinator.Coordinator
	conf  config
	check *checker
	// Have room for one: who makes a page, and who asks the store for one.
	turn, fleetTurn chan struct{}
}

// Limits of what is asked for.
const (
	defaultLimit   = 200
	maxLimit       = 5000
	defaultEach    = 10
	maxEach        = 1000
	defaultRefresh = 2
	maxRefresh     = 3600
	// fleetRefresh is the least number of seconds between two pages that cost the
	// server something.
	fleetRefresh = 10
	maxQuery     = 1024
)

// request is what a page was asked for.
type request struct {
	query   string
	limit   int
	each    int
	refresh int
	fleet   bool
	json    bool
}

// ServeHTTP answers with the page.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	asked, ok := read(r)
	if !ok {
		http.Error(w, "format is html or json", http.StatusBadRequest)
		return
	}
	setHeader(w.Header(), asked.json)
	if r.Method == http.MethodHead {
		return
	}
	p := h.look(r.Context(), asked)
	if p == nil { // whose end the context is may still be heard: a server's, or a timeout's
		http.Error(w, "the request ended before there was a page", http.StatusServiceUnavailable)
		return
	}
	var body bytes.Buffer
	if err := p.write(&body); err != nil {
		http.Error(w, "the page can't be made: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Length", strconv.Itoa(body.Len()))
	_, _ = w.Write(body.Bytes()) // who doesn't read it any more doesn't miss it
}

// write writes the page as what was asked for.
func (p *picture) write(body *bytes.Buffer) error {
	if !p.asked.json {
		return page.Execute(body, p.view())
	}
	encoder := json.NewEncoder(body)
	encoder.SetIndent("", "  ")
	return encoder.Encode(p.Page)
}

// enter waits for a turn, and says false where nobody waits for the page any more.
func enter(ctx context.Context, turn chan struct{}) bool {
	select {
	case turn <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func leave(turn chan struct{}) { <-turn }

// read reads what is asked for. What is out of its limits is put within them.
func read(r *http.Request) (request, bool) {
	values := r.URL.Query()
	number := func(name string, standard, least, most int) int {
		n, err := strconv.Atoi(values.Get(name))
		if err != nil {
			return standard
		}
		return min(max(n, least), most)
	}
	asked := request{
		query:   values.Get("q"),
		limit:   number("limit", defaultLimit, 1, maxLimit),
		each:    number("each", defaultEach, 1, maxEach),
		refresh: number("refresh", defaultRefresh, 0, maxRefresh),
		fleet:   values.Get("fleet") == "1",
	}
	if len(asked.query) > maxQuery {
		asked.query = asked.query[:maxQuery]
	}
	switch values.Get("format") {
	case "json":
		asked.json = true
	case "html":
	case "":
		asked.json = prefersJSON(r.Header.Values("Accept"))
	default:
		return request{}, false
	}
	return asked, true
}

// prefersJSON says that the header Accept has JSON, and HTML not at all or later
// in preference. Where it has neither, as where it has */* only, it is HTML.
func prefersJSON(accept []string) bool {
	weight := map[string]float64{}
	for part := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		kind, parameters, _ := strings.Cut(part, ";")
		q := 1.0
		for parameter := range strings.SplitSeq(parameters, ";") {
			if value, ok := strings.CutPrefix(strings.TrimSpace(parameter), "q="); ok {
				var err error
				if q, err = strconv.ParseFloat(value, 64); err != nil || !(q >= 0 && q <= 1) {
					q = 0 // what can't be read isn't wanted
				}
			}
		}
		kind = strings.ToLower(strings.TrimSpace(kind))
		weight[kind] = max(weight[kind], q)
	}
	return weight["application/json"] > weight["text/html"]
}

func setHeader(h http.Header, asJSON bool) {
	h.Set("Content-Type", "text/html; charset=utf-8")
	if asJSON {
		h.Set("Content-Type", "application/json; charset=utf-8")
	}
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Add("Vary", "Accept")
}
