package page

import (
	"strings"
	"testing"
)

// Goal: a page whose member dies says so, counts no time that it cannot stand behind, and links to
// the others; when the member is back it goes on, and has missed nothing.
func TestLostMember(t *testing.T) {
	all := cluster(t, 3)
	m, other := all[0], all[1]
	id := m.grant(map[string]any{"ttl_ms": 3_600_000, "name": "kept"})
	p := open(t, m.url+"/ui/#/leases")
	p.shows(hex(t, id))
	p.until("what is left", "/59 min/.test(document.body.innerText)")
	m.kill()
	p.until("that the member is lost", "document.querySelector('[data-state=lost]')")
	p.until("that the time is of before", "/was 59 min.* ago/.test(document.body.innerText)")
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

// Goal: behind a proxy that adds a prefix to all paths, the page works.
func TestPrefix(t *testing.T) {
	m := cluster(t, 1)[0]
	id := m.grant(map[string]any{"ttl_ms": 600_000})
	p := open(t, proxy(t, m.url, "/some/where")+"/some/where/ui")
	p.shows("healthy")
	p.view("Leases")
	p.shows(hex(t, id))
	p.until("the stream", "document.querySelector('[data-state=live]')")
}
