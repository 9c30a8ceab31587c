package page

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// TestKeyboard checks that everything can be reached by keyboard alone: from the top of the page to
// a lease, to an action and its confirmation dialog, and back.
func TestKeyboard(t *testing.T) {
	m := cluster(t, 1)[0]
	id := m.grant(map[string]any{"ttl_ms": 600_000, "name": "by keys"})
	p := open(t, m.url+"/ui/")
	p.shows("healthy")
	p.press(kb.Tab)
	p.until("the way to the content", "document.activeElement.matches('.skip')")
	p.press(kb.Enter)
	p.until("the content", "document.activeElement.id === 'main'")
	p.run(chromedp.Evaluate("document.activeElement.blur()", nil))
	p.tabTo("nav a[href='#/leases']")
	p.press(kb.Enter)
	p.shows(hex(t, id))
	p.tabTo("a.id")
	p.press(kb.Enter)
	p.shows("at expiry")
	p.tabTo("button.act")
	p.press(kb.Enter)
	p.until("a question with the focus in it",
		"document.querySelector('dialog')?.contains(document.activeElement)")
	p.press(kb.Escape)
	p.until("the focus where it was", "!document.querySelector('dialog') && "+
		"document.activeElement.matches('button.act')")
	p.press(kb.Enter)
	p.until("the question again", "document.querySelector('dialog')")
	p.tabTo("dialog button.act")
	p.press(kb.Enter)
	p.shows("The lease has ended")
	p.tabTo("nav a[href='#/plan']")
	p.press(kb.Enter)
	p.tabTo("main nav a[href='#/plan/caches']")
	p.press(kb.Enter)
	reads := "document.querySelector('input[name=reads]').value === "
	p.until("another question", reads+"'0.864'")
	p.tabTo("input[type=range]")
	p.press(kb.ArrowRight, kb.ArrowRight)
	p.until("what the arrows slide to", reads+"'1.1' && "+
		"document.querySelector('.answer').dataset.asked.includes('reads=1.1')")
	p.tabTo("form.card button")
	p.press(kb.Enter)
	p.until("the first value", reads+"'0.864'")
}

// TestKeyboardTables checks that old values of a key, their differences, and users and roles can
// also be reached by keyboard.
func TestKeyboardTables(t *testing.T) {
	m := cluster(t, 1)[0]
	m.put("k", "old", nil)
	m.put("k", "new", nil)
	m.call("/v3/auth/user/add", map[string]any{"name": "al", "password": "pass word"})
	p := open(t, m.url+"/ui/")
	p.shows("healthy")
	p.tabTo("nav a[href='#/keys']")
	p.press(kb.Enter)
	p.shows("revision 3")
	p.tabTo("ul.keys a")
	p.press(kb.Enter)
	p.shows("History")
	p.tabTo("h2 ~ button")
	p.press(kb.Enter)
	p.shows("Before that, the key did not exist")
	p.tabTo("summary")
	p.press(kb.Enter)
	p.until("what differs",
		"document.querySelector('[aria-label=Difference]').textContent === '- old\\n+ new'")
	p.tabTo("[aria-label=Difference]")
	p.tabTo("nav a[href='#/access']")
	p.press(kb.Enter)
	p.shows("Log in with a password")
	p.tabTo("[role=region][aria-label=Users]")
}

// TestAccessible checks that axe-core reports no problems in any view: in the light theme, in the
// dark theme, and at the width of a phone. No view may be wider than the phone.
func TestAccessible(t *testing.T) {
	if *axe == "" {
		t.Skip("without -axe")
	}
	script, err := os.ReadFile(*axe)
	if err != nil {
		t.Fatal(err)
	}
	m := cluster(t, 3)[0]
	id := m.grant(map[string]any{
		"ttl_ms": 600_000, "name": "jobs/nightly", "owner": "node-a",
		"labels": map[string]any{"zone": "east"},
		"keys":   []any{map[string]any{"key": b64("svc/a"), "value": b64("1")}},
	})
	m.grant(map[string]any{"ttl_ms": 600_000, "name": strings.Repeat("w", 900)})
	m.put("lock/"+hex(t, id), "", map[string]any{"lease": id})
	m.put("q/item/000000000001-00-abcdefghij", "payload", nil)
	m.put("q/claim/000000000001-00-abcdefghij", "worker <b>", map[string]any{"lease": id})
	m.put("p/ids", `{"ids":["10.0.0.0/28"],"quarantine_ns":60000000000}`, nil)
	m.node("n", "b", "", false)
	m.call("/v3/auth/user/add", map[string]any{"name": "al", "password": "pass word"})
	m.call("/v3/auth/role/add", map[string]any{"name": "reader"})
	m.call("/v3/auth/role/grant", map[string]any{"name": "reader", "perm": map[string]any{
		"permType": "READ", "key": b64("svc/"),
	}})
	p := open(t, m.url+"/ui/")
	p.shows("healthy")
	for _, dark := range []string{"light", "dark"} {
		for _, width := range []int64{1280, 360} {
			p.run(
				emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{
					{Name: "prefers-color-scheme", Value: dark},
				}),
				chromedp.EmulateViewport(width, 800),
			)
			for at, sign := range map[string]string{
				"overview": "Members", "leases": hex(t, id), "events": "granted", "queues": "lock",
				"caches": "Since this member started",
				"keys":   "svc/", "access": "read: svc/", "lease/" + hex(t, id): "at expiry",
				"keys/c3ZjL2E/key": "mod revision", "groups/queue/cQ": "worker <b>",
				"plan": "lease, L", "plan/caches": "recommended term",
				"plan/length": "USE a lease", "plan/levels": "core's leader", "plan/capacity": "what runs out",
				"groups/nodes/bg": "down", "groups/pool/cA": "kept back",
			} {
				p.run(chromedp.Evaluate(`location.hash = "#/`+at+`"`, nil))
				p.shows(sign)
				p.look(string(script), fmt.Sprintf("%s, %s, %d wide", at, dark, width))
				if strings.HasPrefix(at, "lease/") {
					p.click("button", "Revoke")
					p.until("the question", "document.querySelector('dialog')")
					p.look(string(script), fmt.Sprintf("a question, %s, %d wide", dark, width))
					p.click("dialog button", "Cancel")
				}
			}
		}
	}
}

// look runs axe on the current state of the page.
func (p *tab) look(script, where string) {
	p.Helper()
	p.run(chromedp.ActionFunc(func(ctx context.Context) error {
		return chromedp.Evaluate(script+"; true", nil).Do(ctx)
	}))
	var found, wide string
	p.eval(`axe.run(document, { resultTypes: ["violations"] }).then((r) => JSON.stringify(
		r.violations.map((v) => [v.id, v.help, v.nodes.map((n) => n.html.slice(0, 200))])))`, &found)
	if found != "[]" {
		var list []any
		_ = json.Unmarshal([]byte(found), &list)
		p.Errorf("%s: %v", where, list)
	}
	p.eval(`document.documentElement.scrollWidth > innerWidth ? "it is " +
		document.documentElement.scrollWidth + " wide" : ""`, &wide)
	if wide != "" {
		p.Errorf("%s: %s", where, wide)
	}
}
