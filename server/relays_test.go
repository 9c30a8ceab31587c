package server

import (
	"context"
	"crypto/tls"
	"errors"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api/web"
	"leasehold.dev/internal/direct"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/listen"
	"leasehold.dev/internal/relay"
	"leasehold.dev/internal/wire"
	"leasehold.dev/test/virtual"
)

// withRelay adds the user relay with permission to act as a relay. It can also write alice's keys,
// and the tests check that its clients do not gain this permission.
func withRelay(t testing.TB, r *running) {
	t.Helper()
	hash, err := r.logins.HashPassword(t.Context(), "relay")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []fsm.Command{
		&fsm.UserAdd{Name: "relay", Hash: hash}, &fsm.RoleAdd{Name: "relay"},
		&fsm.UserGrantRole{User: "relay", Role: "relay"}, &fsm.UserGrantRole{User: "relay", Role: "a"},
	} {
		r.asRoot(t, c)
	}
}

// relayOf starts a relay that logs in as the user relay. It returns the sockets on which the relay
// listens without and with TLS.
func relayOf(t testing.TB, r *running, certs *certificates) (plain, secure string) {
	t.Helper()
	dir := shortDir(t)
	plain, secure = filepath.Join(dir, "s"), filepath.Join(dir, "t")
	x, err := relay.New(relay.Config{
		Endpoints: []string{"unix:" + r.cfg.URLs.ListenClient[0].Path},
		User:      "relay", Password: "relay", HTTP: web.DefaultSettings(), Host: virtual.Host(),
		Listen: []url.URL{{Scheme: "unix", Path: plain}, {Scheme: "unixs", Path: secure}},
		ListenTLS: listen.TLS{
			CertFile: certs.cert, KeyFile: certs.key, TrustedCAFile: certs.ca, ClientCertAuth: true,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- x.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-x.Ready():
	case <-time.After(time.Minute):
		t.Fatal("the relay does not serve")
	}
	return plain, secure
}

// TestCallersThroughRelay checks that a caller behind a relay gets its own permissions and never
// the relay's, with a token, with a certificate, or with neither. A relay cannot vouch for a
// certificate of root. Through its gateway, only tokens count. The gateway must use neither the
// client's certificate nor the relay's own, which names alice.
func TestCallersThroughRelay(t *testing.T) { virtual.Test(t, testCallersThroughRelay) }

func testCallersThroughRelay(t *testing.T) {
	dir := shortDir(t)
	c := cheapConfig(dir)
	certs := newCertificates(t, "alice", "root", "stranger", "")
	certs.Issue("server", svid("", "alice", "localhost"))
	c.URLs.ListenClient = append(c.URLs.ListenClient,
		url.URL{Scheme: "unixs", Path: filepath.Join(dir, "t")})
	c.ClientTLS = TLS{
		CertFile: certs.cert, KeyFile: certs.key, TrustedCAFile: certs.ca, ClientCertAuth: true,
	}
	r := run(t, c)
	withUsers(t, r)
	withRelay(t, r)
	plain, secure := relayOf(t, r, certs)
	alice, root := r.token(t, "alice"), r.token(t, "root")
	all := callers(alice, root)
	all["root's certificate"] = caller{
		certificate: "root", own: errNotForRoot, other: errNotForRoot, gateway: rpctypes.ErrUserEmpty,
	}
	for name, x := range all {
		x.check(t, name, certs, plain, secure)
	}
	// Make the same checks over a stream, which keeps its login while it is open.
	if err := putByStream(t, dial(t, secure, certs.config("alice")), "a"); err != nil {
		t.Errorf("alice, by a stream: %v", err)
	}
	for _, name := range []string{"root", "stranger", ""} {
		if err := putByStream(t, dial(t, secure, certs.config(name)), "a"); err == nil {
			t.Errorf("%q puts alice's key by a stream", name)
		}
	}
	// Make the same checks over a stream without HTTP/2.
	for name, x := range map[string]struct {
		certificate, token, key string // "-" means a connection without TLS
		want                    string
	}{
		"certificate":        {"alice", "", "a", ""},
		"another's key":      {"alice", "", "c", "permission denied"},
		"stranger":           {"stranger", "", "a", "permission denied"},
		"root's certificate": {"root", "", "a", errNotForRoot.Error()},
		"token":              {"-", alice, "a", ""},
		"forged":             {"-", alice[1:], "a", "Unauthenticated"},
		"nobody":             {"-", "", "a", "the caller is anonymous"},
	} {
		socket, conf := plain, (*tls.Config)(nil)
		if x.certificate != "-" {
			socket, conf = secure, certs.config(x.certificate, direct.Protocol)
		}
		s, err := openDirectly(t, socket, conf, x.token)
		if err == nil {
			err = putOn(s, x.key)
		}
		if (err == nil) != (x.want == "") || err != nil && !strings.Contains(err.Error(), x.want) {
			t.Errorf("without HTTP/2, %s: %v, want %q", name, err, x.want)
		}
	}
}

// errNotForRoot has the text of the error with which a relay's client is rejected if its
// certificate is root's.
var errNotForRoot = errors.New("a relay does not vouch for certificates of principals with the " +
	"role root")

// openDirectly opens a leasehold.v1 stream without HTTP/2.
func openDirectly(
	t testing.TB, socket string, conf *tls.Config, token string,
) (pb.StreamService_OpenClient, error) {
	t.Helper()
	c, err := virtual.Dial(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	if conf != nil {
		c = tls.Client(c, conf)
	}
	ctx := t.Context()
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "token", token)
	}
	s, err := direct.Open(ctx, c, pb.StreamService_Open_FullMethodName, wire.Codec())
	return &grpc.GenericClientStream[pb.ClientMessage, pb.ServerMessage]{ClientStream: s}, err
}

// putByStream puts a key over a leasehold.v1 stream.
func putByStream(t testing.TB, conn *grpc.ClientConn, key string) error {
	t.Helper()
	s, err := pb.NewStreamServiceClient(conn).Open(t.Context())
	if err != nil {
		return err
	}
	return putOn(s, key)
}

func putOn(s pb.StreamService_OpenClient, key string) error {
	_ = s.Send(&pb.ClientMessage{Requests: []*pb.Request{{
		Id: 1, Body: &pb.Request_Put{Put: &pb.PutRequest{Key: []byte(key)}},
	}}}) // if Send failed, Recv returns the cause
	for {
		m, err := s.Recv()
		if err != nil {
			return err
		}
		for _, x := range m.Responses {
			if e := x.GetError(); e != nil {
				return errors.New(e.Message)
			}
			return nil
		}
	}
}

// TestRelayNeedsRole checks that only a user with the role relay can act as a relay, and that a
// relay whose user loses the role is disconnected.
func TestRelayNeedsRole(t *testing.T) { virtual.Test(t, testRelayNeedsRole) }

func testRelayNeedsRole(t *testing.T) {
	r := run(t, cheapConfig(shortDir(t)))
	withUsers(t, r)
	withRelay(t, r)
	conn := dial(t, r.cfg.URLs.ListenClient[0].Path, nil)
	open := func(user string) (pb.RelayService_RelayClient, error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		t.Cleanup(cancel)
		if user != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "token", r.token(t, user))
		}
		s, err := pb.NewRelayServiceClient(conn).Relay(ctx)
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Recv()
		return s, err
	}
	for user, want := range map[string]codes.Code{
		"": codes.Unauthenticated, "alice": codes.PermissionDenied, "root": codes.OK, "relay": codes.OK,
	} {
		if _, err := open(user); status.Code(err) != want {
			t.Errorf("%q: %v, not %v", user, err, want)
		}
	}
	s, err := open("relay")
	if err != nil {
		t.Fatal(err)
	}
	call := &pb.RelayFrame{Channel: 1, Call: &pb.RelayCall{
		Method: pb.StreamService_Open_FullMethodName,
		Headers: []*pb.RelayHeaderField{
			{Name: "token", Value: []byte(r.token(t, "alice"))},
		},
	}}
	if err := s.Send(&pb.RelayRequest{Frames: []*pb.RelayFrame{call}}); err != nil {
		t.Fatal(err)
	}
	if m, err := s.Recv(); err != nil || !slices.ContainsFunc(m.Frames, func(f *pb.RelayFrame) bool {
		return f.Channel == 1 && f.End == nil
	}) {
		t.Fatalf("%v, %v", m, err)
	}
	r.asRoot(t, &fsm.UserRevokeRole{User: "relay", Role: "relay"})
	for err == nil {
		_, err = s.Recv()
	}
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("the stream of a relay that may not be one any more: %v", err)
	}
}

