package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/direct"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/internal/wire"
	"leasehold.dev/lease"
	"leasehold.dev/test/etcdtest"
	"leasehold.dev/test/nativetest"
	"leasehold.dev/test/virtual"
)

// tested is a follower whose permission checks are tested over its unix socket, both directly and
// through a relay.
type tested struct {
	*running
	socket string // the socket of the follower or of the relay in front of it
	conn   *grpc.ClientConn
	web    *http.Client
	tokens map[string]string // by user
	made   lease.ID          // number of subjects created so far
	// secrets inspects all responses over gRPC.
	secrets *secrets
	relay   struct {
		socket string
		conn   *grpc.ClientConn
		web    *http.Client
	}
}

// newTested runs a three-member cluster whose users log in at a follower, with a relay in front of
// that follower. The relay has its own role, which must not affect its clients' permissions.
func newTested(t *testing.T, role string, commands []fsm.Command) *tested {
	t.Helper()
	configs := clusterConfigs(t, 3)
	for i := range configs {
		configs[i].Access.BcryptCost, configs[i].Access.MinPassword = cheap, 0
	}
	// The leader must not change. A new leader would wait until the leases of range holders end,
	// and their TTLs are long.
	_, others := runLed(t, configs...)
	m := &tested{running: others[0], tokens: make(map[string]string), secrets: &secrets{t: t}}
	m.socket = m.cfg.URLs.ListenClient[0].Path
	looks := grpc.WithStatsHandler(m.secrets)
	t.Cleanup(m.secrets.wereLookedFor)
	m.conn = dial(t, m.socket, nil, looks)
	m.web = webClient(t, m.socket)
	for _, c := range append(slices.Clone(commands), &fsm.UserAdd{Name: "relay"},
		&fsm.RoleAdd{Name: "relay"}, &fsm.UserGrantRole{User: "relay", Role: "relay"},
		&fsm.UserGrantRole{User: "relay", Role: role}, &fsm.AuthEnable{}) {
		if add, ok := c.(*fsm.UserAdd); ok {
			hash, err := m.logins.HashPassword(t.Context(), add.Name)
			if err != nil {
				t.Fatal(err)
			}
			m.secrets.add("the hash of a password", hash)
			m.tokens[add.Name], c = "", &fsm.UserAdd{Name: add.Name, Hash: hash}
		}
		if res, err := m.node.order(t.Context(), c); errors.Join(err, res.Err) != nil {
			t.Fatal(err, res.Err)
		}
	}
	for user := range m.tokens {
		m.tokens[user] = m.token(t, user)
		m.secrets.add("a token", []byte(m.tokens[user]))
	}
	m.relay.socket, _ = relayOf(t, m.running, newCertificates(t))
	m.relay.conn = dial(t, m.relay.socket, nil, looks)
	m.relay.web = webClient(t, m.relay.socket)
	return m
}

// webClient returns an HTTP client that connects to a socket.
func webClient(t testing.TB, socket string) *http.Client {
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return virtual.Dial(ctx, "unix", socket)
		},
	}
	return &http.Client{Transport: transport}
}

// behind returns a copy of m that is accessed through the relay.
func (m *tested) behind() *tested {
	x := *m
	x.socket, x.conn, x.web = m.relay.socket, m.relay.conn, m.relay.web
	return &x
}

// as returns a context for calls by a user. If user is empty, the caller is anonymous.
func (m *tested) as(ctx context.Context, user string) context.Context {
	if user == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "token", m.tokens[user])
}

