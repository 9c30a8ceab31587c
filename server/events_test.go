package server

import (
	"fmt"
	"slices"
	"testing"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/test/virtual"
)

// follower receives a stream of events from one member.
type follower struct {
	t    *testing.T
	next func() (*pb.EventsResponse, error)
	seq  uint64
	rest []*pb.LeaseEvent
}

// follow opens a stream of events to a member and waits for its first response.
func follow(t *testing.T, m *running, r *pb.EventsRequest) *follower {
	t.Helper()
	g, err := pb.NewLeaseServiceClient(m.client.ActiveConnection()).Events(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return begun(t, g.Recv)
}

func begun(t *testing.T, next func() (*pb.EventsResponse, error)) *follower {
	t.Helper()
	f := &follower{t: t, next: next}
	f.receive()
	return f
}

func (f *follower) receive() {
	f.t.Helper()
	m, err := f.next()
	if err != nil {
		f.t.Fatal(err)
	}
	f.seq, f.rest = m.Seq, append(f.rest, m.Events...)
}

// take returns the next event.
func (f *follower) take() *pb.LeaseEvent {
	f.t.Helper()
	for len(f.rest) == 0 {
		f.receive()
	}
	e := f.rest[0]
	f.rest = f.rest[1:]
	return e
}

// sees receives the next event and checks its type and lease.
func (f *follower) sees(want pb.LeaseEvent_Kind, id int64) *pb.LeaseEvent {
	f.t.Helper()
	e := f.take()
	if e.Kind != want || e.Lease.Id != id {
		f.t.Fatalf("event %v, want %v of lease %d", e, want, id)
	}
	return e
}

// TestEventsEverywhere checks that every member sends the same events with the same numbers, over
// both kinds of request. A client can resume at another member, even one that was down.
func TestEventsEverywhere(t *testing.T) { virtual.Test(t, testEventsEverywhere) }

func testEventsEverywhere(t *testing.T) {
	members := runAll(t, clusterConfigs(t, 3)...)
	first, _ := leader(t, members)
	var streams []*follower
	for _, m := range members {
		streams = append(streams, follow(t, m, &pb.EventsRequest{}))
	}
	n := nativeTest{
		LeaseServiceClient: pb.NewLeaseServiceClient(first.client.ActiveConnection()),
		running:            first, t: t,
	}
	one := n.grant(&pb.GrantRequest{Id: 1, TtlMs: 60_000, Name: "one", Owner: "ann"}).Lease
	two := n.grant(&pb.GrantRequest{Id: 2, TtlMs: 100}).Lease
	n.ended(two.Id)
	_, err := n.HandOver(t.Context(), &pb.HandOverRequest{Lease: ref(one), Owner: "bob"})
	if err != nil {
		t.Fatal(err)
	}
	n.revoke(&pb.Lease{Id: 1})
	want := []pb.LeaseEvent_Kind{
		pb.LeaseEvent_KIND_GRANTED, pb.LeaseEvent_KIND_GRANTED, pb.LeaseEvent_KIND_EXPIRED,
		pb.LeaseEvent_KIND_HANDED_OVER, pb.LeaseEvent_KIND_REVOKED,
	}
	var reported []string
	for i, f := range streams {
		start := f.seq
		for j, kind := range want {
			e := f.take()
			if e.Kind != kind || e.Seq != start+uint64(j)+1 {
				t.Errorf("member %d, event %d: %v", i, j, e)
			}
			reported = append(reported, fmt.Sprint(e.Seq, e.Kind, e.Lease, e.By, e.Revision))
		}
	}
	if k := len(want); !slices.Equal(reported[:k], reported[k:2*k]) || !slices.Equal(reported[:k], reported[2*k:]) {
		t.Errorf("members tell different things: %q", reported)
	}

	back := members[2]
	if err := back.stop(); err != nil {
		t.Fatal(err)
	}
	first, _ = leader(t, members[:2])
	n.LeaseServiceClient = pb.NewLeaseServiceClient(first.client.ActiveConnection())
	n.grant(&pb.GrantRequest{Id: 3, TtlMs: 60_000})
	back = begin(t, back.cfg).await(t)
	after := streams[0].seq - 2
	for _, m := range []*running{members[0], members[1], back} {
		f := follow(t, m, &pb.EventsRequest{After: after})
		f.sees(pb.LeaseEvent_KIND_HANDED_OVER, 1)
		f.sees(pb.LeaseEvent_KIND_REVOKED, 1)
		if e := f.sees(pb.LeaseEvent_KIND_GRANTED, 3); e.Seq != after+3 {
			t.Errorf("event %v, after %d", e, after)
		}
	}
	n.failsToFollow(&pb.EventsRequest{After: 1 << 40}, pb.Reason_REASON_COMPACTED)
	n.failsToFollow(&pb.EventsRequest{ExpiringWithinMs: -1}, pb.Reason_REASON_INVALID)
}

func (n nativeTest) failsToFollow(r *pb.EventsRequest, want pb.Reason) {
	n.t.Helper()
	g, err := n.Events(n.t.Context(), r)
	if err == nil {
		_, err = g.Recv()
	}
	n.is(err, want)
}

// TestExpiringEverywhere checks that every member gives notice of leases that are not being
// renewed, and of no other leases. General streams receive these notices as well.
func TestExpiringEverywhere(t *testing.T) { virtual.Test(t, testExpiringEverywhere) }

func testExpiringEverywhere(t *testing.T) {
	members := runAll(t, clusterConfigs(t, 3)...)
	first, others := leader(t, members)
	n := nativeTest{
		LeaseServiceClient: pb.NewLeaseServiceClient(first.client.ActiveConnection()),
		running:            first, t: t,
	}
	request := &pb.EventsRequest{NamePrefix: "silent/", ExpiringWithinMs: 59_000}
	early := n.grant(&pb.GrantRequest{Id: 1, TtlMs: 60_000, Name: "silent/1"}).Lease
	var streams []*follower
	for _, m := range members {
		here := n
		here.LeaseServiceClient = pb.NewLeaseServiceClient(m.client.ActiveConnection())
		here.describe(early.Id) // wait for the grant, so that the stream does not report it
		streams = append(streams, follow(t, m, request))
	}
	g, err := pb.NewStreamServiceClient(others[0].client.ActiveConnection()).Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := &streamTest{running: others[0], t: t, grpc: g}
	s.send(&pb.Request{Body: &pb.Request_Events{Events: request}})
	streams = append(streams, begun(t, func() (*pb.EventsResponse, error) {
		r := s.next()
		if !r.More || r.GetEvents() == nil {
			return nil, fmt.Errorf("response %v", r)
		}
		return r.GetEvents(), nil
	}))
	for _, f := range streams {
		e := f.sees(pb.LeaseEvent_KIND_EXPIRING, early.Id)
		if left := e.Lease.RemainingMs; e.Seq != 0 || left <= 0 || left > request.ExpiringWithinMs {
			t.Errorf("notice %v", e)
		}
	}
	n.renew(ref(early))
	for _, f := range streams {
		f.sees(pb.LeaseEvent_KIND_RENEWED, early.Id)
	}
	short := n.grant(&pb.GrantRequest{Id: 2, TtlMs: 1500, Name: "silent/2"}).Lease
	for _, f := range streams {
		var last []pb.LeaseEvent_Kind
		for len(last) == 0 || last[len(last)-1] != pb.LeaseEvent_KIND_EXPIRED {
			if e := f.take(); e.Lease.Id == short.Id { // the other lease is silent again
				last = append(last, e.Kind)
			}
		}
		if len(last) < 2 || last[0] != pb.LeaseEvent_KIND_GRANTED {
			t.Errorf("the life of a silent lease is %v", last)
		}
	}
	s.send(&pb.Request{Body: &pb.Request_Cancel{Cancel: 1}})
	for r := s.next(); r.More; r = s.next() {
		if r.GetEvents() == nil {
			t.Errorf("response %v", r)
		}
	}
	s.fails(&pb.Request{Body: &pb.Request_Events{Events: &pb.EventsRequest{After: 1 << 40}}},
		pb.Reason_REASON_COMPACTED)
}
