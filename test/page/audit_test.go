package page

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// audited waits until an audit log has a line that contains all the given fields.
func audited(t *testing.T, file string, want map[string]string) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	late := time.After(*patience)
	for {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		fits := func(line []byte) bool {
			var r map[string]any
			if json.Unmarshal(line, &r) != nil {
				return false // the last line may be incomplete
			}
			for k, v := range want {
				if r[k] != v {
					return false
				}
			}
			return true
		}
		if slices.ContainsFunc(bytes.Split(text, []byte("\n")), fits) {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("no line has %v:\n%s", want, text)
		}
	}
}

// TestAudit checks that actions on the page, including denied ones, appear in the audit log with
// the user and the browser's address.
func TestAudit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit")
	m := cluster(t, 1, "--bcrypt-cost", "4", "--audit-log", file, "--audit-log-level", "writes")[0]
	m.role("a", "a/")
	m.users(map[string]string{"<b>al</b>": "a"})
	p := open(t, m.url+"/ui/")
	p.logIn("<b>al</b>")
	did := func(call, lease, outcome string) {
		t.Helper()
		want := map[string]string{
			"event": "call", "principal": "<b>al</b>", "address": "127.0.0.1",
			"call": call, "outcome": outcome,
		}
		if lease != "" {
			want["lease"] = lease
		}
		audited(t, file, want)
	}
	p.view("Leases")
	p.click("button", "Grant a lease")
	p.click("dialog button", "Grant")
	p.shows("at expiry")
	var id string
	p.eval("document.querySelector('dd .id').textContent", &id)
	p.click("button", "Change the TTL")
	p.fill("dialog input[name=ttl]", "2h")
	p.click("dialog button", "Change")
	p.shows("7200 s")
	p.click("button", "Revoke")
	p.click("dialog button", "Revoke")
	p.shows("The lease has ended")
	const service = "/leasehold.v1.LeaseService/"
	did("/etcdserverpb.Auth/Authenticate", "", "ok")
	did(service+"Grant", "", "ok")
	did(service+"ChangeTTL", id, "ok")
	did(service+"Revoke", id, "ok")
	for _, event := range []string{"lease granted", "lease TTL changed", "lease revoked"} {
		audited(t, file, map[string]string{"event": event, "principal": "<b>al</b>", "lease": id})
	}

	p.view("Keys")
	p.refused() // the user may only read a/
	const txn = "/leasehold.v1.StoreService/Txn"
	p.click("button", "Put a new key")
	p.fill("dialog input[name=key]", "b")
	p.click("dialog button", "Put")
	p.until("a refusal",
		"/permission denied/.test(document.querySelector('dialog [role=alert]').textContent)")
	did(txn, "", "denied")
	p.fill("dialog input[name=key]", "a/<i>")
	p.click("dialog button", "Put")
	p.until("no question", "!document.querySelector('dialog')")
	did(txn, "", "ok")
}
