package page

import "testing"

// figure returns a script that reads the figure with the given name from the answer.
func figure(name string) string {
	return "[...document.querySelectorAll('.answer dt')].find((e) => e.textContent === " +
		quote(name) + ").nextSibling.textContent"
}

// TestPlan checks that the page computes the same results as "leasehold plan". It starts from this
// cluster's numbers, draws the results, and explains nonsensical input.
func TestPlan(t *testing.T) {
	m := cluster(t, 3)[0]
	for range 4 {
		m.grant(map[string]any{"ttl_ms": 1_250_000}) // never renewed
	}
	m.grant(map[string]any{"ttl_ms": 600_000})
	p := open(t, m.url+"/ui/#/leases")
	p.counts(5)
	p.view("Plan")
	ttl := "document.querySelector('input[name=ttl]').value === "
	p.until("the TTL of most leases here", ttl+"'1250s'")
	p.shows("ttl (of this cluster)")
	p.until("what follows from it", figure("lease, L")+" === '20m50s'")
	asked := "document.querySelector('.answer').dataset.asked"
	p.fill("input[name=ttl]", "4s")
	p.until("what follows from another TTL", figure("lease, L")+" === '4s'")
	p.fill("input[type=range][aria-label='ttl, slider']", "-20")
	p.until("the TTL of the slider", ttl+"'130s'")
	p.until("what follows from the slider", figure("lease, L")+" === '2m10s'")
	p.until("the answer for it", asked+".includes('ttl=130s')")
	p.fill("select", "classic")
	p.until("another issuer", asked+".includes('issuer=classic')")
	p.fill("input[name=renew]", "soon")
	p.until("why that makes no sense",
		"document.querySelector('[role=alert]').textContent.includes('use a duration such as 10s')")
	p.fill("input[name=renew]", "3s")
	p.until("sense again", "!document.querySelector('[role=alert]') && "+
		figure("renewed every, T")+" === '3s'")
	p.picture("plan")
	p.click("button", "Reset to this cluster")
	p.until("this cluster again", figure("lease, L")+" === '20m50s'")

	p.click("main nav a", "Recommended TTL")
	p.until("the number of leases here, and what to take", asked+" === 'leases=5' && "+
		"/^USE a lease of 4s,/.test(document.querySelector('.answer li').textContent)")
	p.row("TTLs, renewed after a third, and the recommended one", "> 4s", "1s")
	p.fill("input[name=ttls]", "20s,30s")
	p.row("TTLs, renewed after a third, and the recommended one", "> 20s")
	p.picture("plan-length")
	p.fill("input[name=ttls]", "20")
	p.until("why that makes no sense",
		"document.querySelector('[role=alert]').textContent.includes('use durations such as 10s,25s')")
	p.fill("input[name=ttls]", "")
	p.row("TTLs, renewed after a third, and the recommended one", "> 4s")

	p.click("main nav a", "Leases that depend on each other")
	p.row("Levels", "core's leader", "20m50s")
	p.row("Levels", "primary", "52m5s")
	p.fill("input[name=ttls]", "10s,12s,70s")
	p.row("Levels", "third", "1m10s")
	p.shows("TOO SHORT: the primary lease (12s)")
	p.picture("plan-levels")

	p.click("main nav a", "Capacity")
	p.until("this cluster's size", "['members=3', 'leases=5', 'quota=2', 'ttl=1250s']"+
		".every((x) => "+asked+".split('&').includes(x))")
	p.until("what runs out", "[...document.querySelectorAll('.answer th')].some((e) => "+
		"e.textContent === 'CPU of the leader')")
	p.fill("input[name=leases]", "2e6")
	p.until("many leases", figure("leases")+" === '2000000'")
	p.click("main nav a", "Caching: break-even")
	p.until("the load by term", "document.querySelector(\"[aria-label='Load by term'] tbody tr\")")

	// Leases of two days exceed the computed range, so the page starts with the usual values.
	for range 6 {
		m.grant(map[string]any{"ttl_ms": 2 * 86_400_000})
	}
	p.view("Leases")
	p.counts(11)
	p.view("Plan")
	p.until("the usual values", figure("lease, L")+" === '10s'")
}
