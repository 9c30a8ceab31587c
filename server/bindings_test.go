package server

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/test/issuertest"
	"leasehold.dev/test/virtual"
)

// bindingsFor returns a bindings file. It gives the role "a" to tokens from corp with the group
// writers, and to certificates for the trust domain prod or the host a.example.org.
func bindingsFor(corp *issuertest.Issuer) string {
	return fmt.Sprintf(`
issuers:
  - {name: corp, url: %q, audiences: [leasehold], clock-leeway: 1ms}
bindings:
  - {issuer: corp, claims: {groups: writers}, roles: [a]}
  - {issuer: corp, claims: {sub: boss}, user: root}
  - {spiffe: spiffe://prod/*, roles: [a]}
  - {spiffe: spiffe://admin/root, user: root}
  - {dns: a.example.org, roles: [a]}
`, corp.URL)
}

// writeBindings atomically replaces a bindings file.
func writeBindings(t testing.TB, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	return path
}

// newIssuer starts a token issuer with the key k.
func newIssuer(t testing.TB) *issuertest.Issuer {
	t.Helper()
	corp := issuertest.On(t, virtual.Port(t))
	corp.AddECDSA(t, "k")
	return corp
}

var writers = jwt.MapClaims{"groups": []string{"readers", "writers"}}

// svid returns a function that adds a SPIFFE ID, a common name and host names to a certificate. The
// common name and host names are optional.
func svid(id, name string, hosts ...string) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		c.Subject.CommonName, c.DNSNames = name, hosts
		if id != "" {
			c.URIs = []*url.URL{spiffeid.RequireFromString(id).URL()}
		}
	}
}

// TestBoundCallers checks that over gRPC, certificate SANs and tokens from an issuer identify
// callers according to the bindings. Through the gateway, only tokens count. The gateway must use
// neither the client's certificate nor the server's own, which is bound to root here
// (CVE-2018-16886 is the same fault with common names). A token takes precedence over a
// certificate: if the token is invalid, the certificate is not used instead.
func TestBoundCallers(t *testing.T) { virtual.Test(t, testBoundCallers) }

func testBoundCallers(t *testing.T) {
	dir := shortDir(t)
	c := cheapConfig(dir)
	corp := newIssuer(t)
	c.Access.BindingsFile = writeBindings(t, filepath.Join(dir, "b"), bindingsFor(corp))
	certs := newCertificates(t)
	certs.Issue("server", svid("spiffe://admin/root", "root", "localhost", "a.example.org"))
	plain, secure := filepath.Join(dir, "s"), filepath.Join(dir, "t")
	c.URLs.ListenClient = append(c.URLs.ListenClient, url.URL{Scheme: "unixs", Path: secure})
	c.ClientTLS = TLS{
		CertFile: certs.cert, KeyFile: certs.key, TrustedCAFile: certs.ca, ClientCertAuth: true,
	}
	r := run(t, c)
	withUsers(t, r)
	for name, with := range map[string]func(*x509.Certificate){
		"svid":       svid("spiffe://prod/x", "root"),
		"root":       svid("spiffe://admin/root", ""),
		"stranger":   svid("spiffe://other/x", ""),
		"alice":      svid("spiffe://other/x", "alice"),
		"host":       svid("", "root", "a.example.org"),
		"other host": svid("", "", "b.example.org"),
	} {
		certs.clients[name] = certs.Issue("client", with)
	}
	token := func(subject string, more jwt.MapClaims) string {
		return corp.Token(t, "k", subject, more)
	}
	bob := token("bob", writers)
	old := token("bob", jwt.MapClaims{
		"exp": time.Now().Add(-time.Second).Unix(), "groups": "writers",
	})
	empty, denied, invalid := rpctypes.ErrUserEmpty, rpctypes.ErrPermissionDenied,
		rpctypes.ErrInvalidAuthToken
	for name, x := range map[string]struct {
		certificate string // "" means a connection without TLS
		token       string
		own, other  error // for a key that the role "a" permits, and for another key
		gateway     error // for a key that the role "a" permits
	}{
		"SPIFFE ID":             {"svid", "", nil, denied, empty},
		"SPIFFE ID of a user":   {"root", "", nil, nil, empty},
		"SPIFFE ID of nobody":   {"stranger", "", empty, empty, empty},
		"common name beside it": {"alice", "", nil, denied, empty},
		"host":                  {"host", "", nil, denied, empty},
		"host of nobody":        {"other host", "", empty, empty, empty},
		"token":                 {"", bob, nil, denied, nil},
		"bearer":                {"", "Bearer " + bob, nil, denied, nil},
		"token of a user":       {"", token("boss", nil), nil, nil, nil},
		"token of nobody":       {"", token("eve", nil), denied, denied, denied},
		"subject root":          {"", token("root", nil), denied, denied, denied},
		"old token":             {"", old, invalid, invalid, invalid},
		"forged token":          {"", bob + "x", invalid, invalid, invalid},
		"old token, root":       {"root", old, invalid, invalid, invalid},
		"token, root":           {"root", bob, nil, denied, nil},
		"user's token, SPIFFE":  {"svid", r.token(t, "root"), nil, nil, nil},
	} {
		socket, conf := plain, (*tls.Config)(nil)
		if x.certificate != "" {
			socket, conf = secure, certs.config(x.certificate, "h2")
		}
		header := ""
		if x.token != "" {
			header = "authorization"
		}
		conn := dial(t, socket, conf)
		for key, want := range map[string]error{"a": x.own, "c": x.other} {
			if err := put(t, conn, key, header, x.token); !errors.Is(err, want) {
				t.Errorf("%s, of %s: %v, not %v", name, key, err, want)
			}
		}
		want := ""
		if x.gateway != nil {
			want = x.gateway.Error()
		}
		if conf != nil {
			conf.NextProtos = []string{"http/1.1"}
		}
		if got := putJSON(t, socket, conf, "a", header, x.token); got != want {
			t.Errorf("%s, through the gateway: %q, not %q", name, got, want)
		}
	}
	off := strings.Replace(bindingsFor(corp), "issuers:", "common-names: false\nissuers:", 1)
	writeBindings(t, c.Access.BindingsFile, off)
	r.Reload()
	conn := dial(t, secure, certs.config("alice", "h2"))
	if err := put(t, conn, "a", "", ""); !errors.Is(err, empty) {
		t.Errorf("a common name that is no user: %v", err)
	}
}

