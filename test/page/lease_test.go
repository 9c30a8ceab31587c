package page

import (
	"context"
	"fmt"
	"testing"

	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// TestRenewals checks that the page of a lease shows all its renewals, including those made from
// the page, and misses none between events.
func TestRenewals(t *testing.T) {
	m := cluster(t, 1)[0]
	id := m.grant(map[string]any{"ttl_ms": 600_000, "name": "renewed"})
	p := open(t, m.url+"/ui/#/lease/"+hex(t, id))
	seen := func(n int) {
		t.Helper()
		p.until(fmt.Sprintf("%d renewals", n), fmt.Sprintf(
			"document.querySelector('[data-renewals]').dataset.renewals === '%d' && "+
				"document.querySelectorAll('.strip i:not([class=told]):not(.left)').length === %[1]d", n))
	}
	fallen := "Number(/(\\d+) s/.exec([...document.querySelectorAll('dt')].find((e) => " +
		"e.textContent.startsWith('time left')).nextSibling.textContent)[1]) < 59"
	seen(0)
	for n := range 3 {
		p.until("less time", fallen)
		if n < 2 {
			m.call("/v1/leases/renew", map[string]any{"leases": []any{map[string]any{"id": id}}})
		} else {
			p.click("button", "Renew")
			p.shows("The lease lives for 600 s from now")
			p.click("dialog button", "Renew")
		}
		seen(n + 1)
	}
	var green bool
	p.eval("document.querySelector('.strip .left').getBoundingClientRect().width > 100", &green)
	if !green {
		t.Error("what is left is not drawn")
	}
	lease := m.call("/v1/leases/describe", map[string]any{"id": id})["lease"].(map[string]any)
	m.call("/v1/leases/ttl", map[string]any{
		"lease": map[string]any{"id": id, "token": lease["token"]}, "ttl_ms": 500_000,
	})
	p.until("the event", "document.querySelector('.strip .told')")
	p.picture("lease")
}

// TestRenewalsBesideLateAnswers checks that a late response is not mistaken for a renewal and does
// not hide one.
func TestRenewalsBesideLateAnswers(t *testing.T) {
	m := cluster(t, 1)[0]
	id := m.grant(map[string]any{"ttl_ms": 600_000})
	p := open(t, m.url+"/ui/#/lease/"+hex(t, id), chromedp.ActionFunc(func(ctx context.Context) error {
		_, err := cdppage.AddScriptToEvaluateOnNewDocument(`window.answered = 0;
			window.fetch = ((send) => {
				let sent = 0;
				return async (...what) => {
					if (!String(what[0]).endsWith("leases/describe")) return send(...what);
					if (sent++ % 2 === 0) await new Promise((done) => setTimeout(done, 700));
					const answer = await send(...what);
					window.answered++;
					return answer;
				};
			})(window.fetch);`).Do(ctx)
		return err
	}))
	seen := "document.querySelector('[data-renewals]').dataset.renewals"
	for n := range 2 {
		p.until("answers", fmt.Sprintf("%s === '%d' && window.answered >= %d", seen, n, 4*(n+1)))
		m.call("/v1/leases/renew", map[string]any{"leases": []any{map[string]any{"id": id}}})
		p.until("the renewal", fmt.Sprintf("%s === '%d'", seen, n+1))
	}
}

// TestJeopardy checks that a lease is shown as in jeopardy once its known validity has run out and
// no end has been reported. Two of three members are killed, so no lease can end, and are later
// restarted.
func TestJeopardy(t *testing.T) {
	all := cluster(t, 3)
	m := all[0]
	kept := m.grant(map[string]any{"ttl_ms": 3_600_000, "name": "kept"})
	p := open(t, m.url+"/ui/#/leases")
	p.counts(1)
	// Halfway through the TTL, the page shows that the lease is not being renewed. The members are
	// killed during the second half.
	id := m.grant(map[string]any{"ttl_ms": 30_000, "name": "alone"})
	p.shows(hex(t, id))
	state := fmt.Sprintf("[...document.querySelectorAll('.row')].find((r) => "+
		"r.textContent.includes('%s')).querySelector('.state').textContent === ", hex(t, id))
	p.until("that nobody renews it", state+"'silent' || "+state+"'expiring'")
	for _, other := range all[1:] {
		other.kill()
	}
	p.until("the jeopardy", state+"'in jeopardy'")
	p.until("that nothing is certain", timeOf(t, id)+" === 'not known'")
	p.picture("jeopardy")
	p.fill("select", "in jeopardy")
	p.counts(1)
	p.fill("select", "alive")
	p.until("only the other", fmt.Sprintf("!document.body.innerText.includes('%s') && "+
		"document.body.innerText.includes('%s')", hex(t, id), hex(t, kept)))
	for _, other := range all[1:] {
		other.start()
	}
	p.fill("select", "")
	p.counts(1)
	p.run(chromedp.Evaluate(`location.hash = "#/lease/`+hex(t, id)+`"`, nil))
	p.shows("Lease not found")

	// A lease that is off screen, and was healthy when its state was requested, stays "alive".
	var states string
	p.eval(`import("./live.js").then((m) => [[900], [900, true], [400], [100], [0]].map(
		([left, hinted]) => m.stateOf({ asked: 0, remaining_ms: left, ttl_ms: 1000, hinted }, 500)).
		join())`, &states)
	if states != "alive,expiring,in jeopardy,in jeopardy,in jeopardy" {
		t.Errorf("states at 500: %s", states)
	}
	p.eval(`import("./live.js").then((m) => [900, 400].map((left) =>
		m.stateOf({ asked: 0, remaining_ms: left, ttl_ms: 1000 }, 2000)).join())`, &states)
	if states != "alive,in jeopardy" {
		t.Errorf("states at 2000: %s", states)
	}
}
