package server

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/test/virtual"
)

// streamTest is an open leasehold.v1 stream to one member. Each test uses its own prefix for names
// and keys.
type streamTest struct {
	*running
	t      *testing.T
	prefix string
	grpc   pb.StreamService_OpenClient
	last   uint64 // ID of the last request
	queue  []*pb.Response
}

// TestStream runs each scenario against a single member, a leader and a follower.
func TestStream(t *testing.T) { virtual.Test(t, testStream) }

func testStream(t *testing.T) {
	alone := run(t, testConfig(shortDir(t)))
	members := runAll(t, clusterConfigs(t, 3)...)
	first, others := leader(t, members)
	scenarios := []struct {
		name string
		run  func(*streamTest)
	}{
		{"pipeline", (*streamTest).pipeline},
		{"transaction", (*streamTest).transaction},
		{"conditions", (*streamTest).conditions},
		{"leases", (*streamTest).leases},
		{"watch", (*streamTest).watch},
		{"fragments", (*streamTest).fragments},
		{"compacted", (*streamTest).compacted},
	}
	for i, m := range []*running{alone, first, others[0]} {
		where := []string{"alone", "leader", "follower"}[i]
		for _, s := range scenarios {
			virtual.Step(t, where+"/"+s.name, func(t *testing.T) {
				g, err := pb.NewStreamServiceClient(m.client.ActiveConnection()).Open(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				s.run(&streamTest{
					running: m, t: t, prefix: where + "/" + s.name + "/", grpc: g,
				})
			})
		}
	}
}

func (s *streamTest) key(name string) []byte { return []byte(s.prefix + name) }

// send numbers requests and sends them in one message.
func (s *streamTest) send(list ...*pb.Request) {
	s.t.Helper()
	for _, r := range list {
		s.last++
		r.Id = s.last
	}
	if err := s.grpc.Send(&pb.ClientMessage{Requests: list}); err != nil {
		s.t.Fatal(err)
	}
}

// next returns the next response, receiving a message if necessary.
func (s *streamTest) next() *pb.Response {
	s.t.Helper()
	for len(s.queue) == 0 {
		m, err := s.grpc.Recv()
		if err != nil {
			s.t.Fatal(err)
		}
		s.queue = m.Responses
	}
	r := s.queue[0]
	s.queue = s.queue[1:]
	return r
}

// call sends one request and returns its response.
func (s *streamTest) call(r *pb.Request) *pb.Response {
	s.t.Helper()
	s.send(r)
	got := s.next()
	for more := got; more.Id == r.Id && more.More && more.GetRenew() != nil; {
		more = s.next() // a slow machine may split the response to a renewal
		proto.Merge(got.GetRenew(), more.GetRenew())
		got.Id = more.Id
	}
	if got.Id != r.Id {
		s.t.Fatalf("response %v to request %v", got, r)
	}
	return got
}

func (s *streamTest) fails(r *pb.Request, want pb.Reason) {
	s.t.Helper()
	if got := s.call(r).GetError().GetReason(); got != want {
		s.t.Errorf("%v: %v, want %v", r, got, want)
	}
}

func putOf(key, value []byte, lease int64) *pb.Request {
	return &pb.Request{Body: &pb.Request_Put{Put: &pb.PutRequest{
		Key: key, Value: value, Lease: lease, PrevKv: true,
	}}}
}

func rangeOf(key []byte) *pb.Request {
	return &pb.Request{Body: &pb.Request_ReadRange{ReadRange: &pb.RangeRequest{Key: key}}}
}

func txnOf(r *pb.TxnRequest) *pb.Request {
	return &pb.Request{Body: &pb.Request_Txn{Txn: r}}
}

// pipeline checks that requests sent without waiting are all answered, and that writes are applied
// in the order they were sent.
func (s *streamTest) pipeline() {
	const messages, each = 20, 100
	for m := range messages {
		var list []*pb.Request
		for i := range each {
			if i%10 == 9 {
				list = append(list, rangeOf(s.key("k")))
				continue
			}
			list = append(list, putOf(s.key("k"), fmt.Appendf(nil, "%d", m*each+i), 0))
		}
		s.send(list...)
	}
	puts := make(map[uint64]*pb.PutResponse)
	for range messages * each {
		r := s.next()
		switch x := r.Body.(type) {
		case *pb.Response_Put:
			puts[r.Id] = x.Put
		case *pb.Response_ReadRange:
		default:
			s.t.Fatalf("response %v", r)
		}
	}
	before := ""
	for id := range uint64(messages * each) {
		p := puts[id+1]
		if p == nil {
			continue
		}
		if got := string(p.PrevKv.GetValue()); got != before {
			s.t.Fatalf("put %d found %q, want %q", id+1, got, before)
		}
		before = fmt.Sprint(id)
	}
	if got := s.call(rangeOf(s.key("k"))).GetReadRange().Kvs[0]; string(got.Value) != before ||
		got.Version != messages*each*9/10 {
		s.t.Errorf("at last %v, want %q", got, before)
	}
}

// transaction checks that transactions can grant a lease, attach keys to it, renew it and revoke
// it. Each transaction takes effect completely or not at all.
func (s *streamTest) transaction() {
	id := int64(s.last) + 7001
	grant := &pb.Op{Op: &pb.Op_Grant{Grant: &pb.GrantRequest{
		Id: id, TtlMs: 60_000, Name: s.prefix + "name", Resumable: true,
	}}}
	put := func(key string) *pb.Op {
		return &pb.Op{Op: &pb.Op_Put{Put: &pb.PutRequest{Key: s.key(key), Lease: id}}}
	}
	got := s.call(txnOf(&pb.TxnRequest{Success: []*pb.Op{grant, put("a"), put("b")}})).GetTxn()
	if !got.GetSucceeded() || len(got.Responses) != 3 {
		s.t.Fatalf("transaction %v", got)
	}
	g := got.Responses[0].GetGrant()
	if g.GetLease().GetId() != id || g.Lease.Token == 0 || len(g.Secret) != 32 {
		s.t.Errorf("granted %v", g)
	}
	s.fails(txnOf(&pb.TxnRequest{Success: []*pb.Op{put("c"), {Op: &pb.Op_Grant{
		Grant: &pb.GrantRequest{Id: id + 1, TtlMs: 60_000, Name: s.prefix + "name"},
	}}}}), pb.Reason_REASON_NAME_TAKEN)
	if n := len(s.call(rangeOf(s.key("c"))).GetReadRange().GetKvs()); n != 0 {
		s.t.Error("a transaction that failed has put a key")
	}
	ref := &pb.LeaseRef{Id: id, Token: g.Lease.Token}
	got = s.call(txnOf(&pb.TxnRequest{Success: []*pb.Op{
		{Op: &pb.Op_Renew{Renew: ref}}, {Op: &pb.Op_Revoke{Revoke: ref}},
	}})).GetTxn()
	if !got.GetSucceeded() || got.Responses[0].GetRenew().GetId() != id ||
		got.Responses[1].GetRevoke() != 2 {
		s.t.Errorf("transaction %v", got)
	}
	s.fails(putOf(s.key("a"), nil, id), pb.Reason_REASON_LEASE_NOT_FOUND)
}

// conditions checks that a transaction can require a live lease or a particular token.
func (s *streamTest) conditions() {
	got := s.call(&pb.Request{Body: &pb.Request_Grant{Grant: &pb.GrantRequest{
		TtlMs: 60_000, Name: s.prefix + "name",
	}}}).GetGrant().GetLease()
	holds := func(c *pb.Compare) bool {
		r := s.call(txnOf(&pb.TxnRequest{Compare: []*pb.Compare{c}}))
		if r.GetTxn() == nil {
			s.t.Fatalf("response %v", r)
		}
		return r.GetTxn().Succeeded
	}
	alive := func(id int64) *pb.Compare {
		return &pb.Compare{Target: &pb.Compare_LeaseAlive{LeaseAlive: id}}
	}
	held := func(token uint64) *pb.Compare {
		return &pb.Compare{Target: &pb.Compare_NameToken{NameToken: &pb.NameToken{
			Name: s.prefix + "name", Token: token,
		}}}
	}
	if !holds(alive(got.Id)) || holds(alive(got.Id+1)) {
		s.t.Error("a lease that lives is not told from another")
	}
	if !holds(held(got.Token)) || holds(held(got.Token-1)) {
		s.t.Error("the token of a name is not told from another")
	}
	other := alive(got.Id)
	other.Relation = pb.Compare_RELATION_NOT_EQUAL
	if holds(other) {
		s.t.Error("a condition is not turned round")
	}
}

// leases checks that grants, renewals and revocations work over the stream.
func (s *streamTest) leases() {
	got := s.call(&pb.Request{Body: &pb.Request_Grant{
		Grant: &pb.GrantRequest{TtlMs: 60_000},
	}}).GetGrant().GetLease()
	refs := []*pb.LeaseRef{{Id: got.Id, Token: got.Token}, {Id: got.Id + 1}}
	renewed := s.call(&pb.Request{Body: &pb.Request_Renew{
		Renew: &pb.RenewRequest{Leases: refs},
	}}).GetRenew().GetResults()
	if len(renewed) != 2 || renewed[0].TtlMs != 60_000 ||
		renewed[1].Reason != pb.Reason_REASON_LEASE_NOT_FOUND {
		s.t.Errorf("renewed %v", renewed)
	}
	columns := s.call(&pb.Request{Body: &pb.Request_Renew{Renew: &pb.RenewRequest{
		Ids: []int64{got.Id, got.Id + 1, got.Id}, Tokens: []uint64{got.Token, 0, got.Token + 1},
	}}}).GetRenew()
	if n := columns.GetResults(); !slices.Equal(columns.GetTtlMs(), []int64{60_000, 0, 0}) ||
		len(n) != 2 || n[0].Id != got.Id+1 || n[1].Id != got.Id {
		s.t.Errorf("renewed in columns: %v", columns)
	}
	revoked := s.call(&pb.Request{Body: &pb.Request_Revoke{
		Revoke: &pb.RevokeRequest{Leases: refs},
	}}).GetRevoke().GetResults()
	if len(revoked) != 2 || revoked[0].Reason != pb.Reason_REASON_UNSPECIFIED ||
		revoked[1].Reason != pb.Reason_REASON_LEASE_NOT_FOUND {
		s.t.Errorf("revoked %v", revoked)
	}
}

// watch checks that each event arrives once and in order, and that deletions include their cause.
func (s *streamTest) watch() {
	watch := &pb.Request{Body: &pb.Request_Watch{Watch: &pb.WatchRequest{
		Key: s.key(""), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(s.prefix)), PrevKv: true,
	}}}
	if r := s.call(watch); r.GetWatch() == nil || !r.More {
		s.t.Fatalf("response %v", r)
	}
	grant := func(ttl int64, key string) int64 {
		return s.apart(&pb.Request{Body: &pb.Request_Grant{Grant: &pb.GrantRequest{
			TtlMs: ttl, Keys: []*pb.Pair{{Key: s.key(key)}},
		}}}).GetGrant().GetLease().GetId()
	}
	short, long := grant(100, "expired"), grant(60_000, "revoked")
	s.apart(putOf(s.key("deleted"), []byte("v"), 0))
	s.apart(&pb.Request{Body: &pb.Request_DeleteRange{
		DeleteRange: &pb.DeleteRequest{Key: s.key("deleted")},
	}})
	s.apart(&pb.Request{Body: &pb.Request_Revoke{
		Revoke: &pb.RevokeRequest{Leases: []*pb.LeaseRef{{Id: long}}},
	}})
	whys := map[string]pb.Event_Cause{}
	leases := map[string]int64{}
	revision := int64(0)
	for puts := 0; len(whys) < 3 || puts < 3; {
		for _, e := range s.next().GetWatch().GetEvents() {
			if e.Kv.ModRevision < revision {
				s.t.Errorf("revision %d after %d", e.Kv.ModRevision, revision)
			}
			revision = e.Kv.ModRevision
			if e.Kind == pb.Event_KIND_PUT {
				puts++
				continue
			}
			name := string(bytes.TrimPrefix(e.Kv.Key, []byte(s.prefix)))
			whys[name], leases[name] = e.Cause, e.Lease
			if e.PrevKv == nil || e.Kv.Lease != 0 {
				s.t.Errorf("event %v", e)
			}
		}
	}
	for name, want := range map[string]pb.Event_Cause{
		"deleted": pb.Event_CAUSE_DELETED, "expired": pb.Event_CAUSE_EXPIRED, "revoked": pb.Event_CAUSE_REVOKED,
	} {
		if whys[name] != want {
			s.t.Errorf("%s: %v", name, whys[name])
		}
	}
	if leases["deleted"] != 0 || leases["expired"] != short || leases["revoked"] != long {
		s.t.Errorf("leases %v", leases)
	}
	s.send(&pb.Request{Body: &pb.Request_Cancel{Cancel: watch.Id}})
	if r := s.next(); r.Id != watch.Id || r.More || r.Body != nil {
		s.t.Errorf("response %v", r)
	}
}

