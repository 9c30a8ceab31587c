package authn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/api/etcd/v3electionpb"
	"leasehold.dev/internal/api/etcd/v3lockpb"
	"leasehold.dev/internal/api/relayed"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/login"
	"leasehold.dev/test/issuertest"
)

// member is a member whose users and roles can be changed by a test.
type member struct {
	*Changes
	t       *testing.T
	view    atomic.Pointer[fsm.View]
	confirm func() // called by Confirm unless nil
}

func (m *member) View() *fsm.View { return m.view.Load() }

func (m *member) Confirm(ctx context.Context) error {
	if m.confirm != nil {
		m.confirm()
	}
	return ctx.Err()
}

func (m *member) ProposeOwn(_ context.Context, c fsm.Command) (fsm.Result, error) {
	v := *m.View()
	v.Members = []fsm.Member{c.(*fsm.SetMember).Member}
	m.view.Store(&v)
	return fsm.Result{}, nil
}

// change applies changes to users and roles in order.
func (m *member) change(steps ...func(*access.State) (*access.State, error)) {
	m.t.Helper()
	for _, f := range steps {
		next, err := f(m.View().Access)
		if err != nil {
			m.t.Fatal(err)
		}
		v := *m.View()
		v.Access = next
		m.view.Store(&v)
	}
	m.Announce()
}

func addUser(name string, hash []byte) func(*access.State) (*access.State, error) {
	return func(s *access.State) (*access.State, error) {
		return s.AddUser(name, hash, hash == nil)
	}
}

func grantRole(user, role string) func(*access.State) (*access.State, error) {
	return func(s *access.State) (*access.State, error) { return s.GrantRole(user, role) }
}

func addRole(name string) func(*access.State) (*access.State, error) {
	return func(s *access.State) (*access.State, error) { return s.AddRole(name) }
}

func setPassword(name string, hash []byte) func(*access.State) (*access.State, error) {
	return func(s *access.State) (*access.State, error) { return s.SetPassword(name, hash) }
}

// newLogins returns the Logins of a member without users.
func newLogins(t *testing.T, change func(*Config)) (*member, *Logins) {
	t.Helper()
	m := &member{Changes: NewChanges(), t: t}
	m.view.Store(fsm.New(fsm.Config{}).View())
	c := Config{
		MemberID: 1, Tokens: login.Options{Token: "simple", TTL: time.Minute, Member: 1},
		Passwords: login.PasswordOptions{Cost: 4}, Logger: slog.New(slog.DiscardHandler),
		Metrics: prometheus.NewRegistry(),
	}
	if change != nil {
		change(&c)
	}
	l, err := New(c, m, m.Changes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Bindings().Close)
	return m, l
}

// withUsers enables access control with users root and alice, whose passwords are the same as their
// names.
func withUsers(m *member, l *Logins) {
	m.t.Helper()
	for _, name := range []string{"root", "alice"} {
		m.change(addUser(name, hashOf(m.t, l, name)))
	}
	m.change(grantRole("root", "root"), addRole("a"), grantRole("alice", "a"),
		(*access.State).Enable)
}

func hashOf(t *testing.T, l *Logins, password string) []byte {
	t.Helper()
	hash, err := l.HashPassword(t.Context(), password)
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

func tokenOf(t *testing.T, l *Logins, user string) string {
	t.Helper()
	token, err := l.LogIn(t.Context(), user, user)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// withToken returns the context of a call with a token.
func withToken(ctx context.Context, token string) context.Context {
	return metadata.NewIncomingContext(ctx, metadata.Pairs("token", token))
}

// withCertificate returns the context of a call over a connection with a verified certificate.
func withCertificate(ctx context.Context, c *x509.Certificate) context.Context {
	return peer.NewContext(ctx, &peer.Peer{AuthInfo: credentials.TLSInfo{
		State: tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{c}}},
	}})
}

