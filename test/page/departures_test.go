package page

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
)

// past waits until the page says who left a wait queue: for each of them the place, the lease, why,
// and who held it then.
func (p *tab) past(want ...string) {
	p.Helper()
	p.until(fmt.Sprintf("the past %q", want), fmt.Sprintf(`JSON.stringify(
		[...document.querySelectorAll("[aria-label^='Departures'] tbody tr")].map((r) =>
			[1, 2, 4, 5].map((i) => r.cells[i].innerText.trim()).join("|"))) === %s`,
		quote("["+quoteAll(want)+"]")))
}

// The page shows who held a lock before it was opened, who waited, and why each left, as far back
// as the cluster remembers, and continues with later ones.
func TestDepartures(t *testing.T) {
	m := cluster(t, 1)[0]
	ids := make(map[string]string)
	key := func(owner string) string { return "locks/a/" + strings.TrimLeft(hex(t, ids[owner]), "0") }
	// A lease and its key come together: the lease could end before a second call.
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
	// line is a row of the table. A lease is shown by its ID, and by its owner if the page knows it.
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
	ticket("e", 1000) // nobody renews it
	p.past(append([]string{line(1, "e", "its lease expired", "nobody")}, want...)...)
	p.until("when the page received it", `/^revision \d+, \d\d?:\d\d:\d\d /.test(
		document.querySelector("[aria-label^='Departures'] tbody th").innerText)`)
	p.picture("departures")

	// The page has everything before this revision, so it continues from there.
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
