package page

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// TestActs checks that each action announces its effect and performs it, and does nothing if the
// displayed data has changed.
func TestActs(t *testing.T) {
	m := cluster(t, 1)[0]
	p := open(t, m.url+"/ui/#/leases")
	p.click("button", "Grant a lease")
	p.fill("dialog input[name=ttl]", "soon")
	p.fill("dialog input[name=name]", "jobs/x")
	p.fill("dialog input[name=owner]", "page")
	p.fill("dialog textarea[name=labels]", "zone=east\nkind=a=b")
	p.click("dialog button", "Grant")
	p.shows("The TTL must be a time")
	p.fill("dialog input[name=ttl]", "1h") // the other fields keep their values
	p.click("dialog button", "Grant")
	p.until("the view of the lease", "location.hash.startsWith('#/lease/')")
	p.shows("kind = a=b")
	l := m.call("/v1/leases/describe", map[string]any{"name": "jobs/x"})["lease"].(map[string]any)
	if l["ttl_ms"] != "3600000" || l["owner"] != "page" {
		t.Errorf("granted: %v", l)
	}
	id := l["id"].(string)

	p.click("button", "Change the TTL")
	p.fill("dialog input[name=ttl]", "2h")
	p.click("dialog button", "Change")
	p.shows("7200 s")

	m.put("svc/x", "1", map[string]any{"lease": id})
	p.shows("Keys (1)")
	p.click("button", "Revoke")
	p.shows("1 key goes with it")
	p.picture("revoke")
	p.press(kb.Escape)
	p.until("no question", "!document.querySelector('dialog')")
	p.click("button", "Renew")
	p.shows("The lease lives for 7200 s from now")
	p.click("dialog button", "Cancel")
	p.click("button", "Revoke")
	p.shows("1 key goes with it")
	m.call("/v1/leases/handover", map[string]any{
		"lease": map[string]any{"id": id, "token": l["token"]}, "owner": "another",
	})
	p.click("dialog button", "Revoke")
	p.shows("Nothing was done: the lease has ended, or its token is not the one shown")
	p.click("dialog button", "Cancel")
	p.until("the other owner",
		"[...document.querySelectorAll('dd')].some((d) => d.textContent === 'another')")
	p.click("button", "Revoke")
	p.shows("Its holder another")
	p.click("dialog button", "Revoke")
	p.shows("The lease has ended")
	if _, there := m.get("svc/x"); there {
		t.Error("the key is still there")
	}

	p.view("Keys")
	p.click("button", "Put a new key")
	p.fill("dialog input[name=key]", "cfg/a")
	p.fill("dialog textarea[name=value]", "one")
	p.click("dialog button", "Put")
	p.click("ul.keys a", "cfg/")
	p.click("ul.keys a", "a")
	p.value("one")
	p.click("button", "Change the value")
	p.fill("dialog textarea[name=value]", "two")
	m.put("cfg/a", "of somebody else", nil)
	p.click("dialog button", "Put")
	p.shows("Nothing was done: the key has changed")
	p.click("dialog button", "Cancel")
	p.value("of somebody else")
	p.click("button", "Change the value")
	p.fill("dialog textarea[name=value]", "two")
	p.click("dialog button", "Put")
	p.value("two")
	if v, _ := m.get("cfg/a"); v != "two" {
		t.Errorf("the value is %q", v)
	}
	p.click("button", "Delete")
	p.click("dialog button", "Delete")
	p.shows("The key was deleted")
	if _, there := m.get("cfg/a"); there {
		t.Error("the key is still there")
	}
}

// TestRevokeWaiters checks that the confirmation dialog of a revocation states how many clients are
// waiting for what the lease holds. Only queues in which the lease holds the lock or is the leader
// are counted.
func TestRevokeWaiters(t *testing.T) {
	m := cluster(t, 1)[0]
	var ids []string
	ticket := func(prefix string, who int) {
		m.put(prefix+hex(t, ids[who]), "", map[string]any{"lease": ids[who]})
	}
	for who := range 3 {
		ids = append(ids, m.grant(map[string]any{"ttl_ms": 600_000}))
		ticket("locks/a/", who)
		ticket("lead~candidates/", who)
	}
	ticket("lead/", 0)
	ticket("locks/a/b/", 2)
	ticket("locks/b/", 1)
	ticket("locks/b/", 0)
	p := open(t, m.url+"/ui/")
	for who, want := range []string{
		"holds: 4. The next in each queue gets its turn.", "holds: 1. The next", "holds: 0.",
	} {
		p.run(chromedp.Evaluate(`location.hash = "#/lease/`+hex(t, ids[who])+`"`, nil))
		p.until("the lease", "document.querySelector('dd .id')?.textContent === "+quote(hex(t, ids[who])))
		p.click("button", "Revoke")
		p.shows("Waiters for what it " + want)
		p.picture("revoke-waiters")
		p.click("dialog button", "Cancel")
	}
}

// TestReadOnly checks that with --ui=read-only the page shows everything and offers no actions. It
// also checks that the page shows the age of the newest backup.
func TestReadOnly(t *testing.T) {
	m := cluster(t, 1, "--ui=read-only", "--backup-to", t.TempDir())[0]
	id := m.grant(map[string]any{"ttl_ms": 600_000})
	m.put("a", "b", nil)
	p := open(t, m.url+"/ui/#/leases")
	p.click("a.id", hex(t, id))
	p.shows("at expiry")
	none := func(words ...string) {
		t.Helper()
		for _, w := range words {
			var there bool
			p.eval("[...document.querySelectorAll('button')].some((b) => b.textContent.includes("+
				quote(w)+"))", &there)
			if there {
				t.Errorf("it offers to %s", w)
			}
		}
	}
	none("Revoke", "Change", "Renew")
	p.view("Leases")
	p.shows(hex(t, id))
	none("Grant")
	p.view("Keys")
	p.click("ul.keys a", "a")
	p.shows("mod revision")
	none("Put", "Delete")
	p.view("Overview")
	p.until("the age of a backup", "/newest backup\\s+[\\d.]+ s old/.test(document.body.innerText)")
}
