package page

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// relayOf starts a relay in front of members. If the flags include a certificate, its clients use
// TLS.
func relayOf(t *testing.T, of []*member, flags ...string) *member {
	t.Helper()
	scheme := "http"
	if slices.Contains(flags, "--cert-file") {
		scheme = "https"
	}
	var endpoints []string
	for _, m := range of {
		endpoints = append(endpoints, m.url)
	}
	r := &member{T: t, url: scheme + "://" + ports(t, 1)[0]}
	r.args = append([]string{
		"relay", "--endpoints", strings.Join(endpoints, ","), "--listen-client-urls", r.url,
		"--log-level", "error",
	}, flags...)
	r.start()
	r.await()
	return r
}

// TestRelay checks the page of a relay. It identifies itself as a relay, shows what members report,
// offers actions, and does not call unknown values unhealthy. It survives the death of the leader.
// If the relay is lost, the page reports the loss and links to the members.
func TestRelay(t *testing.T) {
	all := cluster(t, 3)
	r := relayOf(t, all)
	id := all[0].grant(map[string]any{
		"ttl_ms": 3_600_000, "name": "kept", "owner": "somebody", "keys": []any{
			map[string]any{"key": b64("svc/x"), "value": b64("seen")},
			map[string]any{"key": b64("lock/" + "0000000000000001"), "value": b64("")},
		},
	})
	p := open(t, r.url+"/ui/")
	p.shows("This is a relay.")
	p.shows("Connected to a relay")
	p.until("that all is well", "/^healthy/.test(document.querySelector('.verdict').innerText)")
	p.until("no reason against it", "!document.querySelector('.verdict + ul')")
	p.fact("live leases that you may see", "1")
	p.until("rates of the relay", `/Rates of this relay[^]*\d \/s/.test(document.body.innerText)`)
	leads := func(name string) string {
		return `[...document.querySelectorAll("[aria-label=Members] tbody tr")].find((r) =>
			r.cells[2].innerText === "leader" && r.cells[3].innerText === "receives calls").
			cells[0].innerText ` + name
	}
	p.until("the leader", leads("!== ''"))
	p.until("nothing that a relay does not know", "!/none yet|this member|NaN|undefined/."+
		"test(document.querySelector('main').innerText)")
	p.picture("relay")

	p.view("Leases")
	p.shows(hex(t, id))
	p.until("what is left", `/\d min/.test(document.body.innerText)`)
	for view, text := range map[string]string{
		"Events": "granted", "Caches": "No program has a cache.",
		"Access":              "this relay has full access",
		"Locks and elections": "lock", "Members, queues, pools, nodes": "svc",
	} {
		p.view(view)
		p.shows(text)
	}
	p.view("Plan")
	p.click("nav.tools a", "Capacity")
	p.until("the number of leases", "document.querySelector('input[name=leases]').value === '1'")
	p.until("the number of members", "document.querySelector('input[name=members]').value === '3'")
	p.view("Keys")
	p.click("ul.keys a", "svc/")
	p.click("ul.keys a", "x")
	p.value("seen")
	p.click("button", "Change the value")
	p.fill("dialog textarea[name=value]", "through the relay")
	p.click("dialog button", "Put")
	p.value("through the relay")
	if got, _ := all[1].get("svc/x"); got != "through the relay" {
		t.Errorf("a member has %q", got)
	}

	p.view("Leases")
	at := slices.IndexFunc(all, (*member).leads)
	if at < 0 {
		t.Fatal("nobody leads")
	}
	next := all[(at+1)%3]
	all[at].kill()
	next.until("/v3/maintenance/status", "", func(a map[string]any) bool {
		return a["leader"] != nil && a["leader"] != "0"
	})
	late := next.grant(map[string]any{"ttl_ms": 3_600_000, "name": "late"})
	p.shows(hex(t, late))
	p.until("the stream", "document.querySelector('[data-state=live]')")
	p.view("Overview")
	p.until("the next leader", leads("!== "+quote(all[at].name())))

	r.kill()
	p.until("that the relay is lost", "document.querySelector('[data-state=lost]')")
	p.shows("This relay, or the member behind it, has been lost")
	p.follow("[data-state] a", next.name())
	p.until("the page of a member", "location.href.startsWith("+quote(next.url+"/ui/")+")")
	p.shows("this member sees it")
}

