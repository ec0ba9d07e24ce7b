package lockz

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// element is one of a page.
type element struct {
	name string
	attr map[string]string
	text string // its own, and of all in it
	path string // the names of those that it is in
}

var raw = regexp.MustCompile(`(?s)<(style|script)>.*?</(style|script)>`)

// elements reads a page as XML, which it is but for elements that need no end, so
// that one that isn't closed, or closed twice, fails the test.
func elements(t *testing.T, body string) (all []*element) {
	t.Helper()
	require.Len(t, raw.FindAllString(body, -1), 2, "one style and one script")
	body = raw.ReplaceAllString(body, "<$1></$2>")
	body = strings.TrimPrefix(body, "<!DOCTYPE html>")
	d := xml.NewDecoder(strings.NewReader(body))
	d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	var open []*element
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		switch token := token.(type) {
		case xml.StartElement:
			e := &element{name: token.Name.Local, attr: map[string]string{}}
			for _, o := range open {
				e.path += o.name + " "
			}
			for _, a := range token.Attr {
				e.attr[a.Name.Local] = a.Value
			}
			open, all = append(open, e), append(all, e)
		case xml.EndElement:
			require.NotEmpty(t, open)
			require.Equal(t, open[len(open)-1].name, token.Name.Local)
			open = open[:len(open)-1]
		case xml.CharData:
			for _, o := range open {
				o.text += string(token)
			}
		case xml.Comment:
			require.Fail(t, "a comment", string(token))
		}
	}
	require.Empty(t, open)
	return all
}

// known are the elements and attributes that a page has.
var (
	knownElements = words(`html head meta title link style noscript body header h1 h2 h3 form label input button p
		main span time a section div ol ul li small dl dt dd strong bdi b details summary table thead tbody tr th td script`)
	knownAttributes = words(`lang charset name content rel href method role for id type value placeholder autocomplete
		autocapitalize spellcheck data-refresh class datetime aria-labelledby aria-pressed hidden data-label title target scope http-equiv`)
)

func words(s string) map[string]bool {
	all := map[string]bool{}
	for _, word := range strings.Fields(s) {
		all[word] = true
	}
	return all
}

// wellMade checks what holds for all pages.
func wellMade(t *testing.T, body string) (all []*element) {
	t.Helper()
	all = elements(t, body)
	ids := map[string]int{}
	for _, e := range all {
		require.True(t, knownElements[e.name], "<%s> in %s", e.name, e.path)
		for name, value := range e.attr {
			require.True(t, knownAttributes[name], "%s=%q of <%s>", name, value, e.name)
			if name == "id" {
				ids[value]++
			}
		}
		if href, ok := e.attr["href"]; ok {
			require.Regexp(t, `^(\?|data:,$|http://jaeger/)`, href)
		}
		if e.name == "th" {
			require.NotEmpty(t, e.attr["scope"])
		}
	}
	for id, n := range ids {
		require.Equal(t, 1, n, "there are %d of id %q", n, id)
	}
	for _, e := range all {
		for _, refers := range []string{"aria-labelledby", "for"} {
			if id := e.attr[refers]; id != "" {
				require.Equal(t, 1, ids[id], "%s=%q", refers, id)
			}
		}
	}
	return all
}

// hostile are keys that would do something if they were not escaped, or look like
// what they are not.
var hostile = []string{
	`<script>window.pwned=1</script>`,
	`"><img src=x onerror=window.pwned=1>`,
	`' onmouseover='window.pwned=1`,
	`</style><script>window.pwned=1</script>`,
	`</script><script>window.pwned=1</script>`,
	`</title></textarea><svg onload=window.pwned=1>`,
	`<!-- -->`, `]]>`, `&lt;b&gt;`, `&amp;`, `{{.ID}}`, `javascript:window.pwned=1`, `\"`, "`${window.pwned=1}`",
	"\x00\x01\x1b[31m\r\n", "\xff\xfe\xfd", "a\xc3", "\u202egnp.exe", "\u2066x\u2069", "a\u200bb", "\u2028", "\ufeff",
	" ", " a", "a ", "a  b", "a\tb", "a\u00a0b", strings.Repeat("z\u0301\u0302\u0303", 10),
	strings.Repeat("é", coordinator.MaxKey/2), strings.Repeat("<b>", 1000), strings.Repeat("\x00", coordinator.MaxKey),
}

