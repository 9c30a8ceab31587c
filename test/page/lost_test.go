package page

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestLostMember checks that a page whose member dies reports the loss, shows no unreliable times,
// and links to the other members. Once the member is back, the page continues without a gap.
func TestLostMember(t *testing.T) {
	all := cluster(t, 3)
	m, other := all[0], all[1]
	id := m.grant(map[string]any{"ttl_ms": 3_600_000, "name": "kept"})
	p := open(t, m.url+"/ui/#/leases")
	p.shows(hex(t, id))
	p.until("what is left", `/\d min/.test(document.body.innerText)`)
	m.kill()
	p.until("that the member is lost", "document.querySelector('[data-state=lost]')")
	p.until("that the time is of before", `/was \d+ min.* ago/.test(document.body.innerText)`)
	p.shows("Other members")
	var link string
	p.eval("[...document.querySelectorAll('[data-state] a')].map((a) => a.href).join()", &link)
	if !strings.Contains(link, other.url+"/ui/#/leases") || strings.Contains(link, m.url) {
		t.Errorf("the links are %s", link)
	}
	p.picture("lost")
	meanwhile := other.grant(map[string]any{"ttl_ms": 3_600_000, "name": "meanwhile"})
	m.start()
	m.await()
	p.until("that the member is back", "document.querySelector('[data-state=live]')")
	p.shows(hex(t, meanwhile))
	p.until("what is left", "!/was \\d/.test(document.body.innerText)")
	elsewhere := open(t, other.url+"/ui/")
	elsewhere.shows("healthy")
}

// leads reports whether the member leads.
func (m *member) leads() bool {
	m.Helper()
	status := m.call("/v3/maintenance/status", nil)
	return status["leader"] == status["header"].(map[string]any)["member_id"]
}

// timeOf returns a script that finds the remaining time of a lease in the list of leases.
func timeOf(t *testing.T, id string) string {
	t.Helper()
	return fmt.Sprintf(`[...document.querySelectorAll(".rows .body [role=row]")].find((r) =>
		r.innerText.includes(%s)).children[4].innerText`, quote(hex(t, id)))
}

// TestKilledLeader checks what pages show when the leader is killed. The page of another member
// continues with the next leader, and the dead member's page links to a working page. Without a
// leader, the page says so and shows how old its data is.
func TestKilledLeader(t *testing.T) {
	// The timeout is long, so that the leader leads until it is killed. The others then notice the
	// loss because their connections break.
	all := cluster(t, 3, "--election-timeout", "10000")
	at := slices.IndexFunc(all, (*member).leads)
	if at < 0 {
		t.Fatal("nobody leads")
	}
	leader, next, third := all[at], all[(at+1)%3], all[(at+2)%3]
	kept := leader.grant(map[string]any{"ttl_ms": 3_600_000, "name": "kept"})
	of := open(t, leader.url+"/ui/#/leases")
	of.shows(hex(t, kept))
	of.until("what is left", `/\d min/.test(document.body.innerText)`)
	p := open(t, next.url+"/ui/")
	leads := func(name string) string {
		return `[...document.querySelectorAll("[aria-label=Members] tbody tr")].find((r) =>
			r.cells[2].innerText === "leader").cells[0].innerText ` + name
	}
	p.until("the leader", leads("=== "+quote(leader.name())))

	leader.kill()
	p.until("the next leader", leads("!== "+quote(leader.name())))
	p.shows(leader.name() + " is not connected to this member")
	p.view("Leases")
	late := next.grant(map[string]any{"ttl_ms": 3_600_000, "name": "late"})
	p.shows(hex(t, late))
	fresh := `document.querySelectorAll("main .body [role=row]").length === 2 &&
		((text) => /\d min/.test(text) && !/ago|asking/.test(text))(
			document.querySelector(".rows .body").innerText)`
	p.until("what is left, as of now", fresh)

	of.front()
	of.until("that its member is lost", "document.querySelector('[data-state=lost]')")
	of.until("that the time is of before", `/was \d+ min.* ago/.test(document.body.innerText)`)
	of.follow("[data-state] a", next.name())
	of.until("the page of another member, which goes on", "location.origin === "+quote(next.url)+
		" && location.hash === '#/leases' && document.querySelector('[data-state=live]')")
	of.shows(hex(t, late))

	p.front()
	third.kill()
	p.until("a line that nobody leads", "document.querySelector('[data-state=leaderless]')")
	p.until("how old the answers are", timeOf(t, kept)+`.match(/^\d+ min .*asked .* ago$/)`)
	p.view("Overview")
	p.until("that nobody leads", "/^down/.test(document.querySelector('.verdict').innerText)")
	p.shows("this member has no leader")
	p.picture("no-leader")
	leader.start()
	p.until("that somebody leads", leads("!== ''"))
	p.view("Leases")
	p.until("what is left, as of now", fresh)
	p.until("a line that all is well", "document.querySelector('[data-state=live]')")
}

// TestPrefix checks that the page works behind a proxy that adds a path prefix.
func TestPrefix(t *testing.T) {
	m := cluster(t, 1)[0]
	id := m.grant(map[string]any{"ttl_ms": 600_000})
	p := open(t, proxy(t, m.url, "/some/where")+"/some/where/ui")
	p.shows("healthy")
	p.view("Leases")
	p.shows(hex(t, id))
	p.until("the stream", "document.querySelector('[data-state=live]')")
}