// subject grants another lease to the user owner, with a name and a key.
func (m *tested) subject(t *testing.T) nativetest.Subject {
	t.Helper()
	m.made++
	of := nativetest.Subject{
		Lease: &pb.LeaseRef{Id: int64(m.made)}, Below: fmt.Sprintf("a/%d/", m.made),
		Secret: bytes.Repeat([]byte{2}, 32),
	}
	hash := sha256.Sum256(of.Secret)
	m.secrets.add("the secret of a lease", of.Secret)
	m.secrets.add("the hash of a secret", hash[:])
	held := keyrange.Range{Key: of.Below, End: of.Below[:len(of.Below)-1] + "0"}
	m.asRoot(t, &fsm.Grant{
		Terms: lease.Terms{
			ID: m.made, Principal: "owner", Name: of.Name(), TTL: 600_000,
			Secret: hash,
		},
		Holds: []keyrange.Range{held},
	})
	m.asRoot(t, &fsm.Put{Key: string(of.Key()), Value: []byte("v")})
	m.asRoot(t, &fsm.RoleGrant{
		Role: "spare", Permission: access.Permission{Kind: access.See, Key: "a/", End: "a0"},
	})
	of.Lease.Token = uint64(m.state(t, of).token)
	return of
}

// known is the part of the member's state that requests could change.
type known struct {
	revision int64
	access   uint64
	token    lease.Token
	terms    string // the terms of the lease
}

func (m *tested) state(t *testing.T, of nativetest.Subject) known {
	t.Helper()
	var got lease.Info
	if err := m.node.Inspect(t.Context(), func(l *lease.Lessor) {
		got, _ = l.Lookup(lease.ID(of.Lease.Id))
	}); err != nil {
		t.Fatal(err)
	}
	v := m.node.View()
	return known{v.KV.Revision(), v.Access.Revision(), got.Token, fmt.Sprint(got.Terms)}
}

// A passage makes a request over one path and reports whether the request was rejected.
type passage func(t *testing.T, m *tested, user string, r nativetest.Request) (bool, error)

// passages lists all paths that a request can take, except through another user's session.
var passages = map[string]passage{
	"gRPC": byGRPC, "gateway": byJSON, "stream": byStream, "resumed stream": byResumed,
	"gRPC through relay":           behindRelay(byGRPC),
	"gateway through relay":        behindRelay(byJSON),
	"stream through relay":         behindRelay(byStream),
	"resumed stream through relay": behindRelay(byResumed),
}

func byGRPC(t *testing.T, m *tested, user string, r nativetest.Request) (bool, error) {
	return nativetest.Refused(r.Call(m.as(t.Context(), user), m.conn))
}

func byStream(t *testing.T, m *tested, user string, r nativetest.Request) (bool, error) {
	ctx, cancel := context.WithCancel(m.as(t.Context(), user))
	defer cancel()
	s, err := pb.NewStreamServiceClient(m.conn).Open(ctx)
	if err != nil {
		return false, err
	}
	return nativetest.Refused(nativetest.Ask(s, saying(nil, r.Body)))
}

func byResumed(t *testing.T, m *tested, user string, r nativetest.Request) (bool, error) {
	return nativetest.Refused(m.resumed(t, user, user, r))
}

func behindRelay(by passage) passage {
	return func(t *testing.T, m *tested, user string, r nativetest.Request) (bool, error) {
		return by(t, m.behind(), user, r)
	}
}

// saying returns a stream message with one request. The request is numbered if a session is given.
func saying(of *pb.SessionRef, body proto.Message) *pb.ClientMessage {
	r := nativetest.OnStream(body)
	if r.Id = 1; of != nil {
		r.Number = 1
	}
	return &pb.ClientMessage{Session: of, Requests: []*pb.Request{r}}
}