// TestRelayUsers checks that a user of the page behind a relay has only the user's own permissions,
// and none without logging in. The member's audit log contains the user and the browser's address.
// All connections use TLS.
func TestRelayUsers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit")
	all := secureCluster(t, 1, "--bcrypt-cost", "4",
		"--audit-log", file, "--audit-log-level", "writes")
	m := all[0]
	m.role("a", "a/")
	m.call("/v3/auth/role/add", map[string]any{"name": "relay"})
	m.users(map[string]string{"alice": "a", "relay": "relay"})
	secret := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(secret, []byte(password), 0o600); err != nil {
		t.Fatal(err)
	}
	r := relayOf(t, all, "--cacert", vouched.cert, "--user", "relay", "--password-file", secret,
		"--cert-file", vouched.cert, "--key-file", vouched.key)
	p := open(t, r.url+"/ui/")
	p.shows("Log in")
	p.until("that nothing is known", "/^unknown/.test(document.querySelector('.verdict').innerText)")
	p.logIn("alice")
	p.kept(true)
	p.fact("you are", "alice")
	p.fact("known by", "token")
	p.view("Overview")
	p.until("that all is well", "/^healthy/.test(document.querySelector('.verdict').innerText)")
	p.view("Keys")
	p.refused() // the user may only read a/
	for key, outcome := range map[string]string{"b": "denied", "a/b": "ok"} {
		p.click("button", "Put a new key")
		p.fill("dialog input[name=key]", key)
		p.click("dialog button", "Put")
		if outcome == "ok" {
			p.until("no question", "!document.querySelector('dialog')")
		} else {
			p.until("a refusal",
				"/permission denied/.test(document.querySelector('dialog [role=alert]').textContent)")
			p.click("dialog button", "Cancel")
		}
		audited(t, file, map[string]string{
			"event": "call", "principal": "alice", "address": "127.0.0.1",
			"call": "/leasehold.v1.StoreService/Txn", "outcome": outcome,
		})
	}
	var odd string // canceled calls report no protocol, so skip them
	p.eval(`performance.getEntriesByType("resource").filter((e) => e.nextHopProtocol &&
		e.nextHopProtocol !== "h2").map((e) => e.nextHopProtocol + " " + e.name).join()`, &odd)
	if odd != "" {
		t.Errorf("not by HTTP/2: %s", odd)
	}
	m.call("/v3/auth/user/delete", map[string]any{"name": "alice"}, as(m.call("/v3/auth/authenticate",
		map[string]any{"name": "root", "password": password})["token"].(string)))
	p.loggedOut()
	p.kept(false)
}

// TestRelayGuards checks that a relay, like a member, rejects rebound names and writes from other
// sites, and offers no actions with --ui=read-only.
func TestRelayGuards(t *testing.T) {
	r := relayOf(t, cluster(t, 1), "--ui", "read-only")
	open(t, named(t, r.url, "rebound.test")+"/ui/").shows("which is not allowed")
	p := open(t, site(t, ""))
	var got string
	p.eval(fmt.Sprintf(`fetch(%s, { method: "POST", mode: "no-cors", body: '{"key":"Zm9ybQ=="}' }).
		then((r) => r.type)`, quote(r.url+"/v3/kv/put")), &got)
	if _, there := r.get("form"); got != "opaque" || there {
		t.Errorf("a page of another site is answered %q, and the key is there: %t", got, there)
	}
	p = open(t, r.url+"/ui/#/leases")
	p.until("the stream", "document.querySelector('[data-state=live]')")
	p.until("no act", "![...document.querySelectorAll('button')].some((b) => "+
		"b.textContent === 'Grant a lease')")
}
