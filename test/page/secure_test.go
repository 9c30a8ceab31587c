package page

import "testing"

// TestSecure checks that the page works over TLS, with HTTP/2. Links lead to other members, where
// the user is not logged in.
func TestSecure(t *testing.T) {
	all := secureCluster(t, 3, "--bcrypt-cost", "4")
	m, other := all[0], all[1]
	m.users(map[string]string{})
	p := open(t, m.url+"/ui/#/leases")
	p.shows("Log in")
	p.logIn("root")
	p.kept(true)
	p.until("the stream", "document.querySelector('[data-state=live]')")
	p.view("Leases")
	p.click("button", "Grant a lease")
	p.fill("dialog input[name=name]", "over/tls")
	p.click("dialog button", "Grant")
	p.shows("at expiry")
	p.click("button", "Revoke")
	p.click("dialog button", "Revoke")
	p.shows("The lease has ended")
	p.view("Events")
	p.shows("by root")
	var odd string // canceled calls report no protocol, so skip them
	p.eval(`["navigation", "resource"].flatMap((k) => performance.getEntriesByType(k)).filter((e) =>
		e.nextHopProtocol && e.nextHopProtocol !== "h2").map((e) =>
		e.nextHopProtocol + " " + e.name).join() +
		(isSecureContext ? "" : "; the browser does not call it secure")`, &odd)
	if odd != "" {
		t.Errorf("not by HTTP/2: %s", odd)
	}

	m.kill()
	p.until("that the member is lost", "document.querySelector('[data-state=lost]')")
	p.follow("[data-state] a", other.name())
	p.until("the page of another member", "location.href === "+quote(other.url+"/ui/#/events"))
	p.shows("Log in")
	p.kept(false)
}
