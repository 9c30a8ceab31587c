package page

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestViews checks that each view shows its data, that the page's security policy blocks none of
// it, and that no script fails.
func TestViews(t *testing.T) {
	m := cluster(t, 3)[0]
	ids := make(map[string]string)
	for _, name := range []string{"jobs/nightly", "jobs/hourly", "db/primary"} {
		ids[name] = m.grant(map[string]any{
			"ttl_ms": 600_000, "name": name, "owner": "of " + name,
			"labels": map[string]any{"zone": "east", "for": name},
			"keys":   []any{map[string]any{"key": b64("svc/" + name), "value": b64(`{"port": 80}`)}},
		})
	}
	first, second := ids["jobs/nightly"], ids["jobs/hourly"]
	m.put("locks/a/"+hex(t, first), "", map[string]any{"lease": first})
	m.put("locks/a/"+hex(t, second), "", map[string]any{"lease": second})
	m.put("lead/"+hex(t, second), "the leader's value", map[string]any{"lease": second})
	m.put("lead~candidates/"+hex(t, second), `{"id":"x"}`, map[string]any{"lease": second})
	m.put("lead~candidates/"+hex(t, first), `{"id":"y","priority":7}`, map[string]any{"lease": first})
	p := open(t, m.url+"/ui/")
	p.shows("healthy")
	p.until("rates from two readings", "document.body.innerText.includes('/s')")
	p.until("three members", "document.querySelectorAll('tbody tr').length === 3")
	p.until("a leader", "document.querySelector('tbody').innerText.includes('leader')")
	p.shows("this member makes none")
	p.until("how fast the log is", "/^(within|over) [\\d.]+ m?s/.test([...document.querySelectorAll('dt')]."+
		"find((e) => e.textContent === 'log sync, p99').nextSibling.textContent)")
	p.shows("none yet")
	for within, want := range map[int]string{3: "within 2.5 s", 2: "over 2.5 s"} {
		var got string
		p.eval(fmt.Sprintf(`import("./view_overview.js").then(({ mostly }) => mostly((name) => ({
			h_count: [{ value: 3 }],
			h_bucket: [["0.5", 1], ["2.5", %d], ["+Inf", 3]].map(([le, value]) => ({ labels: { le }, value })),
		})[name], "h"))`, within), &got)
		if got != want {
			t.Errorf("a slow disk: the page says %q, want %q", got, want)
		}
	}
	p.picture("overview")

	p.view("Leases")
	for name, id := range ids {
		p.shows(hex(t, id))
		p.shows(name)
	}
	p.until("what is left", "/9 min \\d+ s/.test(document.body.innerText)")
	p.picture("leases")
	for search, want := range map[string]int{
		"name:jobs/": 2, "jobs": 2, "owner:of": 3, "label:zone=east": 3, "label:for=db/primary": 1,
		"label:none": 0, hex(t, first): 1, "name:jobs/ nightly": 1,
	} {
		p.fill("input[type=search]", search)
		p.counts(want)
	}
	p.fill("input[type=search]", "")
	p.fill("select", "silent")
	p.counts(0)

	p.view("Events")
	p.shows("granted")
	p.shows("of db/primary")
	m.call("/v1/leases/revoke", map[string]any{
		"leases": []any{map[string]any{"id": ids["db/primary"]}},
	})
	p.shows("revoked")
	p.shows("by 127.0.0.1")
	p.picture("events")

	p.view("Locks and elections")
	p.click("th a", "locks/a")
	p.until("who holds and who waits", `[...document.querySelectorAll("table")].some((t) =>
		[...t.querySelectorAll("tbody tr")].map((r) => r.cells[1].innerText).join() === "holds,waits")`)
	p.click("th a", "lead")
	p.until("the leader before the candidate", `[...document.querySelectorAll("table")].some((t) =>
		[...t.querySelectorAll("tbody tr")].map((r) => r.cells[1].innerText).join() ===
			"holds,candidate, priority 7")`)
	p.shows("the leader's value")
	p.picture("queues")

	p.view("Keys")
	p.click("ul.keys a", "svc/")
	p.click("ul.keys a", "jobs/")
	p.click("ul.keys a", "nightly")
	p.value(`{"port": 80}`)
	p.click("label", "JSON")
	p.value("{\n  \"port\": 80\n}")
	p.click("label", "hex")
	p.shows("7b 22 70")
	m.put("svc/jobs/nightly", "newer", map[string]any{"lease": first})
	p.click("label", "text")
	p.value("newer")
	p.click("button", "Read older values")
	p.shows("Before that, the key did not exist")
	p.click("summary", "revision 2, version 1, 12 B")
	p.shows(`{"port": 80}`)
	p.until("what changed in the newer one", "document.querySelector('[aria-label=Difference]')."+
		"textContent === "+quote("- {\n-   \"port\": 80\n- }\n+ newer"))
	m.put("svc/jobs/nightly", `{"port": 81, "zone": "east"}`, map[string]any{"lease": first})
	m.put("svc/jobs/nightly", `{"port": 80, "zone": "east"}`, map[string]any{"lease": first})
	p.run(chromedp.Reload())
	p.click("button", "Read older values")
	p.click("summary", "revision 12, version 3, 28 B")
	p.until("only the lines that differ", "document.querySelector('[aria-label=Difference]')."+
		"textContent === "+quote(`  {
-   "port": 81,
+   "port": 80,
    "zone": "east"
  }`))
	p.picture("key")

	p.view("Access")
	p.shows("Access control is not enabled")
}