// byJSON makes a request through the gateway.
func byJSON(t *testing.T, m *tested, user string, c nativetest.Request) (bool, error) {
	body, err := protojson.Marshal(c.Body)
	if err != nil {
		return false, err
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost"+c.Path(),
		bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	r.Header.Set("Content-Type", "application/json")
	if user != "" {
		r.Header.Set("Authorization", m.tokens[user])
	}
	w, err := m.web.Do(r)
	if err != nil {
		return false, err
	}
	defer w.Body.Close() //nolint:errcheck // only the beginning of a stream is read
	text, err := bufio.NewReader(w.Body).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	return nativetest.RefusedJSON(w.StatusCode, text)
}

// direct opens a stream without HTTP/2. It also returns the connection that the stream uses.
func (m *tested) direct(
	ctx context.Context, user string,
) (pb.StreamService_OpenClient, net.Conn, error) {
	c, err := virtual.Dial(ctx, "unix", m.socket)
	if err != nil {
		return nil, nil, err
	}
	s, err := direct.Open(m.as(ctx, user), c, pb.StreamService_Open_FullMethodName, wire.Codec())
	if err != nil {
		return nil, nil, err
	}
	return &grpc.GenericClientStream[pb.ClientMessage, pb.ServerMessage]{ClientStream: s}, c, nil
}

// resumed opens a session as first and breaks the connection. It then makes a request within that
// session as user, over another connection.
func (m *tested) resumed(
	t *testing.T, first, user string, r nativetest.Request,
) (proto.Message, error) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s, line, err := m.direct(ctx, first)
	if err != nil {
		return nil, err
	}
	opened, err := nativetest.Ask(s, saying(nil, &pb.SessionRequest{Nonce: uint64(m.made) + 7}))
	if err != nil {
		return nil, err
	}
	if err := line.Close(); err != nil {
		return nil, err
	}
	if s, _, err = m.direct(ctx, user); err != nil {
		return nil, err
	}
	return nativetest.Ask(s, saying(opened.(*pb.SessionResponse).Session, r.Body))
}

// TestMatrixThroughFollower checks T22 in a cluster. For every request in the descriptors, every
// user and every path, a follower makes the same decision as a single member, even if the client
// resumes its session over another connection or connects through a relay. No user can act within
// another user's session or with the relay's permissions.
func TestMatrixThroughFollower(t *testing.T) { virtual.Test(t, testMatrixThroughFollower) }

func testMatrixThroughFollower(t *testing.T) {
	root := []fsm.Command{
		&fsm.UserAdd{Name: "root"}, &fsm.UserGrantRole{User: "root", Role: "root"},
	}
	m := newTested(t, "other", append(root, nativetest.Users()...))
	all, err := nativetest.Requests(m.subject(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range all {
		may, err := r.May()
		if err != nil {
			t.Fatal(err)
		}
		for by, ask := range passages {
			onStream := strings.Contains(by, "stream")
			if onStream && r.Field == nil || !onStream && r.Method == nil {
				continue
			}
			virtual.Step(t, name+"/"+by, func(t *testing.T) {
				m.refuses(t, name, may, ask)
				m.allows(t, name, may, ask)
			})
		}
		if r.Field != nil {
			virtual.Step(t, name+"/session of another", func(t *testing.T) {
				m.keepsSessions(t, name, may, m)
			})
			virtual.Step(t, name+"/session of another through relay", func(t *testing.T) {
				m.keepsSessions(t, name, may, m.behind())
			})
		}
	}
}

// request creates a subject, and returns a request about it, the subject, and its current state.
func (m *tested) request(
	t *testing.T, name string,
) (nativetest.Request, nativetest.Subject, known) {
	t.Helper()
	of := m.subject(t)
	all, err := nativetest.Requests(of)
	if err != nil {
		t.Fatal(err)
	}
	return all[name], of, m.state(t, of)
}

// refuses checks that the request is rejected for all users without permission, and that nothing
// changes.
func (m *tested) refuses(t *testing.T, name string, may []string, ask passage) {
	t.Helper()
	r, of, before := m.request(t, name)
	for user := range m.users() {
		if slices.Contains(may, user) {
			continue
		}
		if refused, err := ask(t, m, user, r); !refused {
			t.Errorf("%q is not refused: %v", user, err)
		}
	}
	if after := m.state(t, of); after != before {
		t.Errorf("what was refused has made %+v of %+v", after, before)
	}
}

// allows checks that the request succeeds for all users with permission. Each request is about a
// new subject.
func (m *tested) allows(t *testing.T, name string, may []string, ask passage) {
	t.Helper()
	for user := range m.users() {
		if !slices.Contains(may, user) {
			continue
		}
		r, _, _ := m.request(t, name)
		if refused, err := ask(t, m, user, r); refused || err != nil {
			t.Errorf("%q may not: %v, %v", user, refused, err)
		}
	}
}

// keepsSessions tries to resume a session of the user named owner as each other user. Reads succeed
// if that user has permission. Numbered requests are rejected, even for root.
func (m *tested) keepsSessions(t *testing.T, name string, may []string, by *tested) {
	t.Helper()
	r, of, before := m.request(t, name)
	for user := range m.users() {
		if user == "owner" {
			continue
		}
		out, err := by.resumed(t, "owner", user, r)
		missing := api.Detail(err).GetReason() == pb.Reason_REASON_SESSION_NOT_FOUND
		if answer, ok := out.(*pb.RevokeResponse); ok {
			missing = answer.Results[0].Reason == pb.Reason_REASON_SESSION_NOT_FOUND
		}
		refused, err := nativetest.Refused(out, err)
		want := !slices.Contains(may, user)
		if numbered[name] && !refused && !missing {
			t.Errorf("%q is not refused: %v", user, err)
		} else if !numbered[name] && refused != want {
			t.Errorf("%q: refused %v, and should be %v: %v", user, refused, want, err)
		}
	}
	if after := m.state(t, of); after != before {
		t.Errorf("in a session of the owner others have made %+v of %+v", after, before)
	}
}

// numbered lists the requests that are numbered within a session, so that retries have no effect.
var numbered = map[string]bool{
	"GrantRequest": true, "RevokeRequest": true, "ChangeTTLRequest": true, "HandOverRequest": true,
	"ResumeRequest": true, "AttachRequest": true, "DetachRequest": true, "PutRequest": true,
	"DeleteRequest": true, "TxnRequest": true,
}

// users yields the principals that log in with a password, and the anonymous caller.
func (m *tested) users() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, user := range nativetest.Principals {
			if user != "bound" && !yield(user) {
				return
			}
		}
	}
}

