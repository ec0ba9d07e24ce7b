package browsertest

import (
	"context"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// patience is how long a test waits for what has to happen.
const patience = time.Minute

// tab is a page of a browser of its own.
type tab struct {
	t   *testing.T
	ctx context.Context

	scale float64 // of pictures

	mu      sync.Mutex
	trouble []string // dialogs, exceptions, what the console tells
}

// browser starts Chromium with an empty page.
func browser(t *testing.T) *tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.UserDataDir(t.TempDir()),
		chromedp.DisableGPU,
		chromedp.Flag("force-color-profile", "srgb"),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"), // nothing else is to be reached
	)
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium has no sandbox for root
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, closeTab := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		closing, done := context.WithTimeout(ctx, patience)
		defer done()
		if err := chromedp.Cancel(closing); err != nil {
			t.Log("closing the browser:", err)
		}
		closeTab()
		stop()
	})
	b := &tab{t: t, ctx: ctx, scale: 1}
	require.NoError(t, chromedp.Listen(ctx, b.hear))
	b.do(command(log.Enable, cdp.Empty{}), command(runtime.Enable, cdp.Empty{}), command(page.Enable, page.EnableParams{}))
	return b
}

// command is an action that sends a command of the protocol.
func command[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, c, params)
		return err
	})
}

// hear notes what the page does that it should not.
func (b *tab) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *page.EventJavascriptDialogOpening: // it stays open: the test has failed
		b.trouble = append(b.trouble, "dialog: "+e.Message)
	case *runtime.EventExceptionThrown:
		b.trouble = append(b.trouble, "exception: "+e.ExceptionDetails.Text)
	case *log.EventEntryAdded: // refusals by the policy, failed requests
		b.trouble = append(b.trouble, string(e.Entry.Level)+": "+e.Entry.Text+" "+e.Entry.URL)
	case *runtime.EventConsoleAPICalled:
		b.trouble = append(b.trouble, "console."+string(e.Type))
	}
}

// quiet says that nothing was executed that is not the page's own, and that nothing
// of its own failed.
func (b *tab) quiet() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Empty(b.t, b.trouble)
}

// heard returns what was heard so far.
func (b *tab) heard() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.trouble)
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, done := context.WithTimeout(b.ctx, patience)
	defer done()
	require.NoError(b.t, chromedp.Do(ctx, steps...))
}

// open goes to an address and waits until the page is there.
func (b *tab) open(address string) {
	b.t.Helper()
	b.do(chromedp.Navigate(address), chromedp.WaitReady(chromedp.CSS("#live")))
}

// ask evaluates an expression in the page.
func ask[T any](b *tab, expression string) T {
	b.t.Helper()
	return run(b, chromedp.Evaluate[T](expression))
}

// until waits for an expression to be true in the page.
func (b *tab) until(expression string) {
	b.t.Helper()
	_ = run(b, chromedp.Poll[chromedp.Void](expression, chromedp.WithPollingTimeout(patience), chromedp.WithPollingInterval(20*time.Millisecond)))
}

func run[T any](b *tab, action chromedp.Action[T]) T {
	b.t.Helper()
	ctx, done := context.WithTimeout(b.ctx, 2*patience)
	defer done()
	value, err := chromedp.Run(ctx, action)
	require.NoError(b.t, err)
	return value
}

// screen sets the size of the screen, and the colours that its user likes.
func (b *tab) screen(width, height int64, scheme string) {
	b.t.Helper()
	b.do(
		command(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
			Width: width, Height: height, DeviceScaleFactor: b.scale, Mobile: width < 600,
		}),
		command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		}),
	)
}

// anonymous puts one text in the place of another, so that a picture does not show
// where it was made.
func (b *tab) anonymous(text, instead string) {
	b.t.Helper()
	ask[bool](b, `(() => {
		const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
		for (let n = walker.nextNode(); n; n = walker.nextNode()) {
			n.textContent = n.textContent.replaceAll(`+strconv.Quote(text)+`, `+strconv.Quote(instead)+`);
		}
		return true;
	})()`)
}