// limit returns a limit in the API's format.
func limit(resource string, most int) map[string]any {
	return map[string]any{"resource": "RESOURCE_" + resource, "max": fmt.Sprint(most)}
}

// TestLogin checks that users see only what they are allowed to see, that a wrong password is
// reported, and that logging out clears everything. The login is stored in the tab only.
func TestLogin(t *testing.T) {
	file := filepath.Join(t.TempDir(), "auth.yaml")
	bind(t, file, bindings)
	m := cluster(t, 1, "--bcrypt-cost", "4", "--auth-config", file)[0]
	for _, u := range []string{"root", "<b>al</b>"} {
		m.call("/v3/auth/user/add", map[string]any{"name": u, "password": "pass word"})
	}
	m.call("/v3/auth/role/add", map[string]any{"name": "root"})
	m.call("/v3/auth/user/grant", map[string]any{"user": "root", "role": "root"})
	m.call("/v3/auth/role/add", map[string]any{"name": "reader"})
	m.call("/v3/auth/role/grant", map[string]any{"name": "reader", "perm": map[string]any{
		"permType": "READ", "key": b64("a/"), "range_end": b64("a0"),
	}})
	m.call("/v3/auth/user/grant", map[string]any{"user": "<b>al</b>", "role": "reader"})
	m.call("/v1/access/names/grant", map[string]any{"permission": map[string]any{
		"role": "reader", "kind": "KIND_SEE", "name": "jobs/", "prefix": true,
	}})
	for _, l := range []map[string]any{
		{"limits": []any{limit("LEASES", 1000), limit("RATE", -1)}},
		{"role": "reader", "limits": []any{limit("LEASE_KEYS", 5)}},
		{"user": "<b>al</b>", "limits": []any{limit("BYTES", 2_000_000)}},
	} {
		m.call("/v1/access/limits/set", map[string]any{"limits": l})
	}
	m.put("a/key", "seen", nil)
	m.put("b/key", "not seen", nil)
	hidden := m.grant(map[string]any{"ttl_ms": 600_000, "name": "hidden"})
	m.call("/v3/auth/enable", nil)
	p := open(t, m.url+"/ui/#/leases")
	p.shows("Log in")
	p.view("Access")
	p.fill("input[name=user]", "<b>al</b>")
	p.fill("input[name=password]", "wrong word")
	p.click("button", "Log in")
	p.until("a refusal", "document.querySelector('[role=alert]')")
	p.fill("input[name=password]", "pass word")
	p.click("button", "Log in")
	p.shows("[a/, a0)")
	var others bool
	p.eval(`document.querySelectorAll("main table").length > 1 ||
		performance.getEntriesByType("resource").some((e) =>
			/(user|role|names|limits|bindings).list/.test(e.name))`, &others)
	if others {
		t.Error("a user that is not root is shown others, or asks for them")
	}
	p.until("the user", `document.querySelector(".me").textContent === "<b>al</b>"`)
	p.view("Leases")
	p.counts(0)
	p.run(chromedp.Evaluate(`location.hash = "#/lease/`+hex(t, hidden)+`"`, nil))
	p.refused()
	p.view("Keys")
	p.refused()
	p.fill("input[type=search]", "a/")
	p.click("button", "Go")
	p.click("ul.keys a", "key")
	p.value("seen")
	p.kept(true)
	p.view("Access")
	p.click("button", "Log out")
	p.until("nobody", `document.querySelector(".me").textContent === "not logged in"`)
	p.kept(false)
	token := m.call("/v3/auth/authenticate", map[string]any{
		"name": "root", "password": "pass word",
	})["token"].(string)
	p.useToken(token, "root")
	rows := func(title string) string {
		return fmt.Sprintf(`[...document.querySelectorAll("[aria-label='%s'] tbody tr")].map((r) =>
			[...r.cells].map((c) => c.textContent.replace(/\s+/g, " ").trim()).join("|")).join()`, title)
	}
	p.until("all users", rows("Users")+` === "<b>al</b>|reader,root|root"`)
	p.until("all roles", rows("Roles")+` ===
		"reader|read: [a/, a0)|see: jobs/ and all that begin with it,root|everything|everything"`)
	p.until("all limits", rows("Limits")+` === "everybody|leases|1,000,everybody|rate|no limit,`+
		`role reader|lease keys|5,user <b>al</b>|bytes|2,000,000"`)
	p.until("no use", `!document.querySelector("[aria-label='Usage and limits']")`)
	m.call("/v1/leases/grant", map[string]any{"ttl_ms": 600_000}, as(token))
	p.run(chromedp.Reload())
	p.until("what root has", `/^root\|1\|0\|[\d,]+$/.test(`+rows("Usage and limits")+")")
	p.until("all bindings", rows("Bindings of this member")+` ===
		"certificate of spiffe://example.org/i-x|user <b>al</b>,"+
		"token of issuer corp, groups=a*|has reader, root"`)
	p.until("all issuers", rows("Issuers")+` === "corp|http://127.0.0.1:1|leasehold, test|sub"`)
	p.picture("access")
	bind(t, file, "bindings: [{dns: a, usr: <i>x</i>}]")
	m.until("/v1/access/bindings/list", as(token), func(r map[string]any) bool {
		return r["load_error"] != nil
	})
	p.run(chromedp.Reload())
	p.shows(`The current file is invalid: --auth-config: ` + file + `:1: unknown setting "usr"`)
	p.until("what counts", rows("Issuers")+` === "corp|http://127.0.0.1:1|leasehold, test|sub"`)
	p.view("Leases")
	p.shows(hex(t, hidden))
}