// tokenClient returns an etcd client that sends a token.
func tokenClient(t testing.TB, m *running, token string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{m.cfg.URLs.ListenClient[0].String()}, DialTimeout: time.Minute,
		Token: token, Logger: quiet(), DialOptions: []grpc.DialOption{virtual.GRPC()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// watchOf opens a watch on key a and receives one event.
func watchOf(t testing.TB, c *clientv3.Client) clientv3.WatchChan {
	t.Helper()
	w := c.Watch(t.Context(), "a", clientv3.WithCreatedNotify())
	if got := <-w; !got.Created {
		t.Fatalf("the watch is told %+v", got)
	}
	if _, err := c.Put(t.Context(), "a", ""); err != nil {
		t.Fatal(err)
	}
	if got := <-w; len(got.Events) != 1 {
		t.Fatalf("the watch is told %+v", got)
	}
	return w
}

// runBound runs a member with users and with bindings for tokens from an issuer, and returns the
// text of its bindings file.
func runBound(t *testing.T) (*running, *issuertest.Issuer, string) {
	t.Helper()
	dir := shortDir(t)
	c := cheapConfig(dir)
	corp := newIssuer(t)
	text := bindingsFor(corp)
	c.Access.BindingsFile = writeBindings(t, filepath.Join(dir, "b"), text)
	r := run(t, c)
	withUsers(t, r)
	return r, corp, text
}

// TestBoundWatchEnds checks that a watch ends promptly when its principal is no longer bound, is
// bound to other roles, or its roles lose the permission. A change to the bindings file that does
// not affect the principal leaves the watch open.
func TestBoundWatchEnds(t *testing.T) { virtual.Test(t, testBoundWatchEnds) }

func testBoundWatchEnds(t *testing.T) {
	r, corp, text := runBound(t)
	client := tokenClient(t, r, corp.Token(t, "k", "bob", writers))
	ends := func(w clientv3.WatchChan, why string) {
		t.Helper()
		select {
		case got, ok := <-w:
			if ok && (got.Err() == nil || len(got.Events) > 0) {
				t.Errorf("%s: the watch is told %+v", why, got)
			}
		case <-time.After(time.Minute): // fail instead of blocking forever
			t.Fatalf("%s: the watch goes on", why)
		}
	}
	watch := watchOf(t, client)
	writeBindings(t, r.cfg.Access.BindingsFile, text+"  - {dns: more.example.org, roles: [a]}\n")
	r.Reload()
	if _, err := client.Put(t.Context(), "a", ""); err != nil {
		t.Error(err)
	}
	if got := <-watch; len(got.Events) != 1 {
		t.Errorf("after a change that does not matter the watch is told %+v", got)
	}
	writeBindings(t, r.cfg.Access.BindingsFile,
		strings.Replace(text, "groups: writers", "groups: x", 1))
	r.Reload()
	ends(watch, "bound no more")
	writeBindings(t, r.cfg.Access.BindingsFile, text)
	r.Reload()

	watch = watchOf(t, client)
	writeBindings(t, r.cfg.Access.BindingsFile, strings.Replace(text, "[a]", "[b]", 1))
	r.Reload()
	ends(watch, "with other roles")
	writeBindings(t, r.cfg.Access.BindingsFile, text)
	r.Reload()

	watch = watchOf(t, client)
	r.asRoot(t, &fsm.RoleRevoke{Role: "a", Key: "a", End: "b"})
	ends(watch, "without the right")
}

// TestWrongBindings checks that a member with an invalid bindings file does not start. A member
// whose bindings match certificates logs a warning if it does not request client certificates.
func TestWrongBindings(t *testing.T) { virtual.Test(t, testWrongBindings) }

func testWrongBindings(t *testing.T) {
	dir := shortDir(t)
	c := cheapConfig(dir)
	c.Access.BindingsFile = writeBindings(t, filepath.Join(dir, "b"), "bindings: [{user: a}]")
	if _, err := New(c); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), dir+"/b:1: ") {
		t.Errorf("it starts: %v", err)
	}
	writeBindings(t, c.Access.BindingsFile, "bindings: [{dns: a, user: a}]")
	var log bytes.Buffer
	c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "clients are not asked for certificates") {
		t.Errorf("nobody shows certificates, and the log tells %q", &log)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
