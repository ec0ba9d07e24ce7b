package lockz

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/telemetry"
)

func TestThePageTellsWhoHoldsAndWhoWaits(t *testing.T) {
	onStage(t, func(t *testing.T, s *scene) {
		s.lock(s.ctx, "order:1")
		time.Sleep(2 * time.Second)
		s.queue(s.ctx, "order:1")
		time.Sleep(time.Second)
		s.queue(s.ctx, "order:1")
		p := s.json("/?format=json")
		require.Equal(t, s.Coordinator.ID(), p.ID)
		require.NotEmpty(t, p.Server)
		require.Equal(t, Now{
			Keys: 1, Leases: 1, Holds: 1, Waiters: 2, LongestWait: 1, LongestHold: 3,
		}, p.Now)
		require.Len(t, p.Keys, 1)
		k := p.Keys[0]
		require.Equal(t, Name{Text: "order:1", Bytes: 7}, k.Name)
		require.Equal(t, "mutex", k.Kind)
		require.Equal(t, "held", k.Phase)
		require.Equal(t, "exclusive", k.Mode)
		require.True(t, strings.HasPrefix(k.Owner, p.ID+":"))
		require.Positive(t, k.Valid)
		require.Len(t, k.Holds, 1)
		hold := k.Holds[0]
		require.Equal(t, "3.0 s", hold.Age.String())
		require.Equal(t, s.holds[0].Token(), hold.Token)
		require.Equal(t, 1, hold.Count)
		require.Equal(t, "redis", hold.Path)
		require.True(t, hold.Since.Equal(p.At.Add(-3*time.Second)))
		require.Len(t, k.Waiters, 2)
		require.Equal(t, []Seconds{1, 0}, []Seconds{k.Waiters[0].Age, k.Waiters[1].Age})
		require.Empty(t, p.Cycles)
		require.Len(t, p.Waits, 2)
		require.Equal(t, uint64(1), p.Totals["grants"])
		require.Contains(t, p.Totals, "failed_releases")
	})
}

func TestWhatIsInTroubleComesFirst(t *testing.T) {
	onStage(t, func(t *testing.T, s *scene) {
		s.lock(s.ctx, "a young hold")
		s.lock(s.ctx, "an old hold")
		s.holds[0].Unlock()
		time.Sleep(time.Minute)
		s.lock(s.ctx, "a young hold")
		s.lock(s.ctx, "a long wait")
		s.queue(s.ctx, "a long wait")
		time.Sleep(time.Second)
		s.lock(s.ctx, "a short wait")
		s.queue(s.ctx, "a short wait")
		s.deadlock("x", "y")
		other := s.Contend("a wanted one")
		time.Sleep(time.Second)
		s.queue(s.ctx, "a wanted one")
		p := s.json("/?format=json")
		var names []string
		for _, k := range p.Keys {
			names = append(names, k.Text)
		}
		require.Equal(t, []string{
			"y", "x", "a long wait", "a short wait", "a wanted one", "an old hold", "a young hold",
		}, names)
		require.True(t, p.Keys[0].Cycle)
		require.False(t, p.Keys[2].Cycle)
		other.Release()
	})
}

func TestLimits(t *testing.T) {
	onStage(t, func(t *testing.T, s *scene) {
		for i := range 250 {
			s.lock(s.ctx, fmt.Sprint("key-", i))
		}
		for range 30 {
			s.queue(s.ctx, "key-7")
		}
		p := s.json("/?format=json")
		require.Len(t, p.Keys, 200)
		require.Equal(t, 50, p.MoreKeys)
		require.Equal(t, "key-7", p.Keys[0].Text)
		require.Len(t, p.Keys[0].Waiters, 10)
		require.Equal(t, 20, p.Keys[0].MoreWaiters)
		require.Equal(t, 250, p.Now.Keys)
		p = s.json("/?format=json&limit=3&each=30")
		require.Len(t, p.Keys, 3)
		require.Equal(t, 247, p.MoreKeys)
		require.Len(t, p.Waits, 3)
		require.Equal(t, 27, p.MoreWaits)
		require.Len(t, p.Keys[0].Waiters, 30)
		p = s.json("/?format=json&limit=-4&each=many")
		require.Len(t, p.Keys, 1)
		require.Len(t, p.Keys[0].Waiters, 10)
		require.Len(t, s.json("/?format=json&limit=99999999999999999999").Keys, 200)
		shows(t, s.get("/").Body.String(), "50 more were left out")
	})
}

