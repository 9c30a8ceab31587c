package client

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/wire"
	"leasehold.dev/test/harness"
)

func TestMain(m *testing.M) {
	harness.Parallel()
	goleak.VerifyTestMain(m)
}

// fake simulates members without a network. The test determines their responses.
type fake struct {
	mu sync.Mutex
	// answer returns the responses to a request, or nil if the request is not answered. It is
	// called with mu held.
	answer func(s *fakeStream, r *pb.Request) []*pb.Response
	// take, if set, handles whole messages in place of answer. It is also called with mu held.
	take    func(s *fakeStream, m *pb.ClientMessage)
	down    map[string]bool // unreachable members
	dead    map[string]bool // members that send nothing at all and do not refuse connections
	foreign map[string]bool // members that do not support leasehold.v1
	refused int             // attempts to reach members that are down
	// leader is the member that leads, or empty if there is no leader. Members report it only if
	// reportsLeader is set.
	leader        string
	reportsLeader bool
	frozen        map[string]bool // members that accept all messages and never answer
	opened        []*fakeStream   // all streams, in the order in which they were opened
	seen          []seen
	// sessions is the number of sessions opened.
	sessions uint64
	// granted is the last lease ID chosen by the fake. Tests choose IDs below 1000.
	granted int64
}

// seen is a message that a member received.
type seen struct {
	at      time.Time
	stream  *fakeStream
	message *pb.ClientMessage
}

// fakeConn is a connection to a fake member.
type fakeConn struct {
	fake *fake
	name string
}

func (c fakeConn) Open(ctx context.Context) (pb.StreamService_OpenClient, error) {
	f := c.fake
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead[c.name] {
		f.mu.Unlock()
		<-ctx.Done()
		f.mu.Lock()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	if f.down[c.name] {
		f.refused++
		return nil, status.Error(codes.Unavailable, "connection refused")
	}
	s := &fakeStream{
		ctx: ctx, fake: f, name: c.name, out: make(chan *pb.ServerMessage, 1000),
		cut: make(chan struct{}),
	}
	f.opened = append(f.opened, s)
	if f.foreign[c.name] {
		close(s.cut)
		return s, nil
	}
	if f.reportsLeader {
		s.out <- f.leadership(s.name)
	}
	return s, nil
}

func (c fakeConn) Close() error { return nil }

// fakeStream is the client's end of a stream.
type fakeStream struct {
	grpc.ClientStream
	ctx  context.Context
	fake *fake
	name string
	out  chan *pb.ServerMessage
	cut  chan struct{} // closed when the stream breaks
}

func (s *fakeStream) Context() context.Context { return s.ctx }

func (s *fakeStream) Send(m *pb.ClientMessage) error {
	f := s.fake
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.isCut() {
		return io.EOF
	}
	if _, err := wire.Codec().Marshal(m); err != nil {
		return err
	}
	f.seen = append(f.seen, seen{time.Now(), s, m})
	if f.frozen[s.name] {
		return nil
	}
	if f.take != nil {
		f.take(s, m)
		return nil
	}
	out := &pb.ServerMessage{}
	for _, r := range m.Requests {
		out.Responses = append(out.Responses, f.answer(s, r)...)
	}
	if len(out.Responses) > 0 {
		s.out <- out
	}
	return nil
}

func (s *fakeStream) isCut() bool {
	select {
	case <-s.cut:
		return true
	default:
		return false
	}
}

func (s *fakeStream) Recv() (*pb.ServerMessage, error) {
	select {
	case m := <-s.out:
		return m, nil
	default:
	}
	select {
	case m := <-s.out:
		return m, nil
	case <-s.cut:
		if s.fake.foreign[s.name] {
			return nil, status.Error(codes.Unimplemented, "unknown service")
		}
		return nil, status.Error(codes.Unavailable, "the stream broke")
	case <-s.ctx.Done():
		return nil, status.FromContextError(s.ctx.Err()).Err()
	}
}

// say sends an unsolicited response.
func (s *fakeStream) say(list ...*pb.Response) { s.out <- &pb.ServerMessage{Responses: list} }

// memberID returns the ID of a fake member, or 0 if name is empty.
func memberID(name string) (id uint64) {
	for _, c := range name {
		id = uint64(c-'a') + 1
	}
	return id
}

// leadership returns the message with which a member reports the leader.
func (f *fake) leadership(name string) *pb.ServerMessage {
	return &pb.ServerMessage{Leadership: &pb.Leadership{
		MemberId: memberID(name), LeaderId: memberID(f.leader),
	}}
}

// lead makes a member the leader. All members report it.
func (f *fake) lead(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leader, f.reportsLeader = name, true
	for _, s := range f.opened {
		if !s.isCut() && s.ctx.Err() == nil {
			s.out <- f.leadership(s.name)
		}
	}
}

// streams returns the number of streams opened.
func (f *fake) streams() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.opened)
}

