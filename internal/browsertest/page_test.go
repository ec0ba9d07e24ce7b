package browsertest

import (
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/telemetry"
)

// hostile are keys that do something where they are not escaped.
var hostile = []string{
	`<script>window.pwned=1</script>`,
	`"><img src=x onerror=window.pwned=1>`,
	`' onmouseover='window.pwned=1' autofocus onfocus='window.pwned=1`,
	`</style><script>window.pwned=1</script>`,
	`</script><script>alert(1)</script>`,
	`</title></textarea></noscript><svg onload=window.pwned=1>`,
	`<iframe srcdoc="<script>parent.pwned=1</script>">`,
	`<meta http-equiv=refresh content="0;url=javascript:window.pwned=1">`,
	`<base href="//elsewhere/">`, `<style>*{display:none}</style>`, `<form action="//elsewhere"><button autofocus>`,
	`javascript:alert(1)`, `{{.ID}}`, "`${alert(1)}`", `<!--`, `]]>`,
	"\x00\x01\x1b[31m\r\n", "\xff\xfe\xfd", "a\xc3", "\u202egnp.exe", "\u2028", "\ufeff",
	strings.Repeat("z\u0301\u0302\u0303", 20),
	strings.Repeat("W", 120), strings.Repeat("é", coordinator.MaxKey/2), strings.Repeat("<b>", 1000),
}

func TestNothingOfAKeyIsExecuted(t *testing.T) {
	s := newShop(t, coordinator.WithTelemetry(telemetry.Config{
		KeyClass: func(key string) string { return key }, TraceURL: "javascript:alert('{trace}')",
		TracerProvider: trace.NewTracerProvider(),
	}))
	for _, key := range hostile {
		s.lock(s.ctx, s.here, key)
		s.queue(s.ctx, s.here, key)
	}
	a, b := s.lock(s.ctx, s.here, hostile[0]+"a"), s.lock(s.ctx, s.here, hostile[1]+"b")
	s.queue(a, s.here, hostile[1]+"b")
	s.queue(b, s.here, hostile[0]+"a")
	tab := browser(t)
	unharmed := func() {
		t.Helper()
		require.False(t, ask[bool](tab, `"pwned" in window`))
		require.Equal(t, 1, ask[int](tab, `document.scripts.length`))
		require.Zero(t, ask[int](tab, `document.querySelectorAll("img, svg, iframe, base, main form, main style, [onerror], [onfocus], [onload]").length`))
		require.Zero(t, ask[int](tab, `[...document.links].filter(a => !/^https?:$/.test(a.protocol)).length`))
		tab.quiet()
	}
	addresses := []string{"/?refresh=1", "/?fleet=1&each=1000"}
	for _, key := range hostile {
		if len(key) < 1000 {
			addresses = append(addresses, "/"+url.PathEscape(key)+"?"+url.Values{"q": {key}, "refresh": {"0"}}.Encode())
		}
	}
	for _, address := range addresses {
		tab.open(s.page.URL + address)
		unharmed()
	}
	tab.open(s.page.URL + "/?refresh=1")
	before := ask[string](tab, `document.querySelector("time").dateTime`)
	tab.until(`document.querySelector("time").dateTime !== "` + before + `"`) // what was fetched is harmless, too
	unharmed()
	tab.do(chromedp.SendKeys(chromedp.CSS("#q"), hostile[0]))
	tab.until(`document.querySelectorAll("#live [role=rowheader]").length === 3`) // the key, that with an a, and one with more before it
	unharmed()
	require.Equal(t, hostile[0]+"a", ask[string](tab, `document.querySelector("#live [role=rowheader] .key").textContent`))
	require.Zero(t, ask[int](tab, `document.querySelectorAll("a[target]:not([href='#ZgotmplZ'])").length`), "an address that is none")
}

// If something did slip in, the policy would stop it.
func TestThePolicyStopsWhatSlipsIn(t *testing.T) {
	s := newShop(t)
	tab := browser(t)
	tab.open(s.page.URL + "/?refresh=0")
	tab.quiet()
	ask[bool](tab, `(() => {
		document.getElementById("live").innerHTML = '<img src=x onerror="window.pwned=1"><a id=bad href="javascript:window.pwned=1">x</a>';
		const script = document.createElement("script");
		script.textContent = "window.pwned=1";
		document.body.append(script);
		document.getElementById("bad").click();
		return true;
	})()`)
	tab.until(`document.getElementById("bad") !== null`)
	s.until(func() bool { return len(tab.heard()) >= 3 }) // the image, the script, the address
	require.False(t, ask[bool](tab, `"pwned" in window`))
	for _, refusal := range tab.heard() {
		require.Contains(t, refusal, "Content Security Policy")
	}
}