func TestFilter(t *testing.T) {
	onStage(t, func(t *testing.T, s *scene) {
		for _, key := range []string{"order:1", "order:1zz", "stock:1", "\xff\x00raw"} {
			s.lock(s.ctx, key)
		}
		names := func(q string) (names []string) {
			for _, k := range s.json("/?format=json&q=" + q).Keys {
				names = append(names, k.Text)
			}
			return names
		}
		require.ElementsMatch(t, []string{"order:1", "order:1zz"}, names("order"))
		require.ElementsMatch(t, []string{"order:1", "order:1zz"}, names("class%20order"))
		require.ElementsMatch(t, []string{"order:1zz"}, names("1zz"))
		require.ElementsMatch(t, []string{`"\xff\x00raw"`}, names("%ff"), "the key's own bytes")
		require.ElementsMatch(t, []string{`"\xff\x00raw"`}, names("%5Cx00"), "as it is shown")
		require.Len(t, names(s.Coordinator.ID()), 4)
		require.Empty(t, names("none"))
		body := s.get("/?q=none").Body.String()
		shows(t, body, `value="none"`)
		shows(t, body, "None of 4 has")
		require.Len(t, s.json("/?format=json&q="+strings.Repeat("a", 100_000)).Query, maxQuery)
		require.Equal(t, 4, s.json("/?format=json&q=1zz").Now.Keys, "the counts are of all")
	}, coordinator.WithTelemetry(telemetry.Config{KeyClass: func(key string) string {
		class, _, _ := strings.Cut(key, ":")
		return "class " + class
	}}))
}

func TestOthersThatHoldAndWantAreTold(t *testing.T) {
	onStage(t, func(t *testing.T, s *scene) {
		release := s.HoldElsewhere("theirs", 0)
		s.queue(s.ctx, "theirs")
		s.lock(s.ctx, "ours")
		other := s.Contend("ours")
		time.Sleep(time.Second)
		p := s.json("/?format=json")
		require.Nil(t, p.Fleet)
		theirs, ours := p.key(t, "theirs"), p.key(t, "ours")
		require.Equal(t, "queued", theirs.Phase)
		require.Equal(t, "elsewhere:1", theirs.Holder)
		require.Equal(t, 0, *theirs.Rank)
		require.False(t, theirs.Wanted)
		require.True(t, ours.Wanted)
		require.Nil(t, ours.Rank)
		require.Equal(t, 1, p.Now.Wanted)
		require.Equal(t, "elsewhere:1", p.Waits[0].Holder)
		shows(t, s.get("/").Body.String(), "wanted by another process")

		p = s.json("/?format=json&fleet=1")
		require.Len(t, p.Fleet.Keys, 2)
		require.Equal(t, "theirs", p.Fleet.Keys[0].Text)
		require.Equal(t, "elsewhere:1", p.Fleet.Keys[0].Holders[0].Owner)
		require.False(t, p.Fleet.Keys[0].Holders[0].Here)
		require.True(t, p.Fleet.Keys[0].Waiters[0].Here)
		require.Equal(t, "elsewhere:2", p.Fleet.Keys[1].Waiters[0].Owner)
		require.Len(t, p.Cycles, 1)
		require.True(t, p.Cycles[0].Possible)
		require.Len(t, p.Cycles[0].Steps, 2)
		body := s.get("/?fleet=1").Body.String()
		shows(t, body, "Possible deadlock")
		shows(t, body, `data-refresh="10"`, "what costs the server something is not so frequent")
		release()
		other.Release()
	})
}