// TestRightsThroughRelay checks that a client behind a relay loses a revoked permission
// immediately, while another client of the relay keeps its permissions.
func TestRightsThroughRelay(t *testing.T) { virtual.Test(t, testRightsThroughRelay) }

func testRightsThroughRelay(t *testing.T) {
	dir := shortDir(t)
	r := run(t, cheapConfig(dir))
	withUsers(t, r)
	withRelay(t, r)
	plain, _ := relayOf(t, r, newCertificates(t))
	conn := dial(t, plain, nil)
	watch := func(user string) pb.StreamService_OpenClient {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		t.Cleanup(cancel)
		ctx = metadata.AppendToOutgoingContext(ctx, "token", r.token(t, user))
		s, err := pb.NewStreamServiceClient(conn).Open(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Send(&pb.ClientMessage{Requests: []*pb.Request{{
			Id: 1, Body: &pb.Request_Watch{Watch: &pb.WatchRequest{Key: []byte("a")}},
		}}}); err != nil {
			t.Fatal(err)
		}
		nextResponse(t, s) // the notice that the watch was created
		return s
	}
	alice, root := watch("alice"), watch("root")
	r.asRoot(t, &fsm.UserRevokeRole{User: "alice", Role: "a"})
	x := nextResponse(t, alice)
	if x.GetError().GetReason() != pb.Reason_REASON_PERMISSION_DENIED || x.More {
		t.Errorf("alice is told %v", x)
	}
	if err := put(t, conn, "a", "token", r.token(t, "root")); err != nil {
		t.Fatal(err)
	}
	if x := nextResponse(t, root); len(x.GetWatch().GetEvents()) != 1 {
		t.Errorf("root is told %v", x)
	}
}

// nextResponse receives the next response from a stream.
func nextResponse(t testing.TB, s pb.StreamService_OpenClient) *pb.Response {
	t.Helper()
	for {
		m, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Responses) > 0 {
			return m.Responses[0]
		}
	}
}

