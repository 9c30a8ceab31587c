package page

import (
	"context"
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"
)

// Goal: a hundred thousand leases are listed, and the page has only those that are seen. How long
// its pictures take is printed, and is nobody's promise.
func TestManyLeases(t *testing.T) {
	m := cluster(t, 1)[0]
	const all = 100_000
	m.many(all)
	p := open(t, m.url+"/ui/#/leases")
	p.counts(all)
	p.until("the stream", "document.querySelector('[data-state=live]')")
	var r struct {
		Rows, Most         int
		Frames             int
		Median, Late, Last float64
		Reached            bool
	}
	p.eval(`(async () => {
		const body = document.querySelector(".rows .body");
		const rows = () => document.querySelectorAll(".rows .all .row").length;
		const times = [];
		let most = rows(), last = performance.now();
		for (let i = 1; i <= 300; i++) {
			body.scrollTop = (body.scrollHeight * i) / 300;
			const at = await new Promise((done) => requestAnimationFrame(done));
			times.push(at - last);
			last = at;
			most = Math.max(most, rows());
		}
		times.sort((a, b) => a - b);
		const bottom = body.scrollTop + body.clientHeight >= body.scrollHeight - 1;
		return { Rows: rows(), Most: most, Frames: times.length, Reached: bottom,
			Median: times[150], Late: times[284], Last: times[299] };
	})()`, &r)
	t.Logf("scrolled through %d leases in %d pictures: %.1f ms median, %.1f ms at 95%%, "+
		"%.1f ms at most; %d rows at most", all, r.Frames, r.Median, r.Late, r.Last, r.Most)
	if r.Most > 100 || r.Rows < 5 || !r.Reached {
		t.Errorf("%+v", r)
	}
	t.Logf("it shows %d leases, and asks for those that are seen: %.1f%% of a core in its main thread",
		all, 100*p.load(10))
	p.until("the last row", fmt.Sprintf(
		`document.querySelector(".rows .row[aria-rowindex='%d']")`, all+1))
	p.until("what is left of rows that are seen",
		"/\\d+ min/.test(document.querySelector('.rows .all').innerText)")
	p.fill("input[type=search]", "name:many/099999")
	p.counts(1)
}

// load returns which part of the time the page's thread works, over some rounds of asking.
func (p *tab) load(rounds int) float64 {
	p.Helper()
	const asked = `performance.getEntriesByType("resource")
		.filter((e) => e.name.endsWith("/list")).length`
	look := func() (worked, at float64) {
		p.run(chromedp.ActionFunc(func(ctx context.Context) error {
			list, err := performance.GetMetrics().Do(ctx)
			for _, m := range list {
				switch m.Name {
				case "TaskDuration":
					worked = m.Value
				case "Timestamp":
					at = m.Value
				}
			}
			return err
		}))
		return worked, at
	}
	p.run(performance.Enable())
	p.eval("performance.clearResourceTimings()", nil)
	worked, at := look()
	p.until("rounds of asking", fmt.Sprintf("%s >= %d", asked, rounds))
	w, end := look()
	return (w - worked) / (end - at)
}
