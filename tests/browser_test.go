package tests

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

var screenshots = flag.Bool("screenshots", false, "write the screenshots of docs/page.md anew")

// browser is a tab of a real Chromium. A complaint of its console, and a request to another
// place than the page's, fails the test.
type browser struct {
	t         testing.TB
	ctx       context.Context // of the tab
	axe       string          // the text of axe-core
	at        string          // the origin of the page
	inspected int

	mu       sync.Mutex
	expected []string // of complaints: a form with a wrong token is answered 401
}

// newBrowser starts Chromium, with a tab that shows a page.
func newBrowser(t testing.TB, at string) *browser {
	t.Helper()
	bedtest.NeedProcesses(t)
	program, err := exec.LookPath("chromium")
	if err != nil {
		bedtest.Check(t, &testbed.MissingError{Program: "chromium", Fetch: "chromium"})
	}
	axe, err := os.ReadFile("../.cache/lib/axe.js")
	if err != nil {
		bedtest.Check(t, &testbed.MissingError{Program: "axe-core", Fetch: "axe"})
	}
	b := &browser{t: t, axe: string(axe)}
	var cancel context.CancelFunc
	// The test's context has ended before Chromium is asked to.
	b.ctx, cancel = chromedp.NewContext(context.WithoutCancel(t.Context()), chromedp.WithErrorf(t.Logf), chromedp.WithListener(b.watch),
		chromedp.WithAllocatorOptions(chromedp.ExecPath(program)))
	t.Cleanup(func() {
		_ = chromedp.Cancel(b.ctx) // it waits for Chromium to end
		cancel()
	})
	must(t, chromedp.Do(b.ctx)) // the browser ends with this context
	b.expect("401")             // of the page that asks for the token
	b.open(at)
	return b
}

// open shows the page of another ordergate.
func (b *browser) open(at string) {
	b.t.Helper()
	b.mu.Lock()
	b.at = at
	b.mu.Unlock()
	b.do(chromedp.Navigate(at + "/"))
}

// watch judges what happens in the tab.
func (b *browser) watch(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	complain := func(text string) {
		if !slices.ContainsFunc(b.expected, func(e string) bool { return strings.Contains(text, e) }) {
			b.t.Errorf("the browser: %s", text)
		}
	}
	switch event := event.(type) {
	case *runtime.EventConsoleAPICalled:
		complain(fmt.Sprintf("console.%s", event.Type))
	case *runtime.EventExceptionThrown:
		complain((&chromedp.ExceptionError{ExceptionDetails: event.ExceptionDetails}).Error())
	case *log.EventEntryAdded:
		if event.Entry.Level != log.EntryLevelVerbose {
			complain(fmt.Sprintf("%s: %s %s", event.Entry.Level, event.Entry.Text, event.Entry.URL))
		}
	case *network.EventRequestWillBeSent:
		if at := event.Request.URL; !strings.HasPrefix(at, b.at+"/") && !strings.HasPrefix(at, "data:") {
			complain("a request to " + at)
		}
	}
}

// expect passes over complaints with a text from now on.
func (b *browser) expect(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expected = append(b.expected, text)
}

func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 30*time.Second)
	defer cancel()
	must(b.t, chromedp.Do(ctx, actions...))
}

// tell runs a command of the DevTools.
func tell[P, R any](b *browser, command cdp.Command[P, R], params P) R {
	b.t.Helper()
	result, err := chromedp.Call(b.ctx, command, params)
	must(b.t, err)
	return result
}

// eval returns the value of an expression, whose promise is awaited.
func eval[T any](b *browser, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 30*time.Second)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	must(b.t, err)
	return value
}

// text returns what a person reads in an element.
func (b *browser) text(selector string) string {
	b.t.Helper()
	return eval[string](b, fmt.Sprintf(`(document.querySelector(%q) ?? {innerText: ""}).innerText`, selector))
}

// want waits until an element has a text, without a reload.
func (b *browser) want(selector, text string) {
	b.t.Helper()
	last, found := "", false
	defer func() {
		if !found {
			b.t.Logf("%s has %s", selector, last)
		}
	}()
	bedtest.Eventually(b.t, fmt.Sprintf("%s has %q", selector, text), func() bool {
		last = b.text(selector)
		found = strings.Contains(last, text)
		return found
	})
}