// TestLogIn checks that a login is rejected if the password is wrong, the user does not exist or
// has no password, or access control is disabled. A name too long for a token is rejected
// immediately, without waiting.
func TestLogIn(t *testing.T) {
	m, l := newLogins(t, nil)
	if _, err := l.LogIn(t.Context(), "root", "root"); !errors.Is(err, access.ErrNotEnabled) {
		t.Errorf("not enabled: %v", err)
	}
	withUsers(m, l)
	m.change(addUser("cert", nil), addUser("empty", []byte{}))
	for user, password := range map[string]string{
		"root": "alice", "nobody": "nobody", "cert": "", "empty": "", "": "", "alice": "Alice",
	} {
		if _, err := l.LogIn(t.Context(), user, password); !errors.Is(err, login.ErrRefused) {
			t.Errorf("%q with %q: %v", user, password, err)
		}
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel() // so that any wait fails
	long := strings.Repeat("x", login.MaxName+1)
	if _, err := l.LogIn(canceled, long, "x"); !errors.Is(err, login.ErrRefused) {
		t.Errorf("a long name: %v", err)
	}
}

// TestTokenWhileDisabling checks that a member does not reject a token if it only now learns that
// access control is disabled.
func TestTokenWhileDisabling(t *testing.T) {
	m, l := newLogins(t, nil)
	withUsers(m, l)
	m.confirm = func() {
		m.change(func(s *access.State) (*access.State, error) { return s.Disable(), nil })
	}
	if c, err := l.caller(withToken(t.Context(), "x")); err != nil || c != (identified{}) {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestStreamUser checks that the caller that opened a stream remains the same user as long as that
// user's password is unchanged, regardless of other users. A stream opened without a login remains
// anonymous.
func TestStreamUser(t *testing.T) {
	m, l := newLogins(t, nil)
	open := func(token string) *streamUser {
		s, err := l.open(withToken(t.Context(), token))
		if (err == nil) != (token == "" || s == nil || s.name != "") {
			t.Errorf("%q opens %+v, %v", token, s, err)
		}
		return s
	}
	if s := open(""); s != nil {
		t.Errorf("nobody is %+v", s)
	}
	withUsers(m, l)
	alice, forged := open(tokenOf(t, l, "alice")), open("x")
	may := func(s *streamUser, want error) {
		t.Helper()
		if err := m.View().Access.CheckKnown(s.Caller()); !errors.Is(err, want) {
			t.Errorf("%q: %v, not %v", s.name, err, want)
		}
	}
	m.change(addRole("more"))
	may(alice, nil)
	may(forged, access.ErrInvalidLogin)
	if s := open(""); s != nil {
		t.Errorf("nobody is %+v", s)
	}
	m.change(setPassword("alice", []byte("other")))
	may(alice, access.ErrInvalidLogin)
	m.change(func(s *access.State) (*access.State, error) { return s.DeleteUser("alice") })
	may(alice, access.ErrInvalidLogin)
}

// TestWaitingCaller checks that a caller waiting for a lock keeps waiting when other users change.
// Otherwise, it could not even leave the queue. A password change ends the wait.
func TestWaitingCaller(t *testing.T) {
	m, l := newLogins(t, nil)
	withUsers(m, l)
	for _, method := range []string{
		v3lockpb.Lock_Lock_FullMethodName, v3electionpb.Election_Campaign_FullMethodName,
	} {
		m.change(setPassword("alice", hashOf(t, l, "alice")))
		ctx, leave, err := l.Enter(withToken(t.Context(), tokenOf(t, l, "alice")), method)
		if err != nil {
			t.Fatal(err)
		}
		known := func() error { return m.View().Access.CheckKnown(api.CallerOf(ctx)) }
		m.change(addRole(method))
		if err := known(); err != nil {
			t.Errorf("%s: another role: %v", method, err)
		}
		m.change(setPassword("alice", []byte("x")))
		if err := known(); !errors.Is(err, access.ErrInvalidLogin) {
			t.Errorf("%s: another password: %v", method, err)
		}
		leave()
	}
}

// TestRelayReceivesLoginState checks that a relay asking whether a caller has logged in receives
// the answer immediately, before the first response.
func TestRelayReceivesLoginState(t *testing.T) {
	var sent sentHeader
	ctx := grpc.NewContextWithServerTransportStream(
		metadata.NewIncomingContext(t.Context(), metadata.Pairs(relayed.KeyKnown, "")), &sent)
	recordLogin(ctx)
	if len(sent.sent.Get(relayed.KeyKnown)) != 1 {
		t.Errorf("the relay is told %v", sent.sent)
	}
}

// sentHeader records the header sent on a stream.
type sentHeader struct{ sent metadata.MD }

func (*sentHeader) Method() string                   { return "" }
func (*sentHeader) SetHeader(metadata.MD) error      { return nil }
func (*sentHeader) SetTrailer(metadata.MD) error     { return nil }
func (h *sentHeader) SendHeader(m metadata.MD) error { h.sent = m; return nil }

// TestUnverifiedTokenBesideRootsCertificate checks that a caller identified by a relay before
// access control is enabled cannot act as root afterwards. The stream is opened with root's
// certificate and a token, which is not verified while access control is disabled.
func TestUnverifiedTokenBesideRootsCertificate(t *testing.T) {
	m, l := newLogins(t, func(c *Config) { c.CommonNames = true })
	ctx := withCertificate(withToken(t.Context(), "x"),
		&x509.Certificate{Subject: pkix.Name{CommonName: "root"}})
	opened, err := l.open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	by := api.WithCaller(t.Context(), access.Caller{User: "relay", Revision: 1 << 60})
	call, err := l.Impersonate(by, api.WithIdentity(ctx, opened))
	if err != nil {
		t.Fatal(err)
	}
	withUsers(m, l)
	m.change(addUser("relay", nil), addRole("relay"), grantRole("relay", "relay"))
	if err := l.CheckRelay(by); err != nil {
		t.Fatal(err)
	}
	if who := api.CallerOf(call); who != access.InvalidLogin {
		t.Errorf("the relay speaks for %+v", who)
	}
}

// bound is a member with users and bindings. Tests rewrite the bindings file.
type bound struct {
	*member
	*Logins
	issuer     *issuertest.Issuer
	file, text string
}

func newBound(t *testing.T, issuer *issuertest.Issuer, commonNames bool) *bound {
	t.Helper()
	b := &bound{issuer: issuer, file: filepath.Join(t.TempDir(), "bindings")}
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, issuer.KeySet(), 0o600); err != nil {
		t.Fatal(err)
	}
	b.text = fmt.Sprintf(`
issuers:
  - {name: corp, url: %q, audiences: [leasehold], keys-file: %q}
bindings:
  - {issuer: corp, claims: {groups: writers}, roles: [a]}
`, issuer.URL, keys)
	if err := os.WriteFile(b.file, []byte(b.text), 0o600); err != nil {
		t.Fatal(err)
	}
	b.member, b.Logins = newLogins(t, func(c *Config) {
		c.BindingsFile, c.CommonNames, c.Certificates = b.file, commonNames, true
	})
	withUsers(b.member, b.Logins)
	return b
}

// rewrite replaces the bindings file.
func (b *bound) rewrite(text string) {
	b.t.Helper()
	if err := os.WriteFile(b.file+".new", []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
	if err := os.Rename(b.file+".new", b.file); err != nil {
		b.t.Fatal(err)
	}
	b.Bindings().Reload()
}

func newIssuer(t *testing.T) *issuertest.Issuer {
	i := issuertest.New(t, false)
	i.AddECDSA(t, "k")
	return i
}

// TestBoundStreamUser checks that the current bindings determine a stream's principal. The caller
// stays the same as long as the bindings give the same result.
func TestBoundStreamUser(t *testing.T) {
	b := newBound(t, newIssuer(t), false)
	token := b.issuer.Token(t, "k", "bob", jwt.MapClaims{"groups": []string{"writers"}})
	s, err := b.open(withToken(t.Context(), token))
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
		b.rewrite(strings.Replace(b.text, x.before, x.after, 1))
		got := s.Caller()
		if (got == first) != x.same || got.User == "alice" {
			t.Errorf("with %q the caller is %+v", x.after, got)
		}
	}
	b.rewrite(b.text)
	b.change(addUser("corp:bob", nil))
	err = b.member.View().Access.CheckKnown(s.Caller())
	if !errors.Is(err, access.ErrPermissionDenied) {
		t.Errorf("a principal with the name of a user: %v", err)
	}
}

// TestCommonNameStreamUser covers a stream whose user comes from the common name of a certificate.
// The caller is valid as long as the bindings map the certificate to that user.
func TestCommonNameStreamUser(t *testing.T) {
	b := newBound(t, newIssuer(t), true)
	s, err := b.open(withCertificate(t.Context(), &x509.Certificate{
		Subject: pkix.Name{CommonName: "alice"}, DNSNames: []string{"b.example.org"},
	}))
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
		{"bound to roles", b.text + "  - {dns: b.example.org, roles: [a]}\n", access.InvalidLogin},
		{"bound to root", b.text + "  - {dns: b.example.org, user: root}\n", access.InvalidLogin},
		{"no common names", "common-names: false\n" + b.text, access.InvalidLogin},
		{"as before", b.text, alice},
	} {
		b.rewrite(x.text)
		if got := s.Caller(); got != x.want {
			t.Errorf("%s: the caller is %+v", x.why, got)
		}
	}
}

// TestBoundStreamEnds checks that a stream ends when the token that opened it expires. At that
// time, all open streams check their callers again.
func TestBoundStreamEnds(t *testing.T) {
	issuer := newIssuer(t)
	synctest.Test(t, func(t *testing.T) {
		b := newBound(t, issuer, false)
		opened := func(subject string, d time.Duration) *streamUser {
			s, err := b.open(withToken(t.Context(), issuer.Token(t, "k", subject, jwt.MapClaims{
				"groups": "writers", "exp": time.Now().Add(d).Unix(),
			})))
			if err != nil || s.Caller().User != "corp:"+subject {
				t.Fatalf("the stream is of %+v, %v", s, err)
			}
			return s
		}
		called := opened("bob", time.Minute)
		defer called.wakeAtEnd()()
		opened("eve", time.Second).wakeAtEnd()() // this stream ends before its token expires
		changed := b.AccessChanged()
		time.Sleep(90*time.Second - 1) // including the leeway
		select {
		case <-changed:
			t.Error("a change is announced before the end of the token")
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
			t.Error("no change is announced at the end of the token")
		}
		if got := called.Caller(); got != access.InvalidLogin {
			t.Errorf("after the end of its token a stream is of %+v", got)
		}
	})
}