func TestThePageBringsItselfUpToDate(t *testing.T) {
	s := newShop(t)
	for i := range 60 {
		s.lock(s.ctx, s.here, "shelf:"+strings.Repeat("x", i+1))
	}
	tab := browser(t)
	tab.screen(1000, 700, "light")
	tab.open(s.page.URL + "/?refresh=1")
	shows := func(key string) string {
		return `[...document.querySelectorAll("#keys ~ .keys .key")].some(k => k.textContent === "` + key + `")`
	}
	require.False(t, ask[bool](tab, shows("new")))
	tab.do(chromedp.Click(chromedp.CSS("summary")))
	ask[bool](tab, `(() => { scrollTo(0, 400); window.same = true; return true })()`)
	require.Equal(t, 400, ask[int](tab, `Math.round(scrollY)`))
	s.lock(s.ctx, s.here, "new")
	tab.until(shows("new"))
	require.True(t, ask[bool](tab, `window.same === true`), "it was not loaded anew")
	require.Equal(t, 400, ask[int](tab, `Math.round(scrollY)`))
	require.True(t, ask[bool](tab, `document.querySelector("details").open`))
	require.Equal(t, "SUMMARY", ask[string](tab, `document.activeElement.tagName`))

	// What is typed stays, and chooses.
	tab.do(chromedp.SendKeys(chromedp.CSS("#q"), "new"))
	tab.until(`document.querySelectorAll("#live [role=rowheader]").length === 1`)
	require.Contains(t, ask[string](tab, `location.search`), "q=new")
	require.Equal(t, "q", ask[string](tab, `document.activeElement.id`))
	s.lock(s.ctx, s.here, "newer")
	tab.until(shows("newer"))
	require.Equal(t, "new", ask[string](tab, `document.getElementById("q").value`))
	require.Equal(t, 2, ask[int](tab, `document.querySelectorAll("#live [role=rowheader]").length`))
	tab.quiet()
}

func TestThePageCanBePaused(t *testing.T) {
	s := newShop(t)
	tab := browser(t)
	tab.open(s.page.URL + "/?refresh=1")
	tab.do(chromedp.Click(chromedp.CSS("#pause")))
	tab.until(`document.getElementById("pause").getAttribute("aria-pressed") === "true"`)
	require.Equal(t, "Go on", ask[string](tab, `document.getElementById("pause").textContent`))
	require.Contains(t, ask[string](tab, `location.search`), "refresh=0")
	run(tab, chromedp.Evaluate[chromedp.Void](`fetch(location.href)`, chromedp.EvalAwaitPromise)) // what was on its way is through
	still := func() {
		t.Helper()
		asked := s.asked.Load()
		// Three of its seconds in which nothing must happen: there is no event to wait for.
		run(tab, chromedp.Evaluate[chromedp.Void](`new Promise(r => setTimeout(r, 3000))`, chromedp.EvalAwaitPromise))
		require.Equal(t, asked, s.asked.Load())
	}
	still()
	tab.open(ask[string](tab, `location.href`)) // its address knows
	still()
	asked := s.asked.Load()
	tab.do(chromedp.Click(chromedp.CSS("#pause")))
	s.until(func() bool { return s.asked.Load() > asked+1 })
	require.Equal(t, "Pause", ask[string](tab, `document.getElementById("pause").textContent`))
	tab.quiet()
}

// Pause and Go on leave the page as fast as it was.
func TestThePageGoesOnAsItWas(t *testing.T) {
	s := newShop(t)
	tab := browser(t)
	for address, after := range map[string]string{"/?refresh=60": "60", "/": "2", "/?refresh=0": "2"} {
		tab.open(s.page.URL + address)
		for ask[string](tab, `document.getElementById("pause").textContent`) != "Go on" {
			tab.do(chromedp.Click(chromedp.CSS("#pause")))
		}
		asked := s.asked.Load()
		tab.do(chromedp.Click(chromedp.CSS("#pause")))
		s.until(func() bool { return s.asked.Load() > asked })
		tab.until(`document.getElementById("live").dataset.refresh === "` + after + `"`)
		require.Equal(t, address == "/?refresh=60", ask[bool](tab, `location.search === "?refresh=60"`), address)
	}
	tab.quiet()
}