// TestEtcdMatrixThroughFollower checks that a follower accepts each call of the etcd API from
// exactly the callers with permission.
func TestEtcdMatrixThroughFollower(t *testing.T) { virtual.Test(t, testEtcdMatrixThroughFollower) }

func testEtcdMatrixThroughFollower(t *testing.T) {
	m := newEtcdTested(t)
	m.tryEtcd(t)
}

// TestEtcdMatrixThroughRelay checks that a relay accepts each call of the etcd API from exactly the
// callers with permission.
func TestEtcdMatrixThroughRelay(t *testing.T) { virtual.Test(t, testEtcdMatrixThroughRelay) }

func testEtcdMatrixThroughRelay(t *testing.T) {
	m := newEtcdTested(t)
	m.behind().tryEtcd(t)
}

func newEtcdTested(t *testing.T) *tested {
	t.Helper()
	return newTested(t, "other", slices.Concat([]fsm.Command{
		&fsm.Grant{Terms: lease.Terms{ID: 1, TTL: 600_000}},
		&fsm.Grant{Terms: lease.Terms{ID: 2, TTL: 600_000}},
	}, etcdtest.Keys(), etcdtest.Users(), []fsm.Command{
		&fsm.RoleGrant{Role: "other", Permission: access.Permission{
			Kind: access.ReadWrite, Key: "c", End: keyrange.NoEnd,
		}},
	}))
}

// tryEtcd makes every call of the etcd API as every caller.
func (m *tested) tryEtcd(t *testing.T) {
	t.Helper()
	for _, c := range etcdtest.Calls() {
		for _, user := range etcdtest.Callers {
			before := m.node.View()
			err := c.Do(m.as(t.Context(), user), m.conn)
			if wrong := c.Judge(user, err); wrong != nil {
				t.Error(wrong)
			}
			after := m.node.View()
			if etcdtest.Denied(err) && (after.KV.Revision() != before.KV.Revision() ||
				after.Access.Revision() != before.Access.Revision()) {
				t.Errorf("%s %v by %q was refused and done", c.Method, c.Request, user)
			}
		}
	}
}
