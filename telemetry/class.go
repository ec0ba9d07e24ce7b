package telemetry

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Class is a class of keys, with the attributes of its metrics made beforehand.
type Class struct {
	name string
	t    *Telemetry

	// By mode (0: exclusive, 1: shared) and outcome.
	wait, hold [2]map[Outcome][]metric.RecordOption
	plain      []metric.RecordOption
	spans      [2]map[Path]trace.SpanStartOption // of holds and leases, by mode and path
	waits      map[waitEnd][]attribute.KeyValue

	stocks atomic.Pointer[Stocks] // nil: it has none
}

// Name returns the name of the class.
func (c *Class) Name() string { return c.name }

// modes are the names of the modes, by whether they are shared.
var modes = [2]string{"exclusive", "shared"}

func modeOf(shared bool) int {
	if shared {
		return 1
	}
	return 0
}

var (
	waitOutcomes = []Outcome{Acquired, Busy, Timeout, Canceled, Refused, Unavailable, Closed}
	holdOutcomes = []Outcome{Released, Lost, Expired, Closed}
	paths        = []Path{PathRetained, PathLocal, PathRedis, PathHandoff, PathReentry}
)

func newClass(t *Telemetry, name string) *Class {
	c := &Class{name: name, t: t, waits: map[waitEnd][]attribute.KeyValue{}}
	c.plain = []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(AttrClass.String(name)))}
	for i := range modes {
		c.wait[i], c.hold[i] = map[Outcome][]metric.RecordOption{}, map[Outcome][]metric.RecordOption{}
		for _, o := range waitOutcomes {
			c.wait[i][o] = c.options(i, o)
		}
		for _, o := range holdOutcomes {
			c.hold[i][o] = c.options(i, o)
		}
		c.spans[i] = map[Path]trace.SpanStartOption{}
		for _, p := range paths {
			attrs := c.attributes(i, p)
			c.spans[i][p] = trace.WithAttributes(attrs...)
			c.waits[waitEnd{i == 1, p, Acquired}] = append(attrs, outcomeAttributes(Acquired)...)
		}
		for _, o := range waitOutcomes[1:] {
			c.waits[waitEnd{i == 1, "", o}] = append(c.attributes(i, ""), outcomeAttributes(o)...)
		}
	}
	return c
}

// waitEnd is what a wait came to; the path of one that failed is "".
type waitEnd struct {
	shared  bool
	path    Path
	outcome Outcome
}

func (c *Class) attributes(mode int, p Path) []attribute.KeyValue {
	attrs := []attribute.KeyValue{AttrClass.String(c.name), AttrMode.String(modes[mode])}
	if p != "" {
		attrs = append(attrs, AttrPath.String(string(p)))
	}
	return slices.Clip(attrs)
}

// begin counts what has not happened yet, so that the first time is seen as a step.
func (c *Class) begin() {
	for _, k := range []AlarmKind{LongHold, LongWait, LateRenewal} {
		c.t.alarmed(c.name, k, 0)
	}
}

func (c *Class) options(mode int, o Outcome) []metric.RecordOption {
	return []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(
		AttrClass.String(c.name), AttrMode.String(modes[mode]), AttrOutcome.String(string(o))))}
}

// classes are those that there are. Their number is bounded, whatever KeyClass
// returns.
type classes struct {
	of    func(string) string // KeyClass
	other *Class

	mu     sync.RWMutex
	byName map[string]*Class
}

func (s *classes) init(t *Telemetry, of func(string) string) {
	s.of = of
	s.other = newClass(t, OtherClass)
	s.other.begin()
	s.byName = map[string]*Class{OtherClass: s.other}
}

// Class returns the class of a key. It calls the user's function.
func (t *Telemetry) Class(key string) *Class {
	s := &t.classes
	if s.of == nil {
		return s.other
	}
	name := s.name(key)
	s.mu.RLock()
	c := s.byName[name]
	s.mu.RUnlock()
	if c != nil {
		return c
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c = s.byName[name]; c != nil {
		return c
	}
	if len(s.byName) > MaxClasses { // "other" is one more
		return s.other
	}
	name = strings.Clone(name) // it may be a part of the key, and that of something large
	c = newClass(t, name)
	s.byName[name] = c
	t.soon.put(c.begin) // a meter that hangs must not hold up who asks
	return c
}

// Other returns the class of the keys that have no other.
func (t *Telemetry) Other() *Class { return t.classes.other }

// Classifies says that keys are told apart by class.
func (t *Telemetry) Classifies() bool { return t.classes.of != nil }

// name asks the user's function, and bounds what it says.
func (s *classes) name(key string) (name string) {
	defer func() {
		if recover() != nil || name == "" {
			name = OtherClass
		}
	}()
	name = strings.ToValidUTF8(s.of(key), "\uFFFD")
	if end := MaxClassName; len(name) > end {
		for !utf8.RuneStart(name[end]) {
			end--
		}
		name = name[:end]
	}
	return name
}

// Duration is one that was measured.
type Duration struct {
	Of      Measure
	Shared  bool
	Outcome Outcome
	Lasted  time.Duration
}

// Measure is what a [Duration] is of.
type Measure uint8

// The measures.
const (
	OfWait Measure = iota // of a call that did not enter at once
	OfHold
)

// Record records durations. It is for where the code of meters may run.
func (c *Class) Record(durations []Duration) {
	for _, d := range durations {
		if d.Of == OfWait {
			c.t.record(c.t.wait, d.Lasted, c.wait[modeOf(d.Shared)][d.Outcome])
		} else {
			c.t.record(c.t.hold, d.Lasted, c.hold[modeOf(d.Shared)][d.Outcome])
		}
	}
}

// Renewed records how long after it was due a renewal was in.
func (c *Class) Renewed(late time.Duration) {
	c.t.record(c.t.lateness, max(late, 0), c.plain)
}