// What was on its way when the page was paused is not put in: what is seen then is
// what somebody wants to look at. What that one asks for is.
func TestAnAnswerOnItsWayDoesNotMoveAPausedPage(t *testing.T) {
	s := newShop(t)
	s.lock(s.ctx, s.here, "before")
	tab := browser(t)
	tab.open(s.page.URL + "/?refresh=1")
	shows := func(key string) string {
		return `[...document.querySelectorAll("#keys ~ .keys .key")].some(k => k.textContent === "` + key + `")`
	}
	slow := make(chan struct{})
	s.slow.Store(&slow)
	s.until(func() bool { return s.slowed.Load() == 1 })
	tab.do(chromedp.Click(chromedp.CSS("#pause")))
	s.slow.Store(nil)
	s.lock(s.ctx, s.here, "after")
	close(slow)
	s.until(func() bool { return s.slowed.Load() == 0 })
	run(tab, chromedp.Evaluate[chromedp.Void](`fetch(location.href)`, chromedp.EvalAwaitPromise)) // what was on its way is through
	require.False(t, ask[bool](tab, shows("after")))

	slow = make(chan struct{})
	tab.do(chromedp.Click(chromedp.CSS("#pause")))
	tab.until(shows("after"))
	s.slow.Store(&slow)
	tab.do(chromedp.SendKeys(chromedp.CSS("#q"), "after"))
	s.until(func() bool { return s.slowed.Load() > 0 })
	tab.until(`location.search.includes("q=after")`)
	tab.do(chromedp.Click(chromedp.CSS("#pause")))
	s.slow.Store(nil)
	close(slow)
	tab.until(`document.querySelectorAll("#live [role=rowheader]").length === 1`)
}

// Somebody who marks a key to copy it doesn't lose it.
func TestAMarkedKeyStays(t *testing.T) {
	s := newShop(t)
	s.lock(s.ctx, s.here, "order:42")
	tab := browser(t)
	tab.open(s.page.URL + "/?refresh=1")
	ask[bool](tab, `(() => {
		window.marked = document.querySelector("#keys ~ .keys .key");
		getSelection().selectAllChildren(window.marked);
		return true;
	})()`)
	asked := s.asked.Load()
	s.until(func() bool { return s.asked.Load() >= asked+3 }) // the first two are through
	require.True(t, ask[bool](tab, `document.contains(window.marked)`))
	require.Equal(t, "order:42", ask[string](tab, `getSelection().toString()`))
	ask[bool](tab, `(() => { getSelection().removeAllRanges(); return true })()`)
	tab.until(`!document.contains(window.marked)`)
}

func TestThePageSaysThatItIsNotUpToDate(t *testing.T) {
	s := newShop(t)
	s.lock(s.ctx, s.here, "order:42")
	tab := browser(t)
	tab.open(s.page.URL + "/?refresh=1")
	s.away.Store(true)
	tab.until(`document.getElementById("status").textContent.includes("503")`)
	require.True(t, ask[bool](tab, `document.body.innerText.includes("order:42")`), "the last state stays")
	s.away.Store(false)
	tab.until(`document.getElementById("status").textContent === ""`)
}

func TestThePageWorksWithoutScripts(t *testing.T) {
	s := newShop(t)
	tab := browser(t)
	tab.do(command(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}))
	tab.open(s.page.URL + "/?refresh=1")
	asked := s.asked.Load()
	s.until(func() bool { return s.asked.Load() > asked+1 })
	s.lock(s.ctx, s.here, "order:42")
	tab.open(s.page.URL + "/?refresh=0&q=order")
	require.Contains(t, run(tab, chromedp.OuterHTML(chromedp.CSS("#live"))), "order:42")

	// It can be stopped, so that there is time to type.
	tab.open(s.page.URL + "/?refresh=1&q=order")
	tab.do(chromedp.Click(chromedp.CSS("noscript a")))
	tab.do(chromedp.WaitReady(chromedp.CSS("#q")), chromedp.WaitNotPresent(chromedp.CSS("noscript")))
	require.Equal(t, "?q=order&refresh=0", run(tab, chromedp.Evaluate[string](`location.search`)))
	require.Equal(t, "true", run(tab, chromedp.Evaluate[string](`String(document.getElementById("pause").hidden)`)), "there is nothing to pause")
	tab.quiet()
}

func TestADeadlockIsSeen(t *testing.T) {
	s := newShop(t)
	s.inUse()
	tab := browser(t)
	tab.open(s.page.URL + "/?fleet=1")
	require.Equal(t, []string{"Deadlock", "Possible deadlock"}, ask[[]string](tab, `[...document.querySelectorAll(".cycle h3")].map(h => h.textContent)`))
	require.Equal(t, "shop: locks (deadlock)", ask[string](tab, `document.title`))
	require.Equal(t, 2, ask[int](tab, `document.querySelectorAll(".keys > .stuck").length`))
	links := ask[[]string](tab, `[...document.querySelectorAll("a[target]")].map(a => a.href)`)
	require.NotEmpty(t, links)
	for _, link := range links {
		require.Regexp(t, `^http://127.0.0.1:16686/trace/[0-9a-f]{32}\?uiFind=[0-9a-f]{16}$`, link)
	}
	require.GreaterOrEqual(t, ask[int](tab, `Number(document.getElementById("live").dataset.refresh)`), 10)
	tab.quiet()
}
