package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto"
	"github.com/chromedp/cdproto/log"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// browser is shared by all tests.
var browser struct {
	once sync.Once
	ctx  context.Context
	end  context.CancelFunc
	err  error
}

// startBrowser starts the shared browser.
func startBrowser() { browser.ctx, browser.end, browser.err = newBrowser() }

// newBrowser starts a browser and returns a function that stops it.
func newBrowser(more ...chromedp.ExecAllocatorOption) (context.Context, context.CancelFunc, error) {
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.NoSandbox, // in a container, the tests may run as root
		chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.Flag("disable-gpu", true),
		chromedp.WSURLReadTimeout(*patience),
		chromedp.WindowSize(1280, 900),
		chromedp.Flag("ignore-certificate-errors-spki-list", vouched.pin),
		chromedp.Flag("host-resolver-rules", "MAP *.test 127.0.0.1"),
	)
	if *chromium != "" {
		options = append(options, chromedp.ExecPath(*chromium))
	}
	ctx, endAll := chromedp.NewExecAllocator(context.Background(), append(options, more...)...)
	ctx, end := chromedp.NewContext(ctx)
	return ctx, func() { end(); endAll() }, chromedp.Run(ctx)
}

// tab is a browser tab. Errors in it fail the test.
type tab struct {
	*testing.T
	ctx context.Context

	mu     sync.Mutex
	faults []string
}

// open opens a page in a separate tab. Data that the page stores is limited to this tab.
func open(t *testing.T, url string, before ...chromedp.Action) *tab {
	t.Helper()
	browser.once.Do(startBrowser)
	if browser.err != nil {
		t.Fatalf("the browser does not start: %v", browser.err)
	}
	return openIn(t, browser.ctx, url, before...)
}

// openIn is like open, but uses the given browser.
func openIn(t *testing.T, in context.Context, url string, before ...chromedp.Action) *tab {
	t.Helper()
	ctx, end := chromedp.NewContext(in)
	ctx, late := context.WithTimeout(ctx, 4*(*patience))
	p := &tab{T: t, ctx: ctx}
	t.Cleanup(func() {
		late()
		end()
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, f := range p.faults {
			t.Errorf("in the page: %s", f)
		}
	})
	chromedp.ListenTarget(ctx, p.listen)
	p.run(append(before, chromedp.Navigate(url))...)
	return p
}

// listen records script errors and content blocked by the page's security policy.
func (p *tab) listen(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		p.faults = append(p.faults, e.ExceptionDetails.Error())
	case *log.EventEntryAdded:
		if e.Entry.Source == log.SourceSecurity || e.Entry.Source == log.SourceViolation {
			p.faults = append(p.faults, e.Entry.Text)
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.APITypeError || e.Type == runtime.APITypeAssert {
			p.faults = append(p.faults, fmt.Sprintf("%s: %v", e.Type, e.Args))
		}
	}
}

// complains waits until the browser reports an expected error.
func (p *tab) complains(of string) {
	p.Helper()
	limit, end := context.WithTimeout(p.ctx, *patience)
	defer end()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		p.mu.Lock()
		at := slices.IndexFunc(p.faults, func(f string) bool { return strings.Contains(f, of) })
		if at >= 0 {
			p.faults = slices.Delete(p.faults, at, at+1)
		}
		p.mu.Unlock()
		if at >= 0 {
			return
		}
		select {
		case <-tick.C:
		case <-limit.Done():
			p.Fatalf("the browser does not say: %s", of)
		}
	}
}

// run executes actions.
func (p *tab) run(actions ...chromedp.Action) {
	p.Helper()
	if err := chromedp.Run(p.ctx, actions...); err != nil {
		p.Fatalf("the browser: %v", err)
	}
}

// front brings this tab to the front. A page in the background sends no requests.
func (p *tab) front() {
	p.Helper()
	p.run(cdppage.BringToFront())
}

// eval evaluates an expression and decodes its value from JSON into out.
func (p *tab) eval(expression string, out any) {
	p.Helper()
	p.run(chromedp.Evaluate(expression, out, func(e *runtime.EvaluateParams) *runtime.EvaluateParams {
		return e.WithAwaitPromise(true)
	}))
}

// noContext is the error code that the browser uses, among other things, to report that a document
// is gone.
const noContext = -32000

// poll waits until a script returns true.
func (p *tab) poll(script string, ok *bool) error {
	return chromedp.Run(p.ctx, chromedp.Poll(script, ok,
		chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(*patience)))
}

