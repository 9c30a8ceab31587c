package server

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/test/certs"
	"leasehold.dev/test/virtual"
)

// cheap is the bcrypt cost used in tests.
const cheap = 4

// withUsers enables access control with users root and alice. Alice can read and write keys that
// begin with "a". Each user's password is the user's name.
func withUsers(t testing.TB, r *running) {
	t.Helper()
	commands := []fsm.Command{
		&fsm.UserGrantRole{User: "root", Role: "root"}, &fsm.RoleAdd{Name: "a"},
		&fsm.RoleGrant{Role: "a", Permission: access.Permission{
			Kind: access.ReadWrite, Key: "a", End: "b",
		}},
		&fsm.UserGrantRole{User: "alice", Role: "a"}, &fsm.AuthEnable{},
	}
	for _, user := range []string{"root", "alice"} {
		hash, err := r.logins.HashPassword(t.Context(), user)
		if err != nil {
			t.Fatal(err)
		}
		commands = append([]fsm.Command{&fsm.UserAdd{Name: user, Hash: hash}}, commands...)
	}
	for _, c := range commands {
		if res, err := r.node.order(t.Context(), c); errors.Join(err, res.Err) != nil {
			t.Fatal(err, res.Err)
		}
	}
}

// asRoot proposes a command as root.
func (r *running) asRoot(t testing.TB, c fsm.Command) {
	t.Helper()
	root := access.Caller{User: access.Root, Revision: r.node.View().Access.Revision()}
	res, err := r.node.Propose(api.WithCaller(t.Context(), root), c)
	if errors.Join(err, res.Err) != nil {
		t.Fatal(err, res.Err)
	}
}

// token logs in as a user and returns the token.
func (r *running) token(t testing.TB, user string) string {
	t.Helper()
	token, err := r.logins.LogIn(t.Context(), user, user)
	if err != nil {
		t.Fatalf("%s: %v", user, err)
	}
	return token
}

// cheapConfig returns a testConfig with a low bcrypt cost.
func cheapConfig(dir string) Config {
	c := testConfig(dir)
	c.Access.BcryptCost, c.Access.MinPassword = cheap, 0
	return c
}

// certificates holds a CA with its files, a server certificate, and client certificates by common
// name.
type certificates struct {
	*certs.Authority
	ca, cert, key string
	clients       map[string]tls.Certificate
}

func newCertificates(t testing.TB, names ...string) *certificates {
	t.Helper()
	a := certs.New(t)
	a.Issue("server")
	c := &certificates{
		Authority: a, ca: a.Path("ca.pem"), cert: a.Path("server.pem"), key: a.Path("server.key"),
		clients: make(map[string]tls.Certificate),
	}
	for _, name := range names {
		c.clients[name] = a.Issue("client", func(x *x509.Certificate) { x.Subject.CommonName = name })
	}
	return c
}

// config returns the TLS configuration of a client that presents the certificate called name.
func (c *certificates) config(name string, protocols ...string) *tls.Config {
	conf := c.Client(c.clients[name])
	conf.ServerName, conf.NextProtos = "localhost", protocols
	return conf
}

// dial connects to a socket, using TLS if conf is not nil.
func dial(
	t testing.TB, socket string, conf *tls.Config, more ...grpc.DialOption,
) *grpc.ClientConn {
	t.Helper()
	creds := insecure.NewCredentials()
	if conf != nil {
		creds = credentials.NewTLS(conf)
	}
	more = append(more, grpc.WithTransportCredentials(creds), virtual.GRPC())
	conn, err := grpc.NewClient("unix:"+socket, more...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// put puts a key over gRPC. It sends a header unless the header name is empty.
func put(t testing.TB, conn *grpc.ClientConn, key, header, value string) error {
	t.Helper()
	ctx := t.Context()
	if header != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, header, value)
	}
	_, err := pb.NewKVClient(conn).Put(ctx, &pb.PutRequest{Key: []byte(key)})
	return rpctypes.Error(err)
}

// putJSON puts a key through the gateway and returns the error message, if any.
func putJSON(t testing.TB, socket string, conf *tls.Config, key, header, value string) string {
	t.Helper()
	scheme := "http"
	if conf != nil {
		scheme = "https"
	}
	client := webClient(t, socket)
	client.Transport.(*http.Transport).TLSClientConfig = conf
	body, err := json.Marshal(map[string][]byte{"key": []byte(key)})
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		scheme+"://localhost/v3/kv/put", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if header != "" {
		r.Header.Set(header, value)
	}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // the body is read completely
	var out struct{ Message string }
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		t.Fatal(err)
	}
	return out.Message
}

