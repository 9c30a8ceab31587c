package page

import (
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// client runs a client command to completion.
func (m *member) client(args ...string) {
	m.Helper()
	out, err := exec.Command(*server, append(args, "--endpoints", m.url)...).CombinedOutput()
	if err != nil {
		m.Fatalf("leasehold %v: %v\n%s", args, err, out)
	}
}

// holds starts a client command that holds something until it is interrupted or the test ends.
func (m *member) holds(args ...string) (interrupt func()) {
	m.Helper()
	at := len(args)
	for i, a := range args {
		if a == "--" {
			at = i
		}
	}
	all := append(append(append([]string{}, args[:at]...), "--endpoints", m.url), args[at:]...)
	cmd := exec.Command(*server, all...)
	if err := cmd.Start(); err != nil {
		m.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the error reports the interruption
		close(done)
	}()
	interrupt = func() {
		_ = cmd.Process.Signal(os.Interrupt) // the process may have exited
		select {
		case <-done:
		case <-time.After(*patience):
			_ = cmd.Process.Kill()
			<-done
		}
	}
	m.Cleanup(interrupt)
	return interrupt
}

// node puts the keys that the client's package nodes would put for a node.
func (m *member) node(set, id, metadata string, up bool) (lease string) {
	m.Helper()
	m.put(set+"/known/"+id, metadata, nil)
	if !up {
		return ""
	}
	key := set + "/up/" + id
	return m.grant(map[string]any{
		"ttl_ms": 600_000, "name": key, "owner": id,
		"keys": []any{map[string]any{"key": b64(key), "value": b64(metadata)}},
	})
}

// group opens the view of one group.
func (p *tab) group(kind, name string) {
	p.Helper()
	at := base64.RawURLEncoding.EncodeToString([]byte(name))
	p.run(chromedp.Evaluate(`location.hash = "#/groups/`+kind+`/`+at+`"`, nil))
	p.until("the view of "+name, "[...document.querySelectorAll('main h2')].some((h) => "+
		"h.innerText.includes("+quote(name)+"))")
}

// row waits until a table has a row whose cells begin with the given texts. An empty text matches
// any cell.
func (p *tab) row(title string, cells ...string) {
	p.Helper()
	p.until(fmt.Sprintf("a row %q of %q", cells, title), fmt.Sprintf(
		`[...document.querySelectorAll("table")].some((t) => t.caption.textContent === %s &&
			[...t.querySelectorAll("tbody tr")].some((r) => [%s].every((c, i) =>
				c === "" || r.cells[i].textContent.trim().startsWith(c))))`,
		quote(title), quoteAll(cells)))
}

func quoteAll(list []string) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = quote(s)
	}
	return strings.Join(out, ",")
}

// groups creates groups of each kind with client commands.
func groups(m *member) (leave func()) {
	leave = m.holds("group", "register", "web", "host-1", "--metadata", "10.0.0.7:80")
	m.holds("group", "register", "web", "host-2")
	for _, payload := range []string{"first", "second"} {
		m.client("queue", "push", "mail", payload)
	}
	m.client("queue", "push", "mail", "later", "--delay", "5h")
	m.client("pool", "create", "ports", "10.0.0.10-10.0.0.19", "10.0.1.0/28", "one")
	m.holds("pool", "acquire", "ports", "--owner", "host-1", "--want", "10.0.1.3")
	m.node("db", "node-a", "A", true)
	m.node("db", "node-b", "B", false)
	m.node("db", "node-c", "C", true)
	m.grant(map[string]any{
		"ttl_ms": 600_000, "name": "db/primary", "owner": "node-a",
		"keys": []any{map[string]any{"key": b64("db/primary"), "value": b64("node-a")}},
	})
	return leave
}

// TestGroups checks that the page shows members, queues, pools and nodes in the format of the
// client library. The client's commands create them.
func TestGroups(t *testing.T) {
	m := cluster(t, 1)[0]
	leave := groups(m)
	p := open(t, m.url+"/ui/#/groups")
	const all = "Members, queues, pools and nodes"
	p.row(all, "web", "members", "2 members")
	p.row(all, "mail", "queue", "3 items, 1 of them claimed or delayed")
	p.row(all, "ports", "pool", "1 lent")
	p.row(all, "db", "nodes", "2 up, 1 down")
	p.counts(4)
	p.picture("groups")
	p.fill("select", "pool")
	p.counts(1)
	p.fill("select", "")
	p.fill("input[type=search]", "we")
	p.counts(1)
	p.fill("input[type=search]", "")
	p.counts(4)

	p.click("th a", "web")
	p.row("Members", "host-1", "", "revision", "", "10.0.0.7:80")
	p.row("Members", "host-2", "", "revision")
	p.until("what is left", `/\d s/.test([...document.querySelectorAll("table")].at(-1).innerText)`)
	m.holds("group", "register", "web", "host-3")
	p.until("since when a member is there that the page saw come",
		`/host-3[^]*revision \d+, \d\d?:\d\d:\d\d/.test(document.querySelector("main").innerText)`)
	leave()
	p.until("that a member left",
		`![...document.querySelectorAll("table")].at(-1).innerText.includes("host-1")`)

	p.click("th a", "mail")
	const items = "Items, in processing order"
	p.row(items, "", "ready", "", "", "", "revision", "0", "first")
	p.row(items, "", "delayed", "", "", "4 h", "revision", "0", "later")
	m.holds("queue", "claim", "mail", "--worker", "worker-1", "--", "sleep", "600")
	p.row(items, "", "claimed", "worker-1", "", "", "revision", "1", "first")
	p.picture("queue")
	m.client("queue", "claim", "mail", "--max-tries", "1", "--worker", "worker-2")
	p.until("that an item is done", `!document.querySelector("main").innerText.includes("second")`)
	p.click("label", "dead letters")
	p.shows("No dead letters.")

	p.click("th a", "ports")
	p.row("Lent", "10.0.1.3", "lent", "")
	p.until("to whom", `[...document.querySelectorAll("table")].at(-1).innerText.includes("host-1")`)
	p.until("27 values but one", `[...document.querySelectorAll(".facts div")].some((d) =>
		d.innerText.replace(/\s+/g, " ") === "free 26")`)

	p.click("th a", "db")
	p.row("Nodes", "node-a", "alive", "primary", "", "", "", "A")
	p.row("Nodes", "node-b", "down", "", "", "", "", "B")
	p.row("Nodes", "node-c", "alive", "", "", "", "", "C")
	m.call("/v1/leases/revoke", map[string]any{
		"leases": []any{map[string]any{"name": "db/up/node-c"}},
	})
	p.row("Nodes", "node-c", "down")
}

// TestLongQueue checks that a long queue is loaded page by page.
func TestLongQueue(t *testing.T) {
	m := cluster(t, 1)[0]
	for i := range 100 {
		m.put(fmt.Sprintf("long/item/%012x-%02d-abcdefghij", 1, i),
			fmt.Sprintf("payload %03d", i), nil)
	}
	p := open(t, m.url+"/ui/")
	p.shows("healthy")
	p.group("queue", "long")
	p.shows("payload 000")
	p.until("one page", `[...document.querySelectorAll("table")].at(-1).tBodies[0].rows.length === 50`)
	p.click("button", "Next page")
	p.shows("payload 050")
	p.click("button", "Next page")
	p.click("button", "First page")
	p.shows("payload 000")
}
