package server

import (
	"strings"

	pb "leasehold.dev/api/leasehold/v1"
)

// byName checks that every request about a lease accepts its name instead of, or along with, its
// ID. If the name is unknown or does not match the ID, the error says so.
func (n nativeTest) byName() {
	ctx := n.t.Context()
	name := n.prefix + "n"
	granted := n.grant(&pb.GrantRequest{Name: name, Resumable: true})
	l := granted.Lease
	named := &pb.LeaseRef{Name: name}
	both := &pb.LeaseRef{Id: l.Id, Name: name}
	key := func(s string) []byte { return []byte(n.prefix + s) }
	keys := pb.NewStoreServiceClient(n.running.client.ActiveConnection())
	ok := func(_ any, err error) {
		n.t.Helper()
		if err != nil {
			n.t.Fatal(err)
		}
	}
	on := func(lease int64, list ...string) {
		n.t.Helper()
		for _, k := range list {
			r, err := keys.Range(ctx, &pb.RangeRequest{Key: key(k)})
			if err != nil || len(r.Kvs) != 1 || r.Kvs[0].Lease != lease {
				n.t.Fatalf("%s: %v, %v, want lease %d", k, r, err, lease)
			}
		}
	}
	ok(keys.Put(ctx, &pb.PutRequest{Key: key("a"), LeaseRef: named}))
	ok(keys.Put(ctx, &pb.PutRequest{Key: key("b"), LeaseRef: both}))
	ok(keys.Put(ctx, &pb.PutRequest{Key: key("c"), LeaseRef: ref(l)}))
	ok(keys.Txn(ctx, &pb.TxnRequest{Success: []*pb.Op{
		{Op: &pb.Op_Put{Put: &pb.PutRequest{Key: key("d"), LeaseRef: named}}},
		{Op: &pb.Op_Renew{Renew: &pb.LeaseRef{Name: name, Token: l.Token}}},
	}}))
	on(l.Id, "a", "b", "c", "d")
	ok(n.Detach(ctx, &pb.DetachRequest{Lease: named, Keys: [][]byte{key("a")}}))
	ok(n.Detach(ctx, &pb.DetachRequest{Lease: both, Keys: [][]byte{key("b")}}))
	on(0, "a", "b")
	ok(n.Attach(ctx, &pb.AttachRequest{Lease: named, Keys: [][]byte{key("a")}}))
	on(l.Id, "a")
	ok(n.ChangeTTL(ctx, &pb.ChangeTTLRequest{
		Lease: &pb.LeaseRef{Name: name, Token: l.Token}, TtlMs: 50_000,
	}))
	n.renewByName(name, l)
	n.wrongNames(name, l)

	h, err := n.HandOver(ctx, &pb.HandOverRequest{
		Lease: &pb.LeaseRef{Name: name, Token: l.Token}, Owner: "two", Resumable: true,
	})
	ok(h, err)
	r, err := n.Resume(ctx, &pb.ResumeRequest{Name: name, Secret: h.GetSecret()})
	if ok(r, err); r.Lease.Id != l.Id || r.Lease.Token <= h.Lease.Token {
		n.t.Errorf("resumed %v", r)
	}
	gone, err := n.Revoke(ctx, &pb.RevokeRequest{Leases: []*pb.LeaseRef{
		{Name: name, Token: l.Token}, named, named,
	}})
	if err != nil || gone.Results[0].Reason != pb.Reason_REASON_LEASE_NOT_FOUND ||
		gone.Results[1].Reason != 0 ||
		gone.Results[2].Reason != pb.Reason_REASON_LEASE_NOT_FOUND {
		n.t.Errorf("revoked %v, %v", gone, err)
	}
}

// renewByName checks that a renewal by name requires the token as well, and returns the ID.
func (n nativeTest) renewByName(name string, l *pb.Lease) {
	n.t.Helper()
	results := n.renew(
		&pb.LeaseRef{Name: name, Token: l.Token}, &pb.LeaseRef{Id: l.Id, Name: name}, ref(l),
		&pb.LeaseRef{Name: name, Token: l.Token + 1000}, &pb.LeaseRef{Name: name + "?", Token: 1},
		&pb.LeaseRef{Id: l.Id + 1, Name: name},
	)
	for i, want := range []int64{l.Id, l.Id, l.Id, l.Id, 0, 0} {
		if r := results[i]; r.Id != want || (r.Reason == 0) != (i < 3) || (r.TtlMs != 0) != (i < 3) {
			n.t.Errorf("result %d: %v", i, r)
		}
	}
	_, err := n.Renew(n.t.Context(), &pb.RenewRequest{Leases: []*pb.LeaseRef{{Name: name}}})
	n.is(err, pb.Reason_REASON_INVALID)
}

// wrongNames checks that a request has no effect if the name belongs to no lease or to a different
// lease.
func (n nativeTest) wrongNames(name string, l *pb.Lease) {
	n.t.Helper()
	ctx := n.t.Context()
	keys := pb.NewStoreServiceClient(n.running.client.ActiveConnection())
	for _, r := range []*pb.LeaseRef{
		{Name: name + "?", Token: l.Token}, {Id: l.Id + 1, Name: name, Token: l.Token},
	} {
		_, put := keys.Put(ctx, &pb.PutRequest{Key: []byte(n.prefix), LeaseRef: r})
		_, ttl := n.ChangeTTL(ctx, &pb.ChangeTTLRequest{Lease: r, TtlMs: 1000})
		_, hand := n.HandOver(ctx, &pb.HandOverRequest{Lease: r})
		_, attach := n.Attach(ctx, &pb.AttachRequest{Lease: r, Keys: [][]byte{[]byte(n.prefix + "a")}})
		for _, err := range []error{put, ttl, hand, attach} {
			e := n.is(err, pb.Reason_REASON_LEASE_NOT_FOUND)
			if !strings.Contains(e.Message, "the name \""+r.Name+"\"") {
				n.t.Errorf("%v: %s", r, e.Message)
			}
		}
		_, err := n.Detach(ctx, &pb.DetachRequest{Lease: r, Keys: [][]byte{[]byte(n.prefix + "a")}})
		n.is(err, pb.Reason_REASON_KEY_NOT_FOUND)
	}
	_, err := n.Describe(ctx, &pb.DescribeRequest{Name: name + "?"})
	n.is(err, pb.Reason_REASON_LEASE_NOT_FOUND)
	_, err = keys.Put(ctx, &pb.PutRequest{
		Key: []byte(n.prefix), Lease: 7, LeaseRef: &pb.LeaseRef{Name: name},
	})
	n.is(err, pb.Reason_REASON_INVALID)
	_, err = keys.Put(ctx, &pb.PutRequest{
		Key: []byte(n.prefix), TtlMs: 1000, LeaseRef: &pb.LeaseRef{Name: name},
	})
	n.is(err, pb.Reason_REASON_INVALID)
	_, err = keys.Put(ctx, &pb.PutRequest{Key: []byte(n.prefix), LeaseRef: &pb.LeaseRef{}})
	n.is(err, pb.Reason_REASON_INVALID)
}
