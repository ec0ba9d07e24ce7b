package lockz

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/lease"
)

// jsonNames are the names of all that the JSON of a page has, by the type that they
// stand in. Programs of users read them: they may become more, and none goes away or is
// called otherwise.
const jsonNames = `
Page:      at title id server missing check now totals log_dropped query cycles more_cycles waits more_waits keys more_keys fleet
Check:     state at age problems error
Problem:   code fatal text
Now:       keys leases holds waiters wanted failing longest_wait longest_hold
Cycle:     possible steps cut more
Step:      caller process has next token held trace waits_for mode age place
Wait:      key mode age callers has for behind trace holder holder_trace cycle
Name:      key quoted bytes
Key:       key quoted bytes class kind phase mode owner valid holder holder_trace holder_trace_age rank wanted failure cycle holds more_holds readers waiters more_waiters longest_wait longest_hold
Hold:      caller mode token count reads age since path trace place
Waiter:    callers mode try age since trace place
Trace:     trace_id span_id url
Fleet:     at keys more
FleetKey:  key quoted bytes error token holders waiters more
Process:   owner here mode ttl since age trace
`

// namesOf adds the names that a type and those in it have in JSON.
func namesOf(of reflect.Type, all map[string][]string) {
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
		of = of.Elem()
	}
	if of.Kind() != reflect.Struct || of == reflect.TypeFor[time.Time]() || all[of.Name()] != nil {
		return
	}
	for f := range fields(of) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			inner := map[string][]string{}
			namesOf(f.Type, inner)
			all[of.Name()] = append(all[of.Name()], inner[f.Type.Name()]...)
			continue
		}
		all[of.Name()] = append(all[of.Name()], name)
	}
	for f := range fields(of) {
		namesOf(f.Type, all)
	}
}

func fields(of reflect.Type) func(yield func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range of.NumField() {
			if !yield(of.Field(i)) {
				return
			}
		}
	}
}

func TestJSONHasTheNamesThatItHad(t *testing.T) {
	want := map[string][]string{}
	for line := range strings.SplitSeq(strings.TrimSpace(jsonNames), "\n") {
		name, rest, _ := strings.Cut(line, ":")
		want[name] = strings.Fields(rest)
	}
	got := map[string][]string{}
	namesOf(reflect.TypeFor[Page](), got)
	require.ElementsMatch(t, slices.Collect(maps.Keys(want)), slices.Collect(maps.Keys(got)))
	for name := range want {
		require.ElementsMatch(t, want[name], got[name], name)
	}
}

// Times and durations are as documented, and lists are lists where they are empty.
func TestJSONIsAsDocumented(t *testing.T) {
	onStage(t, func(t *testing.T, s *scene) {
		s.lock(s.ctx, "k")
		time.Sleep(1500 * time.Millisecond)
		s.queue(s.ctx, "k")
		body := s.get("/?format=json").Body.String()
		require.Regexp(t, `"at": "2000-01-01T00:00:01\.5Z"`, body)
		require.Regexp(t, `"age": 1\.5,`, body)
		require.Regexp(t, `"since": "2000-01-01T00:00:00Z"`, body)
		shows(t, body, `"cycles": []`)
		shows(t, body, fmt.Sprintf(`"token": %d`, s.holds[0].Token()))
		showsNot(t, body, "null")
		empty := s.get("/?format=json&fleet=1&q=none").Body.String()
		for _, list := range []string{"missing", "cycles", "waits", "keys"} {
			shows(t, empty, `"`+list+`": []`)
		}
	})
}

// The paths that the documentation gives to jq lead to something.
func TestThePathsOfTheDocumentationAreThere(t *testing.T) {
	text, err := os.ReadFile("../../docs/lockz.md")
	require.NoError(t, err)
	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	filters := regexp.MustCompile(`jq '([^']+)'`).FindAllStringSubmatch(string(text)+string(doc), -1)
	require.GreaterOrEqual(t, len(filters), 3)
	onStage(t, func(t *testing.T, s *scene) {
		s.deadlock("a", "b")
		s.read(s.ctx, "r")
		s.queueTo(s.ctx, "r", lease.Exclusive)
		var page any
		require.NoError(t, json.Unmarshal(s.get("/?format=json").Body.Bytes(), &page))
		for _, f := range filters {
			values := []any{page}
			for stage := range strings.SplitSeq(f[1], "|") {
				paths := pathsOf(stage)
				require.NotEmpty(t, paths, stage)
				var all []any
				for _, path := range paths {
					found := follow(t, values, path)
					require.NotEmpty(t, found, "%s of %s", path, f[1])
					all = append(all, found...)
				}
				if !strings.Contains(stage, "select(") { // which lets through what it is given
					values = all
				}
			}
		}
	}, coordinator.WithDebug())
}

// pathsOf returns the paths in a stage of a jq filter: .a.b[], and a in {a}.
func pathsOf(stage string) []string {
	stage = regexp.MustCompile(`([{,]\s*)(\w+)(\s*[,}])`).ReplaceAllString(stage, "$1.$2$3")
	return regexp.MustCompile(`(?:\.\w+(?:\[\])?)+`).FindAllString(stage, -1)
}

// follow returns what a path leads to from each of some values. A name that is not
// there fails.
func follow(t *testing.T, values []any, path string) []any {
	t.Helper()
	for name := range strings.SplitSeq(strings.TrimPrefix(path, "."), ".") {
		name, each := strings.CutSuffix(name, "[]")
		var next []any
		for _, v := range values {
			object, ok := v.(map[string]any)
			require.True(t, ok, "%s: %v is no object", path, v)
			value, ok := object[name]
			require.True(t, ok, "%s: there is no %s", path, name)
			if list, ok := value.([]any); each {
				require.True(t, ok, "%s: %s is no list", path, name)
				next = append(next, list...)
			} else {
				next = append(next, value)
			}
		}
		values = next
	}
	return values
}