// resize makes the window so wide, and dark or light.
func (b *browser) resize(width, height int64, scheme string) {
	b.t.Helper()
	tell(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	b.do(chromedp.EmulateViewport(width, height))
}

// inspect looks at the page in each width, light or dark in turn: all parts are there, nothing sticks out at the
// side, and axe-core has no complaint.
func (b *browser) inspect(what string, widths ...int64) {
	b.t.Helper()
	for _, width := range widths {
		b.resize(width, 900, []string{"light", "dark"}[b.inspected%2])
		b.inspected++
		if strings.Contains(b.text("body"), "could not be made") {
			b.t.Errorf("%s: %s", what, b.text("body"))
		}
		if wide := eval[int64](b, "document.documentElement.scrollWidth"); wide > width {
			b.t.Errorf("%s: %d px wide in a window of %d px: %s", what, wide, width, eval[string](b, `[...document.querySelectorAll("main *")]
				.filter(e => e.getBoundingClientRect().right > innerWidth).map(e => e.outerHTML.slice(0, 100)).slice(0, 3).join("\n")`))
		}
		if !eval[bool](b, "'axe' in window") {
			b.do(chromedp.Evaluate[chromedp.Void](b.axe))
		}
		var violations []struct {
			ID, Help string
			Nodes    []struct{ HTML, FailureSummary string }
		}
		must(b.t, json.Unmarshal([]byte(eval[string](b, "axe.run({resultTypes: ['violations']}).then(r => JSON.stringify(r.violations))")), &violations))
		for _, v := range violations {
			b.t.Errorf("%s at %d px: %s: %s: %+v", what, width, v.ID, v.Help, v.Nodes)
		}
	}
}

// stops goes through the page by the tabulator, and returns the names of what has the focus, in its
// order. Each has to be in sight, and to show that it has the focus.
func (b *browser) stops() (names []string) {
	b.t.Helper()
	const look = `(() => {
		const e = document.activeElement;
		if (!e || e === document.body) return null;
		const s = getComputedStyle(e), r = e.getBoundingClientRect();
		const ahead = !window.lastStop || !!(window.lastStop.compareDocumentPosition(e) & Node.DOCUMENT_POSITION_FOLLOWING);
		window.lastStop = e;
		return {Name: (e.getAttribute('aria-label') || e.innerText || e.id || e.tagName).trim(), Ahead: ahead,
			Outlined: s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2, Seen: r.height > 0 && r.top < innerHeight && r.bottom > 0};
	})()`
	b.do(chromedp.Evaluate[chromedp.Void]("document.activeElement.blur(); scrollTo(0, 0); delete window.lastStop"))
	for len(names) < 200 {
		b.do(chromedp.KeyEvent("\t"))
		stop := eval[*struct {
			Name                  string
			Ahead, Outlined, Seen bool
		}](b, look)
		if stop == nil || !stop.Ahead { // the last one
			break
		}
		if !stop.Outlined || !stop.Seen {
			b.t.Errorf("the focus cannot be seen: %+v", *stop)
		}
		names = append(names, stop.Name)
	}
	return names
}

// scripts lets the page's scripts run, or not, and reloads it.
func (b *browser) scripts(run bool) {
	b.t.Helper()
	tell(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !run})
	b.do(chromedp.Reload())
}

// press presses the button in an element, and waits for the page that follows.
func (b *browser) press(selector string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 30*time.Second)
	defer cancel()
	if _, err := chromedp.RunResponse(ctx, chromedp.Click(chromedp.CSS(selector))); err != nil {
		b.t.Fatal(err)
	}
}

// shoot writes the beginning of the page as a picture of the documentation, if that was asked for.
func (b *browser) shoot(name string, height int64, scheme string) {
	b.t.Helper()
	if !*screenshots {
		return
	}
	b.resize(1120, height, scheme)
	b.do(chromedp.Evaluate[chromedp.Void]("scrollTo(0, 0)"))
	file := filepath.Join("..", "docs", "images", name+".png")
	must(b.t, os.MkdirAll(filepath.Dir(file), 0o755))
	must(b.t, os.WriteFile(file, inFewColours(b.t, tell(b, page.CaptureScreenshot, page.CaptureScreenshotParams{}).Data), 0o644))
}

// inFewColours returns a smaller PNG: with the 64 colours that are most frequent.
func inFewColours(t testing.TB, picture []byte) []byte {
	full, err := png.Decode(bytes.NewReader(picture))
	must(t, err)
	counts := make(map[color.Color]int)
	for y := range full.Bounds().Dy() {
		for x := range full.Bounds().Dx() {
			counts[full.At(x, y)]++
		}
	}
	colours := slices.SortedFunc(maps.Keys(counts), func(a, b color.Color) int { return cmp.Compare(counts[b], counts[a]) })
	few := image.NewPaletted(full.Bounds(), colours[:min(len(colours), 64)])
	draw.Draw(few, few.Bounds(), full, image.Point{}, draw.Src)
	var b bytes.Buffer
	must(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, few))
	return b.Bytes()
}

// pathOf returns the path of the page that is shown.
func (b *browser) pathOf() string {
	b.t.Helper()
	at, err := url.Parse(eval[string](b, "location.href"))
	must(b.t, err)
	return at.RequestURI()
}