// until waits until an expression is true. The browser evaluates it repeatedly, so tests need no
// sleeps that could be too short.
func (p *tab) until(what, expression string) {
	p.Helper()
	var ok bool
	// An element that does not exist yet has no properties.
	script := "(() => { try { return Boolean(" + expression + "); } catch { return false; } })()"
	err := p.poll(script, &ok)
	// When the browser leaves a document, the document's context is destroyed. In that case, poll
	// the next document.
	for gone := (*cdproto.Error)(nil); errors.As(err, &gone) && gone.Code == noContext; {
		err = p.poll(script, &ok)
	}
	if err != nil {
		text := ""
		_ = chromedp.Run(p.ctx, chromedp.Evaluate("document.body.innerText.slice(0, 3000)", &text))
		if errors.Is(err, chromedp.ErrPollingTimeout) {
			err = errors.New("it did not come")
		}
		p.Fatalf("The page says:\n%s\n\n%s: %v", text, what, err)
	}
}

// shows waits until the page shows a text.
func (p *tab) shows(text string) {
	p.Helper()
	p.until(fmt.Sprintf("the text %q", text), "document.body.innerText.includes("+quote(text)+")")
}

// counts waits until a view reports n items.
func (p *tab) counts(n int) {
	p.Helper()
	p.until(fmt.Sprintf("a count of %d", n),
		fmt.Sprintf("document.querySelector('[data-count]').dataset.count === '%d'", n))
}

// value waits until the page shows the value of a key.
func (p *tab) value(want string) {
	p.Helper()
	p.until(fmt.Sprintf("the value %q", want),
		"document.querySelector('pre.value').textContent === "+quote(want))
}

// refused waits until the page reports that the user lacks a permission.
func (p *tab) refused() {
	p.Helper()
	p.until("a refusal",
		"/permission denied/i.test(document.querySelector('[role=alert]').textContent)")
}

// view follows the link to a view and waits for the view.
func (p *tab) view(title string) {
	p.Helper()
	p.click("nav a", title)
	p.until("the view "+title, "document.querySelector('h1')?.textContent === "+quote(title))
}

// find waits for an element that matches a selector and contains a text. It returns a script that
// finds the element.
func (p *tab) find(selector, text string) string {
	p.Helper()
	find := fmt.Sprintf("[...document.querySelectorAll(%s)].find((e) => "+
		"e.textContent.replace(/\\s+/g, ' ').trim() === %s)", quote(selector), quote(text))
	p.until(fmt.Sprintf("%s with the text %q", selector, text), find)
	return find
}

// follow clicks a link to another page and waits until the browser has loaded it.
func (p *tab) follow(selector, text string) {
	p.Helper()
	find := p.find(selector, text)
	if _, err := chromedp.RunResponse(p.ctx, chromedp.Evaluate(find+".click()", nil)); err != nil {
		p.Fatalf("%s with the text %q leads nowhere: %v", selector, text, err)
	}
}

// click clicks the element that matches a selector and contains a text.
func (p *tab) click(selector, text string) {
	p.Helper()
	find := p.find(selector, text)
	var done bool
	p.eval(fmt.Sprintf("(() => { const e = %s; e?.click(); return Boolean(e); })()", find), &done)
	if !done {
		p.Fatalf("%s with the text %q has gone", selector, text)
	}
}

// fill sets the value of a field as typing would.
func (p *tab) fill(selector, value string) {
	p.Helper()
	p.until("the field "+selector, "document.querySelector("+quote(selector)+")")
	p.eval(fmt.Sprintf(`(() => {
		const e = document.querySelector(%s);
		e.value = %s;
		e.dispatchEvent(new Event("input", { bubbles: true }));
		e.dispatchEvent(new Event("change", { bubbles: true }));
		return true;
	})()`, quote(selector), quote(value)), nil)
}

// press presses keys in order.
func (p *tab) press(keys ...string) {
	p.Helper()
	for _, k := range keys {
		p.run(chromedp.KeyEvent(k))
	}
}

// tabTo presses the Tab key until an element matching a selector has the focus.
func (p *tab) tabTo(selector string) {
	p.Helper()
	for range 200 {
		var there bool
		p.eval("Boolean(document.activeElement?.matches("+quote(selector)+"))", &there)
		if there {
			return
		}
		p.press(kb.Tab)
	}
	p.Fatalf("the tab key does not come to %s", selector)
}

// quote returns a string as a JavaScript literal.
func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string can always be encoded
	}
	return strings.ReplaceAll(string(b), "\u2028", `\u2028`)
}
