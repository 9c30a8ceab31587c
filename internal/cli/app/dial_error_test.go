package app

import "testing"

// TestDialErrorIn checks that the error of a failed call explains why no member could answer.
func TestDialErrorIn(t *testing.T) {
	for text, want := range map[string]string{
		"rpc error: code = Unavailable desc = etcdserver: request timed out, no leader: member 1": "" +
			"no leader: member 1",
		`rpc error: code = Unavailable desc = connection error: desc = "transport: Error while ` +
			`dialing: refused"`: "refused",
		"rpc error: code = Unavailable desc = etcdserver: request timed out": "",
		`rpc error: code = Unavailable desc = connection error: desc = "transport: authentication ` +
			`handshake failed: tls: first record does not look like a TLS handshake"`: "" +
			"authentication handshake failed: tls: first record does not look like a TLS handshake " +
			"(perhaps the port does not speak TLS: use http://)",
	} {
		if why, found := DialErrorIn(text); why != want || found != (want != "") {
			t.Errorf("%q: %q, %t", text, why, found)
		}
	}
}