// TestCallers checks calls over each listener, with each form of token and with certificates. A
// certificate's common name identifies a user over gRPC but not through the gateway, whichever HTTP
// versions the client offers. A token takes precedence over a certificate. In etcd, the common name
// of the gateway's own certificate was taken for the user (CVE-2018-16886).
func TestCallers(t *testing.T) { virtual.Test(t, testCallers) }

func testCallers(t *testing.T) {
	dir := shortDir(t)
	c := cheapConfig(dir)
	certs := newCertificates(t, "alice", "stranger", "")
	plain, secure := filepath.Join(dir, "s"), filepath.Join(dir, "t")
	c.URLs.ListenClient = append(c.URLs.ListenClient, url.URL{Scheme: "unixs", Path: secure})
	c.ClientTLS = TLS{
		CertFile: certs.cert, KeyFile: certs.key, TrustedCAFile: certs.ca, ClientCertAuth: true,
	}
	r := run(t, c)
	withUsers(t, r)
	alice, root := r.token(t, "alice"), r.token(t, "root")
	for name, x := range callers(alice, root) {
		x.check(t, name, certs, plain, secure)
	}
}

// caller is one way for a client to authenticate, with the expected outcomes.
type caller struct {
	certificate   string // "-" means a connection without TLS
	header, value string
	own, other    error // for a key that alice can write, and for another key
	gateway       error // for a key that alice can write
}

// callers returns callers with tokens, with certificates, and with both.
func callers(alice, root string) map[string]caller {
	empty, denied, invalid := rpctypes.ErrUserEmpty, rpctypes.ErrPermissionDenied,
		rpctypes.ErrInvalidAuthToken
	return map[string]caller{
		"nobody":              {"-", "", "", empty, empty, empty},
		"token":               {"-", "token", alice, nil, denied, empty},
		"authorization":       {"-", "authorization", alice, nil, denied, nil},
		"bearer":              {"-", "authorization", "Bearer " + alice, nil, denied, nil},
		"root":                {"-", "authorization", root, nil, nil, nil},
		"forged":              {"-", "authorization", alice[1:], invalid, invalid, invalid},
		"certificate":         {"alice", "", "", nil, denied, empty},
		"certificate, token":  {"alice", "authorization", root, nil, nil, nil},
		"certificate, forged": {"alice", "authorization", "x", invalid, invalid, invalid},
		"stranger":            {"stranger", "", "", denied, denied, empty},
		"stranger, token":     {"stranger", "authorization", alice, nil, denied, nil},
		"no name":             {"", "", "", empty, empty, empty},
	}
}

// check makes calls over gRPC and the gateway, with TLS if x has a certificate.
func (x caller) check(t *testing.T, name string, certs *certificates, plain, secure string) {
	t.Helper()
	for _, protocols := range [][]string{{"h2"}, {"h2", "http/1.1"}} {
		socket, conf := plain, (*tls.Config)(nil)
		if x.certificate != "-" {
			socket, conf = secure, certs.config(x.certificate, protocols...)
		}
		conn := dial(t, socket, conf)
		for key, want := range map[string]error{"a": x.own, "c": x.other} {
			err := put(t, conn, key, x.header, x.value)
			// The client library has no separate error for errNotForRoot.
			notForRoot := want == errNotForRoot && strings.Contains(err.Error(), want.Error())
			if !notForRoot && !errors.Is(err, want) {
				t.Errorf("%s, offering %v, of %s: %v, not %v", name, protocols, key, err, want)
			}
		}
		want := ""
		if x.gateway != nil {
			want = x.gateway.Error()
		}
		if conf != nil {
			conf.NextProtos = []string{"http/1.1"}
		}
		if got := putJSON(t, socket, conf, "a", x.header, x.value); got != want {
			t.Errorf("%s, through the gateway: %q, not %q", name, got, want)
		}
	}
}

// TestCertificateIsNoLogin checks that without --client-cert-auth, even a verified certificate does
// not log its client in.
func TestCertificateIsNoLogin(t *testing.T) { virtual.Test(t, testCertificateIsNoLogin) }

func testCertificateIsNoLogin(t *testing.T) {
	dir := shortDir(t)
	c := cheapConfig(dir)
	certs := newCertificates(t, "root")
	secure := filepath.Join(dir, "t")
	c.URLs.ListenClient = append(c.URLs.ListenClient, url.URL{Scheme: "unixs", Path: secure})
	c.ClientTLS = TLS{CertFile: certs.cert, KeyFile: certs.key, TrustedCAFile: certs.ca}
	r := run(t, c)
	withUsers(t, r)
	conn := dial(t, secure, certs.config("root"))
	if err := put(t, conn, "a", "", ""); !errors.Is(err, rpctypes.ErrUserEmpty) {
		t.Errorf("put: %v", err)
	}
}

