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

// browser is the one of all tests.
var browser struct {
	once sync.Once
	ctx  context.Context
	end  context.CancelFunc
	err  error
}

// startBrowser starts the browser, once.
func startBrowser() { browser.ctx, browser.end, browser.err = newBrowser() }

// newBrowser starts a browser. The function that it returns ends it.
func newBrowser(more ...chromedp.ExecAllocatorOption) (context.Context, context.CancelFunc, error) {
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.NoSandbox, // the tests may be root's, in a container
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

// tab is a page of a browser. What goes wrong in it fails the test.
type tab struct {
	*testing.T
	ctx context.Context

	mu     sync.Mutex
	faults []string
}

// open opens a page in its own tab. What the page keeps, it keeps for the tab.
func open(t *testing.T, url string, before ...chromedp.Action) *tab {
	t.Helper()
	browser.once.Do(startBrowser)
	if browser.err != nil {
		t.Fatalf("the browser does not start: %v", browser.err)
	}
	return openIn(t, browser.ctx, url, before...)
}

// openIn is open in some browser.
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

// listen notes errors of scripts, and what the page's policy has refused.
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

// complains waits until the browser says that something went wrong that was to go
// wrong.
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

// run does actions.
func (p *tab) run(actions ...chromedp.Action) {
	p.Helper()
	if err := chromedp.Run(p.ctx, actions...); err != nil {
		p.Fatalf("the browser: %v", err)
	}
}

// front makes this tab the one that is seen. A page that is not seen asks for nothing.
func (p *tab) front() {
	p.Helper()
	p.run(cdppage.BringToFront())
}

// eval returns the value of an expression, as JSON has it, in out.
func (p *tab) eval(expression string, out any) {
	p.Helper()
	p.run(chromedp.Evaluate(expression, out, func(e *runtime.EvaluateParams) *runtime.EvaluateParams {
		return e.WithAwaitPromise(true)
	}))
}

// noContext is the code by which the browser says that a document is no longer there, among others.
const noContext = -32000

// poll waits until a script is true.
func (p *tab) poll(script string, ok *bool) error {
	return chromedp.Run(p.ctx, chromedp.Poll(script, ok,
		chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(*patience)))
}

// until waits until an expression is true. The browser is asked anew after each of its pictures, so
// there is no time between that could be too short.
func (p *tab) until(what, expression string) {
	p.Helper()
	var ok bool
	// What is not there yet may have no properties yet.
	script := "(() => { try { return Boolean(" + expression + "); } catch { return false; } })()"
	err := p.poll(script, &ok)
	// A document that the browser leaves takes its context with it: then the next one is asked.
	for gone := (*cdproto.Error)(nil); errors.As(err, &gone) && gone.Code == noContext; {
		err = p.poll(script, &ok)
	}
	if err != nil {
		text := ""
		_ = chromedp.Run(p.ctx, chromedp.Evaluate("document.body.innerText.slice(0, 3000)", &text))
		if errors.Is(err, chromedp.ErrPollingTimeout) {
			err = errors.New("it did not come")
		}
		p.Fatalf("%s: %v. The page says:\n%s", what, err, text)
	}
}

// shows waits until the page shows a text.
func (p *tab) shows(text string) {
	p.Helper()
	p.until(fmt.Sprintf("the text %q", text), "document.body.innerText.includes("+quote(text)+")")
}

// counts waits until a view says that it has so many of its things.
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

// refused waits until the page says that the user may not do what it asked for.
func (p *tab) refused() {
	p.Helper()
	p.until("a refusal",
		"/permission denied/i.test(document.querySelector('[role=alert]').textContent)")
}

// view goes to a view by its link, and waits for it.
func (p *tab) view(title string) {
	p.Helper()
	p.click("nav a", title)
	p.until("the view "+title, "document.querySelector('h1')?.textContent === "+quote(title))
}

// find waits for the element that a selector finds and that has a text, and returns the script that
// finds it.
func (p *tab) find(selector, text string) string {
	p.Helper()
	find := fmt.Sprintf("[...document.querySelectorAll(%s)].find((e) => "+
		"e.textContent.replace(/\\s+/g, ' ').trim() === %s)", quote(selector), quote(text))
	p.until(fmt.Sprintf("%s with the text %q", selector, text), find)
	return find
}

// follow clicks a link that leads away from the page, and waits until the browser is there.
func (p *tab) follow(selector, text string) {
	p.Helper()
	find := p.find(selector, text)
	if _, err := chromedp.RunResponse(p.ctx, chromedp.Evaluate(find+".click()", nil)); err != nil {
		p.Fatalf("%s with the text %q leads nowhere: %v", selector, text, err)
	}
}

// click clicks the element that a selector finds and that has a text.
func (p *tab) click(selector, text string) {
	p.Helper()
	find := p.find(selector, text)
	var done bool
	p.eval(fmt.Sprintf("(() => { const e = %s; e?.click(); return Boolean(e); })()", find), &done)
	if !done {
		p.Fatalf("%s with the text %q has gone", selector, text)
	}
}

// fill gives a field a value, as typing does.
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

// press presses keys, one after the other.
func (p *tab) press(keys ...string) {
	p.Helper()
	for _, k := range keys {
		p.run(chromedp.KeyEvent(k))
	}
}

// tabTo presses the tab key until the focus is on an element that a selector finds.
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

// quote writes a text as JavaScript has it.
func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string always can be
	}
	return strings.ReplaceAll(string(b), "\u2028", `\u2028`)
}
