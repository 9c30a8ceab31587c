package transport

import (
	"net/url"
	"testing"

	"leasehold.dev/internal/listen"
	"leasehold.dev/test/virtual"
)

// secrets returns the server and client configurations of a member with its own certificate. The
// member trusts only the certificates in trusted. If trusted is "", it trusts itself; if it is
// "nobody", verification is disabled.
func secrets(t *testing.T, trusted string) (o options, file string) {
	t.Helper()
	made, err := listen.TLS{Auto: true}.SelfSigned(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	conf := made
	if trusted != "nobody" {
		if trusted == "" {
			trusted = made.CertFile // a self-signed certificate is its own CA
		}
		conf = listen.TLS{CertFile: made.CertFile, KeyFile: made.KeyFile, TrustedCAFile: trusted}
	}
	if o.server, err = conf.Server(); err != nil {
		t.Fatal(err)
	}
	if o.client, err = conf.Client(); err != nil {
		t.Fatal(err)
	}
	o.url = url.URL{Scheme: "https", Host: "127.0.0.1:0"}
	return o, made.CertFile
}

// TestTLS checks that members that trust the same CA, or that all disable verification, can
// exchange messages, snapshots and queries. Deaths are detected as without TLS.
func TestTLS(t *testing.T) { virtual.Test(t, testTLS) }

func testTLS(t *testing.T) {
	for _, trusted := range []string{"", "nobody"} {
		o, _ := secrets(t, trusted)
		a, b := pair(t, o)
		results := collect(b, nil)
		if err := a.sendSnapshot(t.Context(), nil, chunks(3, 1<<20)); err != nil {
			t.Error(err)
		}
		if r := want(t, results); r.bytes != 3<<20 {
			t.Errorf("%d bytes", r.bytes)
		}
		got, err := Describe(t.Context(), b.url, inMemory(Way{TLS: o.client}))
		if err != nil || len(got) == 0 {
			t.Errorf("%q, %v", got, err)
		}
		b.stop()
		if want(t, a.gone) != 2 {
			t.Error("wrong member")
		}
	}
}

// TestTLSRefused checks that nothing is delivered if either end does not trust the other, or if
// only one end uses TLS. Each case is logged, and none is mistaken for a death.
func TestTLSRefused(t *testing.T) { virtual.Test(t, testTLSRefused) }

func testTLSRefused(t *testing.T) {
	ours, file := secrets(t, "")
	theirs, _ := secrets(t, "")
	believer, _ := secrets(t, file) // trusts us, but we do not trust it
	b := start(t, 2, ours)
	plain := b.peer(2)
	plain.URLs[0].Scheme = "http"
	for name, c := range map[string]struct {
		o    options
		to   Peer
		word string
	}{
		"listener not trusted": {theirs, b.peer(2), "certificate"},
		"dialer not trusted":   {believer, b.peer(2), "no connection"}, // could be just a reset
		"plain":                {options{}, plain, "no connection"},
		"no configuration":     {options{}, b.peer(2), "needs a TLS configuration"},
	} {
		a := start(t, 1, c.o)
		a.Update([]Peer{c.to})
		a.Send(2, bytesMessage("x"))
		until(t, name, func() bool { return a.log.Count(c.word) > 0 })
		if _, err := Describe(t.Context(), c.to.URLs[0], inMemory(Way{TLS: c.o.client})); err == nil {
			t.Errorf("%s: got an answer", name)
		}
		if _, ok := a.Since(2); ok {
			t.Errorf("%s: connected", name)
		}
		never(t, name, a.gone)
		never(t, name, b.got)
		a.stop()
	}
}