func TestAFailingStoreIsTold(t *testing.T) {
	onStage(t, func(t *testing.T, s *scene) {
		restore := s.Outage(fmt.Errorf("connection <refused>"))
		s.queue(s.ctx, "k")
		time.Sleep(time.Second)
		p := s.json("/?format=json")
		require.Contains(t, p.Keys[0].Failure, "connection <refused>")
		require.Equal(t, 1, p.Now.Failing)
		require.Equal(t, "failed", p.Check.State)
		body := s.get("/").Body.String()
		shows(t, body, "connection &lt;refused&gt;")
		shows(t, body, "The server could not be asked")
		p = s.json("/?format=json&fleet=1")
		require.Contains(t, p.Fleet.Keys[0].Error, "connection <refused>")
		restore()
		restore = s.Outage(errors.New(strings.Repeat("\x00", 1<<20)))
		s.queue(s.ctx, "l")
		time.Sleep(time.Second)
		require.NotEmpty(t, s.json("/?format=json&q=l").Keys[0].Failure)
		require.Less(t, s.get("/?format=json&fleet=1").Body.Len(), 20_000)
		restore()
	})
}

func TestReadersAndReentry(t *testing.T) {
	onStage(t, func(t *testing.T, s *scene) {
		ctx := s.read(s.ctx, "catalog")
		s.read(ctx, "catalog")
		s.read(s.ctx, "catalog")
		k := s.json("/?format=json").key(t, "catalog")
		require.Equal(t, "read/write lock", k.Kind)
		require.Equal(t, "shared", k.Mode)
		require.Len(t, k.Holds, 2)
		require.Equal(t, 2, k.Holds[0].Count)
		require.Equal(t, 2, k.Holds[0].Reads)
		shows(t, s.get("/").Body.String(), "2 times inside")
	})
}

func TestThePlaceOfTheCallIsTold(t *testing.T) {
	onStage(t, func(t *testing.T, s *scene) {
		s.lock(s.ctx, "k")
		require.Contains(t, s.json("/?format=json").Keys[0].Holds[0].Place, "lockz_test.go")
	}, coordinator.WithDebug())
}

func TestMethods(t *testing.T) {
	onStage(t, func(t *testing.T, s *scene) {
		head := request1(s.page, http.MethodHead, "/")
		require.Equal(t, http.StatusOK, head.Code)
		require.Empty(t, head.Body.String())
		require.Equal(t, "text/html; charset=utf-8", head.Header().Get("Content-Type"))
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions} {
			w := request1(s.page, method, "/")
			require.Equal(t, http.StatusMethodNotAllowed, w.Code)
			require.Equal(t, "GET, HEAD", w.Header().Get("Allow"))
		}
	})
}

func TestFormat(t *testing.T) {
	onStage(t, func(t *testing.T, s *scene) {
		for _, c := range []struct{ address, accept, kind string }{
			{"/", "", "text/html"},
			{"/", "*/*", "text/html"},
			{"/", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "text/html"},
			{"/", "application/json", "application/json"},
			{"/", "Application/JSON; charset=utf-8", "application/json"},
			{"/", "text/html;q=0.5, application/json", "application/json"},
			{"/", "text/html, application/json;q=0.5", "text/html"},
			{"/", "application/json;q=0", "text/html"},
			{"/", "application/json;q=x", "text/html"},
			{"/", "application/json;q=nan", "text/html"},
			{"/", "text/html;q=nan, application/json;q=0.1", "application/json"},
			{"/", "text/html;q=inf, application/json", "application/json"},
			{"/", "text/html;q=0.5, application/json;q=2", "text/html"},
			{"/?format=json", "text/html", "application/json"},
			{"/?format=html", "application/json", "text/html"},
		} {
			w := request1(s.page, http.MethodGet, c.address, "Accept", c.accept)
			require.Equal(t, http.StatusOK, w.Code)
			require.Equal(t, c.kind+"; charset=utf-8", w.Header().Get("Content-Type"), "%+v", c)
			require.Equal(t, "Accept", w.Header().Get("Vary"))
		}
		require.Equal(t, http.StatusBadRequest, s.get("/?format=xml").Code)
	})
}

func TestHeader(t *testing.T) {
	onStage(t, func(t *testing.T, s *scene) {
		h := s.get("/").Header()
		require.Equal(t, "nosniff", h.Get("X-Content-Type-Options"))
		require.Equal(t, "no-store", h.Get("Cache-Control"))
		require.Equal(t, "no-referrer", h.Get("Referrer-Policy"))
		policy := h.Get("Content-Security-Policy")
		require.Contains(t, policy, "default-src 'none'")
		require.Contains(t, policy, "frame-ancestors 'none'")
		require.NotContains(t, policy, "unsafe")
	})
}

