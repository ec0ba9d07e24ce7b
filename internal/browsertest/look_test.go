package browsertest

import (
	"bytes"
	"flag"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
)

var update = flag.Bool("update", false, "make the pictures in docs/images anew")

// widths are those of small and large phones, a tablet, and a desk.
var widths = []int64{320, 390, 740, 1200}

func TestNoWidthScrollsSideways(t *testing.T) {
	s := newShop(t, coordinator.WithDebug())
	for _, key := range hostile {
		s.lock(s.ctx, s.here, key)
		s.queue(s.ctx, s.here, key)
		s.queue(s.ctx, s.there, key)
	}
	s.inUse()
	tab := browser(t)
	for _, width := range widths {
		tab.screen(width, 800, "light")
		tab.open(s.page.URL + "/?fleet=1&refresh=0")
		require.LessOrEqual(t, ask[int64](tab, `document.documentElement.scrollWidth`), width)
		require.Empty(t, ask[[]string](tab, `[...document.querySelectorAll("#live *, header *")]
			.filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest("label, .head"))
			.map(e => e.outerHTML.slice(0, 80))`), "what is cut off at %d", width)
		columns := ask[int](tab, `getComputedStyle(document.querySelector("#keys ~ .keys > div:last-child")).gridTemplateColumns.split(" ").length`)
		if width < 736 {
			require.Equal(t, 1, columns)
		} else {
			require.Equal(t, 4, columns)
		}
	}
	tab.quiet()
}

// contrasts returns the texts whose contrast with what is behind them is below what
// WCAG 2 asks for at level AA.
const contrasts = `(() => {
	const parse = (c) => c.match(/[\d.]+/g).map(Number);
	const light = (c) => {
		const [r, g, b] = c.slice(0, 3).map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const behind = (e) => {
		for (; e; e = e.parentElement) {
			const c = parse(getComputedStyle(e).backgroundColor);
			if (c.length === 3 || c[3] > 0) { return c; }
		}
		return [255, 255, 255];
	};
	const poor = [];
	for (const e of document.querySelectorAll("body *:not(script):not(style)")) {
		if (![...e.childNodes].some(n => n.nodeType === Node.TEXT_NODE && n.textContent.trim())) { continue; }
		const a = light(parse(getComputedStyle(e).color)), b = light(behind(e));
		const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		if (ratio < 4.5) { poor.push(ratio.toFixed(2) + " " + e.outerHTML.slice(0, 80)); }
	}
	return poor;
})()`

func TestLightAndDark(t *testing.T) {
	s := newShop(t)
	s.inUse()
	tab := browser(t)
	papers := map[string]string{}
	for _, scheme := range []string{"light", "dark"} {
		tab.screen(1200, 800, scheme)
		tab.open(s.page.URL + "/?fleet=1&refresh=0")
		papers[scheme] = ask[string](tab, `getComputedStyle(document.body).backgroundColor`)
		require.Empty(t, ask[[]string](tab, contrasts), scheme)
	}
	require.NotEqual(t, papers["light"], papers["dark"])
}

// Since when, and the traces of who waits and of who has the key elsewhere, can be seen
// and reached on a phone, where nothing hovers.
func TestAPhoneShowsSinceWhenAndWhere(t *testing.T) {
	s := newShop(t)
	s.inUse()
	tab := browser(t)
	tab.screen(390, 800, "light")
	tab.open(s.page.URL + "/?refresh=0&q=report:daily")
	seen := func(cell string) []string {
		return ask[[]string](tab, `[...document.querySelectorAll("#keys ~ .keys [data-label='`+cell+`'] :is(time, a)")]
			.filter(e => e.checkVisibility() && e.getBoundingClientRect().height > 10).map(e => e.innerText)`)
	}
	require.Equal(t, []string{"trace"}, seen("Lease"), "of the hold there")
	waits := seen("Waiting here")
	require.Len(t, waits, 2)
	require.Regexp(t, `^\d\d:\d\d:\d\d$`, waits[0])
	require.Equal(t, "trace", waits[1])
	tab.open(s.page.URL + "/?refresh=0&q=export:nightly")
	require.Regexp(t, `^\d\d:\d\d:\d\d$`, seen("Held here")[0])
	tab.quiet()
}

// All that can be used can be reached by the keyboard, and seen to be reached.
func TestKeyboard(t *testing.T) {
	s := newShop(t)
	s.inUse()
	tab := browser(t)
	tab.open(s.page.URL + "/?refresh=0")
	usable := ask[int](tab, `document.querySelectorAll("a[href], button, input:not([type=hidden]), summary").length`)
	require.Greater(t, usable, 5)
	for i := range usable {
		tab.do(chromedp.KeyEvent("\t"))
		require.NotEqual(t, "BODY", ask[string](tab, `document.activeElement.tagName`), "the %dth", i)
		require.NotEqual(t, "none", ask[string](tab, `getComputedStyle(document.activeElement).outlineStyle`))
	}
	require.Equal(t, "SUMMARY", ask[string](tab, `document.activeElement.tagName`), "the last one")
	require.Equal(t, "q", ask[string](tab, `document.querySelector("label").htmlFor`))
}

func TestPictures(t *testing.T) {
	s := newShop(t)
	s.inUse()
	tab := browser(t)
	for _, p := range []struct {
		name, scheme, address string
		width, height         int64 // height 0: all of the page
	}{
		{name: "lockz.png", scheme: "light", address: "/?fleet=1&refresh=60", width: 1100},
		{name: "lockz-phone.png", scheme: "dark", address: "/?refresh=60", width: 390, height: 1000},
	} {
		tab.scale = 1.25
		tab.screen(p.width, max(p.height, 800), p.scheme)
		tab.open(s.page.URL + p.address)
		tab.anonymous(s.here.ID(), "shop-1-6f1e0c9a52d8")
		tab.anonymous(s.there.ID(), "reports-1-b07d34e81c5f")
		action := chromedp.FullScreenshot(100)
		if p.height > 0 {
			action = chromedp.CaptureScreenshot()
		}
		picture, err := png.Decode(bytes.NewReader(run(tab, action)))
		require.NoError(t, err)
		require.GreaterOrEqual(t, picture.Bounds().Dx(), int(p.width))
		if *update {
			require.NoError(t, os.WriteFile(filepath.Join("..", "..", "docs", "images", p.name), small(t, picture), 0o644))
		}
	}
	tab.quiet()
}

// small returns a picture as a file, in the 256 colours that are most frequent in
// it.
func small(t *testing.T, picture image.Image) []byte {
	t.Helper()
	count := map[color.RGBA]int{}
	b := picture.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			count[color.RGBAModel.Convert(picture.At(x, y)).(color.RGBA)]++
		}
	}
	var palette color.Palette
	for _, c := range slices.SortedFunc(maps.Keys(count), func(a, b color.RGBA) int { return count[b] - count[a] }) {
		if len(palette) < 256 {
			palette = append(palette, c)
		}
	}
	few := image.NewPaletted(b, palette)
	draw.Draw(few, b, picture, b.Min, draw.Src)
	var file bytes.Buffer
	require.NoError(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&file, few))
	return file.Bytes()
}