// apart sends a request over another stream, because s is in use by a watch.
func (s *streamTest) apart(r *pb.Request) *pb.Response {
	s.t.Helper()
	g, err := pb.NewStreamServiceClient(s.client.ActiveConnection()).Open(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	other := streamTest{running: s.running, t: s.t, prefix: s.prefix, grpc: g}
	got := other.call(r)
	if got.GetError() != nil {
		s.t.Fatalf("%v: %v", r, got.GetError())
	}
	return got
}

// fragments checks that a revision too large for one response is split, with the fragment flag set
// on all parts but the last (T14, W1).
func (s *streamTest) fragments() {
	var ops []*pb.Op
	value := bytes.Repeat([]byte("x"), 200<<10)
	for i := range 7 {
		ops = append(ops, &pb.Op{Op: &pb.Op_Put{Put: &pb.PutRequest{
			Key: s.key(fmt.Sprint(i)), Value: value,
		}}})
	}
	done := s.call(txnOf(&pb.TxnRequest{Success: ops})).GetTxn().GetHeader().GetRevision()
	// Read the revision from history.
	s.send(&pb.Request{Body: &pb.Request_Watch{Watch: &pb.WatchRequest{
		Key: s.key(""), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(s.prefix)),
		StartRevision: done,
	}}})
	events, fragments := 0, 0
	for events < len(ops) {
		w := s.next().GetWatch()
		events += len(w.GetEvents())
		if w.GetFragment() {
			fragments++
		}
		if w.GetFragment() != (events > 0 && events < len(ops)) {
			s.t.Errorf("after %d events fragment is %v", events, w.GetFragment())
		}
	}
	if fragments == 0 {
		s.t.Error("it was not split")
	}
}

// compacted checks that a watch starting at a compacted revision fails with that error.
func (s *streamTest) compacted() {
	var revision int64
	for range 3 {
		revision = s.call(putOf(s.key("k"), nil, 0)).GetPut().GetHeader().GetRevision()
	}
	if _, err := s.client.Compact(s.t.Context(), revision); err != nil {
		s.t.Fatal(err)
	}
	s.send(&pb.Request{Body: &pb.Request_Watch{Watch: &pb.WatchRequest{
		Key: s.key("k"), StartRevision: revision - 1,
	}}})
	for {
		r := s.next()
		if e := r.GetError(); e != nil {
			if r.More || e.Reason != pb.Reason_REASON_COMPACTED {
				s.t.Errorf("response %v", r)
			}
			return
		}
	}
}
