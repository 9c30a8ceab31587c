package page

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestHostileNames checks that user-provided text is shown literally everywhere: HTML, quotes,
// direction marks, zero bytes, very long text. None of it creates an element or executes.
func TestHostileNames(t *testing.T) {
	m := cluster(t, 1)[0]
	names := []string{
		`<img src=x onerror="globalThis.caught=1">`, `"><script>globalThis.caught=1</script>`,
		`' onmouseover='globalThis.caught=1`, "${globalThis.caught=1}", "\u202egnp.exe", "a\x00b",
		"שלום/עולם", "</title></textarea><svg onload=globalThis.caught=1>",
		strings.Repeat("long ", 200),
		"javascript:globalThis.caught=1",
	}
	long := strings.Repeat("x", 10_000)
	var ids []string
	for _, n := range names {
		id := m.grant(map[string]any{
			"ttl_ms": 600_000, "name": n, "owner": n, "labels": map[string]any{n: n},
		})
		m.put(n, n, map[string]any{"lease": id})
		m.put(n+"/"+hex(t, id), n, map[string]any{"lease": id})
		ids = append(ids, id)
	}
	m.put(long, long, map[string]any{"lease": ids[0]})
	m.put("bytes\xff\xfe", "\xff\x00", nil)
	p := open(t, m.url+"/ui/#/leases")
	clean := func() {
		t.Helper()
		var found string
		p.eval(`globalThis.caught ? "a script ran" : [...document.querySelectorAll(
			"img, svg, script:not([src='app.js']), iframe, object, embed, [onerror], [onload], [onmouseover]"
		)].map((e) => e.outerHTML).join() + [...document.querySelectorAll("a[href]")].filter((a) =>
			!/^https?:/.test(a.href)).map((a) => a.href).join()`, &found)
		if found != "" {
			t.Errorf("it came into the page: %s", found)
		}
	}
	for _, id := range ids {
		p.shows(hex(t, id))
	}
	p.shows(names[0])
	p.shows(`\u202egnp.exe`)
	p.shows(`a\x00b`)
	clean()
	for i, id := range ids {
		p.run(chromedp.Evaluate(`location.hash = "#/lease/`+hex(t, id)+`"`, nil))
		p.shows(fmt.Sprintf("Keys (%d)", map[bool]int{true: 3, false: 2}[i == 0]))
		p.until("the lease", "document.querySelector('dd .id')?.textContent === "+quote(hex(t, id)))
		p.click("button", "Revoke")
		p.until("the question", "document.querySelector('dialog')")
		clean()
		p.click("dialog button", "Cancel")
	}
	for _, view := range []string{"Events", "Keys"} {
		p.view(view)
		p.shows(names[0])
		clean()
	}
	p.shows(`bytes\xff\xfe`)
	p.view("Locks and elections")
	p.counts(len(names))
	p.click("th a", names[0])
	p.shows("holds")
	clean()
	hostileGroups(m, names)
	for i, kind := range []string{"members", "queue", "pool", "nodes"} {
		p.group(kind, names[i])
		p.until("its value", "[...document.querySelectorAll('main td, main dd')].some((e) => "+
			"e.textContent.includes("+quote(names[i])+"))")
		clean()
	}
	p.view("Keys")
	p.click("ul.keys a", names[2])
	p.value(names[2])
	p.click("label", "JSON")
	p.shows("This value is not JSON")
	clean()
}

// hostileGroups creates a group of each kind for each name. The name is also used for the group's
// values.
func hostileGroups(m *member, names []string) {
	m.Helper()
	for i, n := range names {
		id := m.grant(map[string]any{"ttl_ms": 600_000, "owner": n})
		m.put(fmt.Sprintf("%s/member <b>%d", n, i), n, map[string]any{"lease": id})
		m.put(n+"/item/000000000001-00-abcdefghij", n, nil)
		m.put(n+"/claim/000000000001-00-abcdefghij", n, map[string]any{"lease": id})
		ids, err := json.Marshal(map[string]any{"ids": []string{n}})
		if err != nil {
			m.Fatal(err)
		}
		m.put(n+"/ids", string(ids), nil)
		m.put(n+"/was/<b>", n, nil)
		m.put(n+"/known/<b>", n, nil)
	}
}