// bindings is the content of an --auth-config file. The address of the issuer's keys does not
// respond.
const bindings = `
issuers: [{name: corp, url: "http://127.0.0.1:1", audiences: [leasehold, test]}]
bindings:
  - {spiffe: spiffe://example.org/i-x, user: <b>al</b>}
  - {issuer: corp, claims: {groups: a*}, roles: [reader, root]}
`

// bind replaces a file with bindings.
func bind(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// TestPhone checks that a phone shows the state and remaining time of leases without scrolling,
// indicates that there is more, and fits all views in one row. Times of day include the time zone.
func TestPhone(t *testing.T) {
	m := cluster(t, 1)[0]
	id := m.grant(map[string]any{"ttl_ms": 3_600_000, "name": "jobs/nightly", "owner": "node-a"})
	p := open(t, m.url) // redirects to the page
	p.shows("healthy")
	p.run(chromedp.EmulateViewport(360, 800))
	p.view("Leases")
	p.shows(hex(t, id))
	p.until("state and time left, as wide as the screen", `[1, 2].every((i) => {
		const cell = document.querySelector(".rows .body [role=row] > :nth-child(" + i + ")");
		return /alive|\d min/.test(cell.innerText) && cell.scrollWidth <= cell.clientWidth &&
			cell.getBoundingClientRect().right < innerWidth;
	})`)
	p.shows("Scroll sideways for more columns")
	p.until("one row of views, which shows the present one", `((nav, at) =>
		nav.clientHeight < 2 * at.clientHeight && at.getBoundingClientRect().right <= innerWidth)(
			document.querySelector("header nav"), document.querySelector("header nav [aria-current]"))`)
	p.picture("phone")
	p.run(chromedp.EmulateViewport(1280, 800))
	p.until("all columns", `document.querySelector(".rows .head [role=row] > *").innerText === "ID"`)
	p.view("Events")
	m.grant(map[string]any{"ttl_ms": 3_600_000})
	p.until("a time with its zone", `/^\d\d?:\d\d:\d\d (UTC|GMT|[A-Z]+)/.test(
		document.querySelector(".rows .body [role=cell]").innerText)`)
}
