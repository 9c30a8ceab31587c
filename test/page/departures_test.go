package page

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
)

// past waits until the page lists the departures from a wait queue. Each entry gives the position,
// the lease, the reason, and the next holder.
func (p *tab) past(want ...string) {
	p.Helper()
	p.until(fmt.Sprintf("the past %q", want), fmt.Sprintf(`JSON.stringify(
		[...document.querySelectorAll("[aria-label^='Departures'] tbody tr")].map((r) =>
			[1, 2, 4, 5].map((i) => r.cells[i].innerText.trim()).join("|"))) === %s`,
		quote("["+quoteAll(want)+"]")))
}

// TestDepartures checks that the page shows who held and who waited for a lock before the page was
// opened, and why each left, as far back as the cluster's history reaches. It then checks that
// later departures are added.
func TestDepartures(t *testing.T) {
	m := cluster(t, 1)[0]
	ids := make(map[string]string)
	key := func(owner string) string { return "locks/a/" + strings.TrimLeft(hex(t, ids[owner]), "0") }
	// Create the lease together with its key, because it could end before a second call.
	ticket := func(owner string, ttl int) {
		ids[owner] = fmt.Sprint(100 + len(ids))
		m.grant(map[string]any{
			"id": ids[owner], "ttl_ms": ttl, "owner": owner,
			"keys": []any{map[string]any{"key": b64(key(owner)), "value": b64("of " + owner)}},
		})
	}
	release := func(owner string) {
		m.call("/v1/store/delete", map[string]any{"key": b64(key(owner))})
	}
	// line returns a row of the table. A lease is shown by its ID, followed by its owner if known.
	line := func(place int, owner, why, next string) string {
		if next != "" && next != "nobody" {
			next = hex(t, ids[next]) + " " + next
		}
		return fmt.Sprintf("%d|%s %s|%s|%s", place, hex(t, ids[owner]), owner, why, next)
	}
	for _, owner := range []string{"a", "b", "c", "d"} {
		ticket(owner, 600_000)
	}
	release("c")
	m.call("/v1/leases/revoke", map[string]any{"leases": []any{map[string]any{"id": ids["a"]}}})
	release("b")
	release("d")
	want := []string{
		line(1, "d", "it was released", "nobody"),
		line(1, "b", "it was released", "d"),
		line(1, "a", "its lease was revoked", "b"),
		line(3, "c", "it was released", ""),
	}

	at := m.url + "/ui/#/queues/" + base64.RawURLEncoding.EncodeToString([]byte("locks/a"))
	p := open(t, at)
	p.shows("Nobody holds it, and nobody is waiting for it.")
	p.past(want...)
	ticket("e", 1000) // never renewed
	p.past(append([]string{line(1, "e", "its lease expired", "nobody")}, want...)...)
	p.until("when the page received it", `/^revision \d+, \d\d?:\d\d:\d\d /.test(
		document.querySelector("[aria-label^='Departures'] tbody th").innerText)`)
	p.picture("departures")

	// The page already has everything before this revision, so it can continue from there.
	ticket("f", 600_000)
	head := m.call("/v1/store/range", map[string]any{"key": b64("locks")})["header"].(map[string]any)
	ticket("g", 600_000)
	m.call("/v3/kv/compaction", map[string]any{"revision": head["revision"]})
	release("f")
	p.past(append([]string{
		line(1, "f", "it was released", "g"), line(1, "e", "its lease expired", "nobody"),
	}, want...)...)
	later := open(t, at)
	later.past(line(1, "f", "it was released", "g"))
	later.shows(fmt.Sprintf("Revisions before %s have been compacted.", head["revision"]))
}
