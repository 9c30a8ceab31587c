package page

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"
)

// scroll scrolls through the list in 300 frames and returns how long the frames took.
func (p *tab) scroll() string {
	p.Helper()
	var r struct {
		Rows, Most         int
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
		return { Rows: rows(), Most: most, Reached: body.scrollTop > body.scrollHeight * 0.9,
			Median: times[150], Late: times[284], Last: times[299] };
	})()`, &r)
	if r.Most > 100 || r.Rows < 5 || !r.Reached {
		p.Errorf("%+v", r)
	}
	return fmt.Sprintf("a picture of 300 takes %.1f ms median, %.1f ms at 95%%, %.1f ms at most; "+
		"then %.1f%% of a core in its main thread", r.Median, r.Late, r.Last, 100*p.load(5))
}

// comeAndGo repeatedly grants leases and revokes the ones that it granted earlier. Calling stop
// ends this and revokes the rest.
func (m *member) comeAndGo() (stop func()) {
	const first, some, most = 1_000_000, 10, 100
	stopped, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for at := first; ; at += some {
			var ops []string
			for id := at; id < at+some; id++ {
				ops = append(ops, fmt.Sprintf(
					`{"grant":{"id":"%d","ttl_ms":"600000","name":"come/%[1]d"}}`, id))
				if id >= first+most {
					ops = append(ops, fmt.Sprintf(`{"revoke":{"id":"%d"}}`, id-most))
				}
			}
			m.attempt(m.Context(), "/v1/store/txn", `{"success":[`+strings.Join(ops, ",")+`]}`)
			select {
			case <-tick.C:
			case <-stopped:
				return
			}
		}
	}()
	return func() {
		close(stopped)
		<-done
		left := m.call("/v1/leases/list", map[string]any{"name_prefix": "come/", "page_size": 1000})
		var refs []any
		for _, l := range left["leases"].([]any) {
			refs = append(refs, map[string]any{"id": l.(map[string]any)["id"]})
		}
		m.call("/v1/leases/revoke", map[string]any{"leases": refs})
	}
}

// TestManyLeases checks that a list of a hundred thousand leases renders only the visible ones and
// is correct after changes. The time per frame is logged but not checked.
func TestManyLeases(t *testing.T) {
	m := cluster(t, 1)[0]
	const all = 100_000
	m.many(all)
	p := open(t, m.url+"/ui/#/leases")
	p.counts(all)
	p.until("the stream", "document.querySelector('[data-state=live]')")
	p.run(performance.Enable().WithTimeDomain(performance.EnableTimeDomainThreadTicks))
	for _, order := range []string{"least time left", "ID"} {
		p.fill("select:has([value=name])", order)
		t.Logf("%d leases by %s: %s", all, order, p.scroll())
		stop := m.comeAndGo()
		p.until("leases that came",
			fmt.Sprintf("document.querySelector('[data-count]').dataset.count > %d", all))
		t.Logf("the same while others come and go: %s", p.scroll())
		stop()
		p.counts(all)
	}
	p.until("the last row", fmt.Sprintf(
		`document.querySelector(".rows .row[aria-rowindex='%d']").innerText.includes("many/099999")`,
		all+1))
	p.until("what is left of rows that are seen",
		"/\\d+ min/.test(document.querySelector('.rows .all').innerText)")
	p.fill("input[type=search]", "name:many/099999")
	p.counts(1)
}

// TestUpdatedList checks that the list of leases is updated incrementally. After random changes, it
// matches a list built from all leases, and only the changed leases were visited.
func TestUpdatedList(t *testing.T) {
	p := open(t, cluster(t, 1)[0].url+"/ui/")
	var found string
	p.eval(`import("./view_leases.js").then(({ updated }) => {
		let seed = 20;
		const random = (n) => (seed = (seed * 48271) % 2147483647) % n;
		const order = (a, b) => a.key - b.key || a.id - b.id;
		const [leases, where] = [new Map(), new Map()];
		let list = [];
		for (let round = 0; round < 1000; round++) {
			const touched = new Set();
			for (let n = random(20); n > 0; n--) {
				const id = String(random(300));
				touched.add(id);
				if (random(3)) leases.set(id, { id, key: random(1000) });
				else leases.delete(id);
			}
			const looked = [];
			const fits = (l) => looked.push(l.id) && l.key % 3 > 0;
			list = updated(list, where, touched, leases, fits, order);
			if (looked.some((id) => !touched.has(id))) return "it looks at others";
			const want = [...leases.values()].filter((l) => l.key % 3 > 0).sort(order);
			if (JSON.stringify(list) !== JSON.stringify(want)) {
				return "in round " + round + " " + JSON.stringify([list, want]);
			}
			if (list.some((l) => where.get(l.id) !== l) || where.size !== list.length) {
				return "it does not know its leases";
			}
		}
		return list.length > 100 ? "right" : "the last list has only " + list.length;
	})`, &found)
	if found != "right" {
		t.Error(found)
	}
}

// load returns the fraction of time that the page's main thread was busy, over several polling
// rounds.
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
	p.eval("performance.clearResourceTimings()", nil)
	worked, at := look()
	p.until("rounds of asking", fmt.Sprintf("%s >= %d", asked, rounds))
	w, end := look()
	return (w - worked) / (end - at)
}
