package server

import (
	"fmt"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/golang-jwt/jwt/v5"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/access"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/test/virtual"
)

// whoAmI calls WhoAmI, with a token unless it is empty.
func whoAmI(t *testing.T, c *grpc.ClientConn, token string) (*pb.WhoAmIResponse, error) {
	t.Helper()
	ctx := t.Context()
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "token", token)
	}
	got, err := pb.NewAccessServiceClient(c).WhoAmI(ctx, &pb.WhoAmIRequest{})
	if got != nil {
		got.Header = nil
	}
	return got, err
}

// TestWhoAmI checks that each caller receives its principal, the evidence for it, and the
// permissions of its roles, from each member and through a relay.
func TestWhoAmI(t *testing.T) { virtual.Test(t, testWhoAmI) }

func testWhoAmI(t *testing.T) {
	corp, certs := newIssuer(t), newCertificates(t, "alice", "eve")
	certs.clients["svid"] = certs.Issue("client", svid("spiffe://prod/x", ""))
	configs := clusterConfigs(t, 3)
	for i := range configs {
		c := &configs[i]
		c.Access.BcryptCost, c.Access.MinPassword = cheap, 0
		c.Access.BindingsFile = writeBindings(t, filepath.Join(t.TempDir(), "b"), bindingsFor(corp))
		c.URLs.ListenClient = append(c.URLs.ListenClient,
			url.URL{Scheme: "unixs", Path: filepath.Join(shortDir(t), "t")})
		c.ClientTLS = TLS{
			CertFile: certs.cert, KeyFile: certs.key, TrustedCAFile: certs.ca, ClientCertAuth: true,
		}
	}
	members := runAll(t, configs...)
	open := dial(t, configs[0].URLs.ListenClient[0].Path, nil)
	got, err := whoAmI(t, open, "no token")
	if err != nil || !proto.Equal(got, &pb.WhoAmIResponse{}) {
		t.Errorf("without access control one is told %v, %v", got, err)
	}
	withUsersAtAll(t, members)
	withRelay(t, members[1])
	members[0].asRoot(t, &fsm.RoleGrant{Role: "a", Permission: access.Permission{
		Kind: access.Hold, Key: "jobs/", End: "jobs0",
	}})
	for _, m := range members {
		if err := m.node.Confirm(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	plain, secure := relayOf(t, members[1], certs)
	for i, m := range members {
		at := fmt.Sprintf("member %d", i)
		askAll(t, callee{at, m, corp.Token, certs}, m.cfg.URLs.ListenClient[0].Path,
			m.cfg.URLs.ListenClient[1].Path)
	}
	askAll(t, callee{"the relay", members[1], corp.Token, certs}, plain, secure)
}

// callee is a server under test, with the sources of the callers' credentials.
type callee struct {
	at    string
	m     *running
	token func(t testing.TB, key, subject string, claims jwt.MapClaims) string
	certs *certificates
}

// askAll calls WhoAmI with every type of credential.
func askAll(t *testing.T, x callee, plain, secure string) {
	t.Helper()
	a := &pb.Role{Name: "a", Keys: []*pb.KeyPermission{{
		Kind: pb.KeyPermission_KIND_READ_WRITE, Key: []byte("a"), RangeEnd: []byte("b"),
	}}, Names: []*pb.NamePermission{{
		Role: "a", Kind: pb.NamePermission_KIND_HOLD, Name: "jobs/", Prefix: true,
	}}}
	root := &pb.Role{Name: "root", Keys: []*pb.KeyPermission{{
		Kind: pb.KeyPermission_KIND_READ_WRITE, RangeEnd: []byte{0},
	}}, Names: []*pb.NamePermission{{
		Role: "root", Kind: pb.NamePermission_KIND_MANAGE, Prefix: true,
	}}}
	const (
		token  = pb.WhoAmIResponse_EVIDENCE_TOKEN
		issuer = pb.WhoAmIResponse_EVIDENCE_ISSUER_TOKEN
		cert   = pb.WhoAmIResponse_EVIDENCE_CERTIFICATE
	)
	is := func(name string, by pb.WhoAmIResponse_Evidence, bound, user bool, r ...*pb.Role,
	) *pb.WhoAmIResponse {
		return &pb.WhoAmIResponse{
			Enabled: true, Principal: name, Evidence: by, Bound: bound, IsUser: user, Roles: r,
		}
	}
	eve := x.token(t, "k", "eve", nil)
	for name, y := range map[string]struct {
		certificate, token string
		want               *pb.WhoAmIResponse // nil means the call is rejected
	}{
		"nobody":          {"", "", is("", 0, false, false)},
		"a password":      {"", x.m.token(t, "alice"), is("alice", token, false, true, a)},
		"root's password": {"", x.m.token(t, "root"), is("root", token, false, true, root)},
		"a bound token": {
			"", x.token(t, "k", "bob", writers), is("corp:bob", issuer, true, false, a),
		},
		"a user's bound token": {
			"", x.token(t, "k", "boss", nil), is("root", issuer, true, true, root),
		},
		"a token of nobody":   {"", eve, nil},
		"a forged token":      {"", eve + "x", nil},
		"a certificate":       {"alice", "", is("alice", cert, false, true, a)},
		"a bound certificate": {"svid", "", is("spiffe://prod/x", cert, true, false, a)},
		"one of no user":      {"eve", "", is("eve", cert, false, false)},
		"a token before it":   {"svid", x.m.token(t, "alice"), is("alice", token, false, true, a)},
	} {
		conn := dial(t, plain, nil)
		if y.certificate != "" {
			conn = dial(t, secure, x.certs.config(y.certificate, "h2"))
		}
		got, err := whoAmI(t, conn, y.token)
		c := status.Code(err)
		refused := c == codes.PermissionDenied || c == codes.Unauthenticated
		if y.want == nil && !refused || y.want != nil && !proto.Equal(got, y.want) {
			t.Errorf("%s, by %s: %v, %v, not %v", x.at, name, got, err, y.want)
		}
	}
}
