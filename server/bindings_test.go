package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/binding/issuertest"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/test/virtual"
)

// bindingsFor is a file of bindings: a token of corp with the group writers gives the role a, and
// so do certificates of the trust domain prod and of the host a.example.org.
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

// writeBindings replaces a file of bindings.
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

// newIssuer starts an issuer with the key k.
func newIssuer(t testing.TB) *issuertest.Issuer {
	t.Helper()
	corp := issuertest.On(t, virtual.Port(t))
	corp.AddECDSA(t, "k")
	return corp
}

var writers = jwt.MapClaims{"groups": []string{"readers", "writers"}}

// svid gives a certificate a SPIFFE ID, and perhaps a common name and names of hosts.
func svid(id, name string, hosts ...string) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		c.Subject.CommonName, c.DNSNames = name, hosts
		if id != "" {
			c.URIs = []*url.URL{spiffeid.RequireFromString(id).URL()}
		}
	}
}

// Goal: SANs of certificates and tokens of an issuer are who the file says, over gRPC; through the
// gateway tokens are, and no certificate is: not the client's, nor the server's own, which here
// names root (CVE-2018-16886 is that of common names). A token goes before a certificate, and one
// that does not count is not made good by one.
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
		certificate string // "" for a connection without TLS
		token       string
		own, other  error // of a key of the role a, and of another
		gateway     error // of a key of the role a
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

// tokenClient returns etcd's client with a token, and whatever else it is given.
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

// watchOf opens a watch of the key a that is told of one change.
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

// runBound runs a member with users, and with bindings for tokens of an issuer, of which it returns
// the text.
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

// A watch ends at once, though nothing happens to its keys, when its principal is bound no more,
// or to other roles, and when its roles may no more. A change of the file that leaves it as it is
// does not end it.
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
		case <-time.After(time.Minute): // rather than for ever
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

// A stream is its principal's by the rules of now, and the same caller as long as these say the
// same. One that a certificate bound before access control was enabled is so, too.
func TestBoundStreamUser(t *testing.T) { virtual.Test(t, testBoundStreamUser) }

func testBoundStreamUser(t *testing.T) {
	r, corp, text := runBound(t)
	ctx := metadataContext(t.Context(), corp.Token(t, "k", "bob", writers))
	s, err := r.node.logins.open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	first := s.Caller()
	if first.User != "corp:bob" || first.Bound == nil || strings.Join(first.Bound.Roles, " ") != "a" {
		t.Fatalf("the stream is of %+v", first)
	}
	if s.Caller() != first {
		t.Error("the same caller is another")
	}
	for _, x := range []struct {
		before, after string
		same          bool
	}{
		{"issuers:", "\nissuers:", true},
		{"roles: [a]}", "roles: [a, z]}", false},
		{"roles: [a]}", "user: alice}", false},
	} {
		writeBindings(t, r.cfg.Access.BindingsFile, strings.Replace(text, x.before, x.after, 1))
		r.Reload()
		got := s.Caller()
		if (got == first) != x.same || got.User == "alice" {
			t.Errorf("with %q the caller is %+v", x.after, got)
		}
	}
	writeBindings(t, r.cfg.Access.BindingsFile, text)
	r.Reload()
	r.asRoot(t, &fsm.UserAdd{Name: "corp:bob", NoPassword: true})
	err = r.node.View().Access.CheckKnown(s.Caller())
	if !errors.Is(err, access.ErrPermissionDenied) {
		t.Errorf("a principal with the name of a user: %v", err)
	}
}

// A stream whose user is the common name of a certificate lasts for as long as the bindings say that
// the certificate stands for that user.
func TestCommonNameStreamUser(t *testing.T) { virtual.Test(t, testCommonNameStreamUser) }

func testCommonNameStreamUser(t *testing.T) {
	r, _, text := runBound(t)
	r.node.logins.certificates = true
	ctx := peer.NewContext(t.Context(), &peer.Peer{
		AuthInfo: credentials.TLSInfo{State: tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{
			{{Subject: pkix.Name{CommonName: "alice"}, DNSNames: []string{"b.example.org"}}},
		}}},
	})
	s, err := r.node.logins.open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	alice := s.Caller()
	if alice.User != "alice" {
		t.Fatalf("the stream is of %+v", alice)
	}
	for _, x := range []struct {
		why, text string
		want      access.Caller
	}{
		{"bound to roles", text + "  - {dns: b.example.org, roles: [a]}\n", access.InvalidLogin},
		{"bound to root", text + "  - {dns: b.example.org, user: root}\n", access.InvalidLogin},
		{"no common names", "common-names: false\n" + text, access.InvalidLogin},
		{"as before", text, alice},
	} {
		writeBindings(t, r.cfg.Access.BindingsFile, x.text)
		r.Reload()
		if got := s.Caller(); got != x.want {
			t.Errorf("%s: the caller is %+v", x.why, got)
		}
	}
}

// What is open ends with the token that it was opened with: then all that is open looks again.
func TestBoundStreamEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	corp := newIssuer(t)
	keys := writeBindings(t, filepath.Join(dir, "keys"), string(corp.KeySet()))
	text := strings.Replace(bindingsFor(corp), "clock-leeway: 1ms", "keys-file: "+keys, 1)
	c := cheapConfig(dir)
	c.Access.BindingsFile = writeBindings(t, filepath.Join(dir, "b"), text)
	synctest.Test(t, func(t *testing.T) {
		n := &node{core: &core{waiting: waiting{accessNews: newAccessNews()}, log: c.Logger}}
		n.view.Store(fsm.New(fsm.Config{}).View())
		l := &logins{node: n}
		if err := l.openBindings(c); err != nil {
			t.Fatal(err)
		}
		defer l.bindings.Close()
		opened := func(subject string, d time.Duration) *streamUser {
			ctx := metadataContext(t.Context(), corp.Token(t, "k", subject, jwt.MapClaims{
				"groups": "writers", "exp": time.Now().Add(d).Unix(),
			}))
			who, err := l.caller(ctx)
			if err != nil || who.User != "corp:"+subject {
				t.Fatalf("the caller is %+v, %v", who, err)
			}
			return l.stays(who)
		}
		called := opened("bob", time.Minute)
		defer called.wakeAtEnd()()
		opened("eve", time.Second).wakeAtEnd()() // ends before its token
		changed := n.AccessChanged()
		time.Sleep(90*time.Second - 1) // with the leeway
		select {
		case <-changed:
			t.Error("something is told before the end of the token")
		default:
		}
		if got := called.Caller(); got.User != "corp:bob" {
			t.Errorf("before the end of its token a stream is of %+v", got)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		select {
		case <-changed:
		default:
			t.Error("nothing is told at the end of the token")
		}
		if got := called.Caller(); got != access.InvalidLogin {
			t.Errorf("after the end of its token a stream is of %+v", got)
		}
	})
}

// A member with a file that is wrong does not start. One that asks nobody for the certificates
// that the file is about says so.
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
	if !strings.Contains(log.String(), "clients are not asked for one") {
		t.Errorf("nobody shows certificates, and the log tells %q", &log)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func metadataContext(ctx context.Context, token string) context.Context {
	return metadata.NewIncomingContext(ctx, metadata.Pairs("token", token))
}