// openedAt returns the names of the members with an open stream, in alphabetical order.
func (f *fake) openedAt() (names string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []string
	for _, s := range f.opened {
		if !s.isCut() && s.ctx.Err() == nil {
			list = append(list, s.name)
		}
	}
	slices.Sort(list)
	return strings.Join(list, "")
}

// last returns the most recently opened stream.
func (f *fake) last() *fakeStream {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.opened[len(f.opened)-1]
}

// requests returns all requests received so far, in order.
func (f *fake) requests() []*pb.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []*pb.Request
	for _, s := range f.seen {
		out = append(out, s.message.Requests...)
	}
	return out
}

// set changes the behavior of the members.
func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// inBubble runs a test in virtual time with a client of n fake members.
func inBubble(t *testing.T, n int, c Config, test func(*testing.T, *Client, *fake)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{
			down: make(map[string]bool), frozen: make(map[string]bool),
			dead: make(map[string]bool), foreign: make(map[string]bool),
		}
		f.answer = f.obey
		list := make([]endpoint, n)
		for i := range list {
			list[i].text = string(rune('a' + i))
		}
		client, err := start(c, list, func(e endpoint, _ *settings) (connection, error) {
			return fakeConn{f, e.text}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		test(t, client, f)
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
}

// withSession makes the client open its session, so that the session's requests do not interfere
// with the test.
func withSession(t *testing.T, c *Client, f *fake) {
	t.Helper()
	if _, err := c.Put(t.Context(), store.Put{Key: "first"}); err != nil {
		t.Fatal(err)
	}
	f.set(func() { f.seen = nil })
}

// obey returns the response of a successful request. It keeps no state.
func (f *fake) obey(_ *fakeStream, r *pb.Request) []*pb.Response {
	out := &pb.Response{Id: r.Id}
	h := &pb.Header{Revision: 1}
	switch x := r.Body.(type) {
	case *pb.Request_Put:
		out.Body = &pb.Response_Put{Put: &pb.PutResponse{Header: h}}
	case *pb.Request_DeleteRange:
		out.Body = &pb.Response_DeleteRange{DeleteRange: &pb.DeleteResponse{Header: h}}
	case *pb.Request_ReadRange:
		out.Body = &pb.Response_ReadRange{ReadRange: &pb.RangeResponse{Header: h}}
	case *pb.Request_Txn:
		out.Body = &pb.Response_Txn{Txn: &pb.TxnResponse{Header: h}}
	case *pb.Request_Grant:
		id := x.Grant.Id
		if id == 0 {
			f.granted = max(f.granted, 999) + 1
			id = f.granted
		}
		out.Body = &pb.Response_Grant{Grant: &pb.GrantResponse{Lease: &pb.Lease{
			Id: id, Token: 1, TtlMs: x.Grant.TtlMs, RemainingMs: x.Grant.TtlMs, Name: x.Grant.Name,
		}}}
	case *pb.Request_Renew:
		out.Body = renewed(x.Renew, 0)
	case *pb.Request_Revoke:
		m := &pb.RevokeResponse{}
		for _, l := range x.Revoke.Leases {
			m.Results = append(m.Results, &pb.RevokeResult{Id: l.Id})
		}
		out.Body = &pb.Response_Revoke{Revoke: m}
	case *pb.Request_Watch:
		out.More = true
		out.Body = &pb.Response_Watch{Watch: &pb.WatchResponse{Header: h}}
	case *pb.Request_Session:
		f.sessions++
		out.Body = &pb.Response_Session{Session: &pb.SessionResponse{Session: &pb.SessionRef{
			Id: f.sessions, Nonce: x.Session.Nonce,
		}}}
	default:
		if !obeyLease(r, out) {
			return nil
		}
	}
	return []*pb.Response{out}
}

// obeyLease is like obey, for requests about leases. There is a single lease, with token 1.
func obeyLease(r *pb.Request, out *pb.Response) (ok bool) {
	l := &pb.Lease{Id: 7, Token: 1, TtlMs: fakeTTL, RemainingMs: fakeTTL}
	switch x := r.Body.(type) {
	case *pb.Request_Describe:
		out.Body = &pb.Response_Describe{Describe: &pb.DescribeResponse{Lease: l}}
	case *pb.Request_List:
		out.Body = &pb.Response_List{List: &pb.ListResponse{Leases: []*pb.Lease{l}}}
	case *pb.Request_CheckToken:
		out.Body = &pb.Response_CheckToken{CheckToken: &pb.CheckTokenResponse{
			Valid: x.CheckToken.Token == 1, Current: 1,
		}}
	case *pb.Request_ChangeTtl:
		l.TtlMs, l.RemainingMs = x.ChangeTtl.TtlMs, x.ChangeTtl.TtlMs
		out.Body = &pb.Response_ChangeTtl{ChangeTtl: &pb.ChangeTTLResponse{Lease: l}}
	case *pb.Request_HandOver:
		l.Id, l.Token, l.Owner = x.HandOver.Lease.Id, x.HandOver.Lease.Token+1, x.HandOver.Owner
		out.Body = &pb.Response_HandOver{HandOver: &pb.HandOverResponse{Lease: l}}
	case *pb.Request_Resume:
		l.Token++
		out.Body = &pb.Response_Resume{Resume: &pb.ResumeResponse{Lease: l}}
	case *pb.Request_Attach:
		out.Body = &pb.Response_Attach{Attach: &pb.AttachResponse{}}
	case *pb.Request_Detach:
		out.Body = &pb.Response_Detach{Detach: &pb.DetachResponse{}}
	default:
		return false
	}
	return true
}

// fakeTTL is the TTL of the tests' leases in milliseconds.
const fakeTTL = 9000

// renewed returns a response with the same reason for every renewed lease.
func renewed(r *pb.RenewRequest, reason pb.Reason) *pb.Response_Renew {
	m := &pb.RenewResponse{TtlMs: make([]int64, len(r.Ids))}
	for i, id := range r.Ids {
		if reason == 0 {
			m.TtlMs[i] = fakeTTL
		} else {
			m.Results = append(m.Results, &pb.RenewResult{Id: id, Reason: reason})
		}
	}
	return &pb.Response_Renew{Renew: m}
}

// refuse returns an error response.
func refuse(r *pb.Request, reason pb.Reason) []*pb.Response {
	return []*pb.Response{{Id: r.Id, Body: &pb.Response_Error{Error: &pb.Error{
		Reason: reason, Message: "says the fake",
	}}}}
}

// silent does not answer the request.
func silent(*fakeStream, *pb.Request) []*pb.Response { return nil }

// pass waits while virtual time advances.
func pass(d time.Duration) { <-time.After(d) }

// want checks that an error wraps all of the given errors.
func want(t *testing.T, err error, all ...error) {
	t.Helper()
	for _, w := range all {
		if !errors.Is(err, w) {
			t.Errorf("error %v, want %v", err, w)
		}
	}
}