func TestHostileKeys(t *testing.T) {
	onStage(t, func(t *testing.T, s *scene) {
		s.page = Handler(s.Coordinator, WithTitle(hostile[0]))
		for i, key := range hostile {
			s.lock(s.ctx, key)
			s.queue(s.ctx, key)
			if i%2 == 0 {
				s.Contend(key)
			}
		}
		s.deadlock(hostile[1]+"1", hostile[2]+"2")
		for _, address := range append([]string{"/", "/?fleet=1"}, s.filters()...) {
			w := s.get(address)
			require.Equal(t, http.StatusOK, w.Code)
			all := wellMade(t, w.Body.String())
			shown := map[string]bool{}
			for _, e := range all {
				if e.name == "bdi" && e.attr["class"] != "" {
					shown[e.text] = true
				}
			}
			if address == "/" || address == "/?fleet=1" {
				for _, key := range hostile {
					require.True(t, shown[html.UnescapeString(html.EscapeString(nameOf(key).Text))], "%.40q", key)
				}
			}
		}
		require.Less(t, s.get("/").Body.Len(), 200_000)
		require.True(t, json.Valid(s.get("/?format=json").Body.Bytes()))
	}, coordinator.WithTelemetry(telemetry.Config{KeyClass: func(key string) string { return "<i>" + key }}))
}

// filters are addresses that ask for each hostile key.
func (s *scene) filters() (all []string) {
	for _, key := range hostile {
		all = append(all, "/?"+url.Values{"q": {key}}.Encode())
	}
	return all
}

// A key is shown as the errors show it, or as it is where that is the same.
func TestKeysAreShownAsInErrors(t *testing.T) {
	seen := map[string]string{}
	for _, key := range append(hostile, "order:42", "größe/Ω", "\\x00") {
		n := nameOf(key)
		require.Equal(t, len(key), n.Bytes)
		err := (&coordinator.WaitError{Key: key, Err: coordinator.ErrNotAcquired}).Error()
		if n.Quoted {
			require.Contains(t, err, "key "+n.Text+",")
		} else {
			require.Equal(t, key, n.Text)
			require.Contains(t, err, `key "`+key+`",`)
		}
		require.Empty(t, seen[n.Text], "two keys look the same")
		seen[n.Text] = key
		require.Less(t, len(n.Text), 4*maxKeyShown+32)
	}
	for _, key := range []string{" ", " a", "a ", "a  b", "a\tb", "a\u00a0b", "a\u200bb"} {
		require.True(t, nameOf(key).Quoted, "%q: what can't be seen is quoted", key)
	}
	require.False(t, nameOf("two words").Quoted)
	require.False(t, nameOf("order:42").Quoted)
	require.False(t, nameOf("größe/Ω").Quoted)
}

func TestTextsOfOthersAreClipped(t *testing.T) {
	require.Equal(t, "a b c", clip("a\nb\tc"))
	require.Equal(t, "a\ufffdb\ufffd", clip("a\x00b\u202e"))
	require.Equal(t, "\ufffd", clip("\xff\xff"))
	long := clip(strings.Repeat("é", maxText))
	require.Equal(t, strings.Repeat("é", maxText/2)+"…", long)
	require.Equal(t, strings.Repeat("a", maxText-1)+"\ufffd…", clip(strings.Repeat("a", maxText-1)+"éé"))
}