// TestTokenCounts checks that a token is immediately valid at all members, even after its issuer
// restarts. It becomes invalid when the password changes, when access control is disabled, and when
// its issuer issues new tokens after a restart.
func TestTokenCounts(t *testing.T) { virtual.Test(t, testTokenCounts) }

func testTokenCounts(t *testing.T) {
	configs := clusterConfigs(t, 3)
	for i := range configs {
		configs[i].Access.BcryptCost, configs[i].Access.MinPassword = cheap, 0
	}
	members := runAll(t, configs...)
	withUsersAtAll(t, members) // a member requires no token until it has applied AuthEnable
	counts := func(m *running, token string, want error) {
		t.Helper()
		conn := dial(t, m.cfg.URLs.ListenClient[0].Path, nil)
		if err := put(t, conn, "a", "token", token); !errors.Is(err, want) {
			t.Errorf("at %s: %v, not %v", m.cfg.Name, err, want)
		}
	}
	given := members[1].token(t, "alice")
	for _, m := range members {
		counts(m, given, nil)
	}
	if err := members[1].stop(); err != nil {
		t.Fatal(err)
	}
	counts(members[2], given, nil)
	members[1] = run(t, configs[1])
	counts(members[1], given, nil)
	newer := members[1].token(t, "alice")
	for _, m := range members {
		counts(m, newer, nil)
		counts(m, given, rpctypes.ErrInvalidAuthToken)
	}
	hash, err := members[0].logins.HashPassword(t.Context(), "other")
	if err != nil {
		t.Fatal(err)
	}
	root := members[2].token(t, "root")
	members[0].asRoot(t, &fsm.UserPassword{Name: "alice", Hash: hash})
	catchUp(t, members[2]) // otherwise it would reject the token as outdated
	counts(members[2], newer, rpctypes.ErrInvalidAuthToken)
	counts(members[2], root, nil)
	members[0].asRoot(t, &fsm.AuthDisable{})
	counts(members[2], "anything", nil)
	res, err := members[0].node.order(t.Context(), &fsm.AuthEnable{})
	if errors.Join(err, res.Err) != nil {
		t.Fatal(err, res.Err)
	}
	catchUp(t, members[2]) // otherwise it would require no token, and only the command would fail
	counts(members[2], root, rpctypes.ErrInvalidAuthToken)
}

// TestMembersOwnWork checks that commands that members issue themselves, such as compaction and
// raising or clearing their own alarm, need no permission. Clients need permission for these
// commands, as they do for membership changes.
func TestMembersOwnWork(t *testing.T) { virtual.Test(t, testMembersOwnWork) }

func testMembersOwnWork(t *testing.T) {
	r := run(t, cheapConfig(shortDir(t)))
	withUsers(t, r)
	for name, c := range map[string]fsm.Command{
		"compact": &fsm.Compact{Revision: 1},
		"alarm":   &fsm.SetAlarm{Alarm: fsm.Alarm{Member: r.node.member, Kind: fsm.NoSpace}, Off: true},
		"version": &fsm.SetVersion{Version: r.node.View().Version.Number},
		"member":  &fsm.SetMember{Member: fsm.Member{ID: r.node.member, Name: "x"}},
		"add":     &fsm.AddMember{Member: fsm.Member{ID: 7, PeerURLs: []string{"http://a:1"}}},
		"remove":  &fsm.RemoveMember{ID: r.node.member},
		"user":    &fsm.UserAdd{Name: "x"},
		"disable": &fsm.AuthDisable{},
	} {
		for user, want := range map[string]error{
			"": access.ErrUserEmpty, "alice": access.ErrPermissionDenied,
		} {
			who := access.Caller{User: user, Revision: r.node.View().Access.Revision()}
			if user == "" {
				who = access.Caller{}
			}
			res, err := r.node.Propose(api.WithCaller(t.Context(), who), c)
			if err != nil || !errors.Is(res.Err, want) {
				t.Errorf("%s by %q: %v, %v", name, user, res.Err, err)
			}
		}
	}
	r.asRoot(t, &fsm.Put{Key: "a"})
	a := &compactor{node: r.node, log: r.cfg.Logger, cfg: r.cfg.Compaction}
	a.compact(t.Context(), 2)
	if got := r.node.View().KV.Compacted(); got != 2 {
		t.Errorf("compacted at %d", got)
	}
}