// TestRootThroughRelay checks that a relay does not vouch for certificates of root, even on streams
// that were opened before their principal received the role root.
func TestRootThroughRelay(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	c := cheapConfig(dir)
	certs := newCertificates(t, "alice")
	c.URLs.ListenClient = append(c.URLs.ListenClient,
		url.URL{Scheme: "unixs", Path: filepath.Join(dir, "t")})
	c.ClientTLS = TLS{
		CertFile: certs.cert, KeyFile: certs.key, TrustedCAFile: certs.ca, ClientCertAuth: true,
	}
	r := run(t, c)
	withUsers(t, r)
	withRelay(t, r)
	_, secure := relayOf(t, r, certs)
	conn := dial(t, secure, certs.config("alice"))
	stream, err := pb.NewStreamServiceClient(conn).Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	plain, err := openDirectly(t, secure, certs.config("alice", direct.Protocol), "")
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range []pb.StreamService_OpenClient{stream, plain} {
		if err := putOn(s, "a"); err != nil {
			t.Fatalf("stream %d, of an own key: %v", i, err)
		}
	}
	w, err := etcdserverpb.NewWatchClient(conn).Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	watch := func(key string) *etcdserverpb.WatchResponse {
		t.Helper()
		err := w.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{
			CreateRequest: &etcdserverpb.WatchCreateRequest{Key: []byte(key)},
		}})
		if err != nil {
			t.Fatal(err)
		}
		m, err := w.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	if m := watch("a"); m.Canceled {
		t.Fatal(m)
	}
	r.asRoot(t, &fsm.UserGrantRole{User: "alice", Role: "root"})
	for i, s := range []pb.StreamService_OpenClient{stream, plain} {
		if err := putOn(s, "c"); err == nil {
			t.Fatalf("stream %d acts as root", i)
		}
	}
	if m, err := w.Recv(); err != nil || !m.Canceled {
		t.Errorf("the watch of before: %v, %v", m, err)
	}
	if m := watch("c"); !m.Canceled {
		t.Errorf("the old stream watches as root: %v", m)
	}
}