func TestAnyMountPath(t *testing.T) {
	onStage(t, func(t *testing.T, s *scene) {
		s.lock(s.ctx, "k")
		mux := http.NewServeMux()
		mux.Handle("/debug/lockz", s.page)
		mux.Handle("/debug/lockz/", s.page)
		mux.Handle("/locks/", http.StripPrefix("/locks", s.page))
		for _, address := range []string{"/debug/lockz?q=k", "/debug/lockz/?q=k", "/locks/?q=k"} {
			w := request1(mux, http.MethodGet, address)
			require.Equal(t, http.StatusOK, w.Code)
			body := w.Body.String()
			shows(t, body, `href="?format=json&amp;q=k"`)
			require.NotRegexp(t, `(href|src|action)="[^?d"]`, body, "an address that isn't relative to the page")
		}
	})
}

func TestNobodyWaitsForThePage(t *testing.T) {
	onStage(t, func(t *testing.T, s *scene) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		w := httptest.NewRecorder()
		s.page.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		require.Equal(t, http.StatusServiceUnavailable, w.Code)
		s.page.(*handler).turn <- struct{}{} // another page is being made
		w = httptest.NewRecorder()
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		s.page.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/?fleet=1&format=json", nil))
		require.Equal(t, http.StatusServiceUnavailable, w.Code, "an empty page would say that all is well")
		require.Equal(t, "text/plain; charset=utf-8", w.Header().Get("Content-Type"))
		<-s.page.(*handler).turn
		require.Equal(t, http.StatusOK, s.get("/?fleet=1").Code)
	})
}

func TestAClosedCoordinatorHasAPage(t *testing.T) {
	onStage(t, func(t *testing.T, s *scene) {
		require.NoError(t, s.Coordinator.Close(t.Context()))
		p := s.json("/?format=json&fleet=1")
		require.Empty(t, p.Keys)
		require.Equal(t, "failed", p.Check.State)
		shows(t, s.get("/").Body.String(), "None: nothing is held")
	})
}

func TestOptions(t *testing.T) {
	onStage(t, func(t *testing.T, s *scene) {
		s.page = Handler(s.Coordinator, WithTitle("<b>shop</b>"), WithCheckInterval(0))
		body := s.get("/?refresh=0").Body.String()
		shows(t, body, "Locks of &lt;b&gt;shop&lt;/b&gt;")
		showsNot(t, body, "<noscript>")
		require.Equal(t, "off", s.json("/?format=json").Check.State)
		body = s.get("/?refresh=7&q=k").Body.String()
		shows(t, body, `<noscript><meta http-equiv="refresh" content="7"></noscript>`)
		shows(t, body, `Loaded anew every 7 seconds. <a href="?q=k&amp;refresh=0">Stop that</a>`)
	})
	require.Panics(t, func() { Handler(nil) })
}

// Where traces can be looked at is known from the coordinator.
func TestAHoldsTraceIsALink(t *testing.T) {
	provider := trace.NewTracerProvider()
	onStage(t, func(t *testing.T, s *scene) {
		s.lock(s.ctx, "k")
		at := s.json("/?format=json").Keys[0].Holds[0].Trace
		require.NotNil(t, at)
		require.Equal(t, "http://jaeger/"+at.TraceID+"/"+at.SpanID, at.URL)
		shows(t, s.get("/").Body.String(), `<a href="`+at.URL+`" target="_blank" rel="noopener noreferrer"`)
	}, coordinator.WithTelemetry(telemetry.Config{TracerProvider: provider, TraceURL: "http://jaeger/{trace}/{span}"}))
	require.NoError(t, provider.Shutdown(t.Context()))
}

func TestTracesAreLinks(t *testing.T) {
	span := telemetry.ParseTrace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	require.True(t, span.IsValid())
	h := &handler{}
	require.Equal(t, &Trace{TraceID: "0af7651916cd43dd8448eb211c80319c", SpanID: "b7ad6b7169203331"}, h.trace(span))
	h.conf.telemetry.TraceURL = "http://jaeger/trace/{trace}?uiFind={span}"
	require.Equal(t, "http://jaeger/trace/0af7651916cd43dd8448eb211c80319c?uiFind=b7ad6b7169203331", h.trace(span).URL)
	require.Nil(t, h.trace(telemetry.ParseTrace("nonsense")))
}