func TestEveryPageIsWellMade(t *testing.T) {
	onStage(t, func(t *testing.T, s *scene) {
		s.page = Handler(s.Coordinator, WithTitle("shop"))
		wellMade(t, s.get("/").Body.String()) // with nothing in it
		s.deadlock("a", "b")
		s.read(s.ctx, "r")
		s.queueTo(s.ctx, "r", lease.Exclusive)
		s.queueTo(s.ctx, "r", lease.Shared)
		release := s.HoldElsewhere("theirs", 0)
		s.queue(s.lock(s.ctx, "mine"), "theirs")
		s.queue(s.ctx, "mine")
		s.Contend("mine")
		for range 20 {
			s.queue(s.ctx, "a")
			s.read(s.ctx, "many")
		}
		time.Sleep(time.Second)
		for _, address := range []string{"/", "/?fleet=1", "/?limit=1&each=1", "/?refresh=0", "/?q=a", "/?q=nothing&limit=7&each=3"} {
			all := wellMade(t, s.get(address).Body.String())
			cells := 0
			for _, e := range all {
				if e.attr["role"] == "columnheader" {
					cells++
				}
			}
			if address == "/" {
				require.Equal(t, 4, cells)
			}
		}
		body := s.get("/").Body.String()
		shows(t, body, "20 other calls wait, the longest for")
		shows(t, body, "10 more</li>")
		shows(t, body, "in a deadlock")
		release()
	}, coordinator.WithDebug())
}

// The tree says who holds what up: from who has a key down to who waits for one who
// waits.
func TestTheTreeOfWaits(t *testing.T) {
	onStage(t, func(t *testing.T, s *scene) {
		a, b := s.lock(s.ctx, "a"), s.lock(s.ctx, "b")
		s.lock(s.ctx, "c")
		s.queue(a, "b")
		s.queue(s.ctx, "b")
		s.queue(b, "c")
		s.queue(s.ctx, "a")
		time.Sleep(time.Second)
		nested := map[string]int{}
		for _, e := range wellMade(t, s.get("/").Body.String()) {
			if e.name == "bdi" && strings.Contains(e.path, "ul ") && !strings.Contains(e.path, "dl") {
				nested[e.text] = strings.Count(e.path, "ul ")
			}
		}
		require.Equal(t, map[string]int{"c": 1, "b": 3, "a": 5}, nested)
		body := s.get("/").Body.String()
		shows(t, body, "1 other call waits for 1.0 s")
	})
}

// What was asked for bounds the tree, too.
func TestTheTreeIsBounded(t *testing.T) {
	onStage(t, func(t *testing.T, s *scene) {
		a, b := s.lock(s.ctx, "a"), s.lock(s.ctx, "b")
		for range 50 {
			s.queue(a, "b")
		}
		s.queue(b, "a")
		for i := range 20 {
			s.queue(s.lock(s.ctx, fmt.Sprint("c", i)), "a")
			s.queue(s.ctx, fmt.Sprint("c", i))
		}
		time.Sleep(time.Second)
		stuck := func(address string) int {
			return strings.Count(s.get(address).Body.String(), ", in a deadlock")
		}
		require.Equal(t, 51, stuck("/?each=1000"))
		require.Equal(t, defaultEach+1, stuck("/"))
		require.Equal(t, 2, stuck("/?each=1"))
		body := s.get("/?each=1").Body.String()
		shows(t, body, "49 other calls wait")
		shows(t, body, "20 more keys below")
		body = s.get("/?limit=1").Body.String()
		shows(t, body, "<small>21 more keys below</small>")
	})
}

func TestSecondsAreReadable(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                               "0.0 ms",
		1500 * time.Microsecond:         "1.5 ms",
		250 * time.Millisecond:          "250 ms",
		999_700 * time.Microsecond:      "1.0 s",
		12340 * time.Millisecond:        "12.3 s",
		59_960 * time.Millisecond:       "1 min 0 s",
		time.Minute + 5*time.Second:     "1 min 5 s",
		3*time.Hour + 20*time.Minute:    "3 h 20 min",
		49*time.Hour + 20*time.Minute:   "2 d 1 h",
		1000000*time.Hour + time.Second: "41666 d 16 h",
	} {
		require.Equal(t, want, seconds(d).String())
	}
}
