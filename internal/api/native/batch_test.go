package native

import (
	"bytes"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

func unknown(id int64) *pb.RenewResult {
	return &pb.RenewResult{Id: id, Reason: pb.Reason_REASON_UNKNOWN_OUTCOME}
}

func notFound(id int64) *pb.RenewResult {
	return &pb.RenewResult{Id: id, Reason: pb.Reason_REASON_LEASE_NOT_FOUND}
}

// TestRenewColumns checks that in a columnar renewal the TTLs are in the order of the IDs, and that
// only failed renewals have a result. Tokens, if present, are in the same order (T28); 0 accepts
// any token.
func TestRenewColumns(t *testing.T) {
	n := newNode()
	s := service(n, Options{})
	one := grant(t, s, &pb.GrantRequest{TtlMs: 5000}).Lease
	two := grant(t, s, &pb.GrantRequest{TtlMs: 6000}).Lease
	c := serve(t, n, Options{})
	for _, tt := range []struct {
		tokens  []uint64
		ttls    []int64
		results []*pb.RenewResult
	}{
		{
			[]uint64{two.Token, one.Token, one.Token, 1, 0},
			[]int64{6000, 5000, 0, 0, 6000},
			[]*pb.RenewResult{notFound(two.Id), notFound(1 << 62)},
		},
		{nil, []int64{6000, 5000, 6000, 0, 6000}, []*pb.RenewResult{notFound(1 << 62)}},
		{make([]uint64, 5), []int64{6000, 5000, 6000, 0, 6000}, []*pb.RenewResult{notFound(1 << 62)}},
	} {
		resp, err := c.Renew(t.Context(), &pb.RenewRequest{
			Ids: []int64{two.Id, one.Id, two.Id, 1 << 62, two.Id}, Tokens: tt.tokens,
		})
		if err != nil {
			t.Fatal(err)
		}
		want := &pb.RenewResponse{Header: resp.Header, TtlMs: tt.ttls, Results: tt.results}
		if !proto.Equal(resp, want) {
			t.Errorf("tokens %v: %v, want %v", tt.tokens, resp, want)
		}
	}
}

// columnsOf sends a renewal of four leases in columns on a stream.
func columnsOf(b *bench) (to RenewedAll, asks *replica.Renewals) {
	b.send(&pb.Request{Id: 1, TimeoutMs: 5000, Body: &pb.Request_Renew{Renew: &pb.RenewRequest{
		Ids: []int64{11, 12, 13, 14},
	}}})
	asks = b.node.renewals[0]
	return asks.Owner.(RenewedAll), asks
}

// keep renews the leases at the given indexes together, as the core does.
func keep(r *replica.Renewals, places ...int) {
	for _, i := range places {
		r.TTLs[i] = 900
		r.Kept++
	}
	r.Owner.(RenewedAll).RenewedTogether()
}

func (b *bench) wantRenewed(more bool, want *pb.RenewResponse) {
	b.t.Helper()
	r := b.only()
	want.Header = r.GetRenew().GetHeader()
	if r.Id != 1 || r.More != more || !proto.Equal(r.GetRenew(), want) {
		b.t.Errorf("response %v, want %v, more %v", r, want, more)
	}
}

// TestColumnsInParts checks that a renewal in columns over a stream is answered in parts (T15). The
// TTLs known early come first, followed by the remaining results, one per lease.
func TestColumnsInParts(t *testing.T) {
	onStream(t, func(b *bench) {
		to, asks := columnsOf(b)
		keep(asks, 0, 2)
		to.RenewedOne(3, 0, lease.ErrNotFound)
		if list := b.got(); len(list) > 0 {
			t.Errorf("at once: %v", list)
		}
		b.pass(partialAfter)
		b.wantRenewed(true, &pb.RenewResponse{
			TtlMs: []int64{900, 0, 900, 0}, Results: []*pb.RenewResult{notFound(14)},
		})
		to.RenewedOne(1, 800, nil)
		b.wantRenewed(false, &pb.RenewResponse{Results: []*pb.RenewResult{{Id: 12, TtlMs: 800}}})
	})
}

// TestLateParts checks that if the confirm round takes long, later outcomes are sent as soon as
// they are known (T15).
func TestLateParts(t *testing.T) {
	onStream(t, func(b *bench) {
		to, asks := columnsOf(b)
		b.pass(3*partialAfter + partialAfter/2)
		if list := b.got(); len(list) > 0 {
			t.Errorf("of nothing: %v", list)
		}
		to.RenewedOne(2, 0, replica.ErrOverloaded)
		b.pass(partialAfter)
		b.wantRenewed(true, &pb.RenewResponse{TtlMs: make([]int64, 4), Results: []*pb.RenewResult{
			{Id: 13, Reason: pb.Reason_REASON_UNAVAILABLE},
		}})
		keep(asks, 0, 3)
		b.pass(partialAfter)
		b.wantRenewed(true, &pb.RenewResponse{Results: []*pb.RenewResult{
			{Id: 11, TtlMs: 900}, {Id: 14, TtlMs: 900},
		}})
		b.pass(5 * time.Second)
		b.wantRenewed(false, &pb.RenewResponse{Results: []*pb.RenewResult{unknown(12)}})
		to.RenewedOne(1, 900, nil)
		if list := b.got(); len(list) > 0 {
			t.Errorf("late: %v", list)
		}
	})
}

// TestColumnsCancelled checks that a canceled renewal in columns returns the outcomes known so far.
// Later outcomes are ignored.
func TestColumnsCancelled(t *testing.T) {
	cancel := &pb.Request{Body: &pb.Request_Cancel{Cancel: 1}}
	onStream(t, func(b *bench) {
		to, asks := columnsOf(b)
		to.RenewedOne(1, 700, nil)
		b.send(cancel)
		b.wantRenewed(false, &pb.RenewResponse{
			TtlMs:   []int64{0, 700, 0, 0},
			Results: []*pb.RenewResult{unknown(11), unknown(13), unknown(14)},
		})
		keep(asks, 0, 2)
		to.RenewedOne(3, 0, lease.ErrNotFound)
	})
	onStream(t, func(b *bench) {
		_, asks := columnsOf(b)
		keep(asks, 0, 1, 3)
		b.send(cancel)
		b.wantRenewed(false, &pb.RenewResponse{
			TtlMs: []int64{900, 900, 0, 900}, Results: []*pb.RenewResult{unknown(13)},
		})
	})
}

// requestGoroutines returns the number of requests that have a goroutine.
func requestGoroutines() int {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	return bytes.Count(stacks, []byte("native.(*stream).run.func1("))
}

// TestRenewalsTakeNoGoroutine checks that a renewal over a stream gets a goroutine only if some
// outcomes are still missing after partialAfter. A renewal that has to look up a name gets a
// goroutine immediately.
func TestRenewalsTakeNoGoroutine(t *testing.T) {
	onStream(t, func(b *bench) {
		list := make([]*pb.Request, 100)
		for i := range list {
			list[i] = &pb.Request{Id: uint64(i + 1), Body: &pb.Request_Renew{Renew: &pb.RenewRequest{
				Leases: []*pb.LeaseRef{{Id: 1, Token: 1}},
			}}}
		}
		b.send(list...)
		if n := requestGoroutines(); n > 0 {
			t.Errorf("%d goroutines for %d renewals", n, len(list))
		}
		for _, asks := range b.node.renewals[10:] {
			keep(asks, 0)
		}
		if n := len(b.got()); n != 90 {
			t.Errorf("%d of 90 were answered", n)
		}
		b.pass(partialAfter)
		if n := requestGoroutines(); n != 10 {
			t.Errorf("%d goroutines for 10 renewals that take long", n)
		}
		for _, asks := range b.node.renewals[:10] {
			keep(asks, 0)
		}
		if n := len(b.got()); n != 10 {
			t.Errorf("%d of 10 were answered", n)
		}
		b.node.renewals = nil
		b.send(&pb.Request{Id: 101, Body: &pb.Request_Renew{Renew: &pb.RenewRequest{
			Leases: []*pb.LeaseRef{{Name: "n", Token: 1}},
		}}})
		if n := requestGoroutines(); n != 1 || len(b.node.renewals) != 0 {
			t.Errorf("%d goroutines wait for the lease of a name, %d renewals", n, len(b.node.renewals))
		}
	})
}

// TestRenewalWithShortDeadline checks that a renewal with a deadline shorter than partialAfter is
// answered in time, with unknown outcomes, even without a leader.
func TestRenewalWithShortDeadline(t *testing.T) {
	onStream(t, func(b *bench) {
		b.send(&pb.Request{Id: 1, TimeoutMs: 10, Body: &pb.Request_Renew{Renew: &pb.RenewRequest{
			Leases: []*pb.LeaseRef{{Id: 11}, {Id: 12}},
		}}})
		b.node.renewals[0].Owner.(RenewedAll).RenewedOne(1, 0, lease.ErrNotFound)
		b.pass(10 * time.Millisecond)
		var results []*pb.RenewResult
		list := b.got()
		for _, r := range list {
			results = append(results, r.GetRenew().GetResults()...)
		}
		if len(results) != 2 || !proto.Equal(results[0], notFound(12)) ||
			!proto.Equal(results[1], unknown(11)) || list[len(list)-1].More {
			t.Errorf("in time: %v", list)
		}
	})
}

// TestLostLeaseReason checks that a stream reports why a lease is gone, even if the reason has to
// be looked up. Other renewals in the same message are answered in the meantime.
func TestLostLeaseReason(t *testing.T) {
	onStream(t, func(b *bench) {
		renew := func(id uint64) *pb.Request {
			return &pb.Request{Id: id, Body: &pb.Request_Renew{Renew: &pb.RenewRequest{
				Leases: []*pb.LeaseRef{{Id: int64(id), Token: 7}},
			}}}
		}
		b.send(renew(1), renew(2))
		b.node.renewals[0].Owner.(RenewedAll).RenewedOne(0, 0, lease.ErrNotFound)
		keep(b.node.renewals[1], 0)
		if r := b.only(); r.Id != 2 || len(r.GetRenew().GetResults()) != 1 {
			t.Errorf("of the other lease: %v", r)
		}
		b.pass(partialAfter) // this member cannot find the reason
		b.wantRenewed(false, &pb.RenewResponse{Results: []*pb.RenewResult{notFound(1)}})
	})
}

// TestRefusedRenewalCancelled checks that a rejected renewal that is canceled before the error is
// sent gets no second response. By then, a put may be using the same ID.
func TestRefusedRenewalCancelled(t *testing.T) {
	s, p := passing(t)
	n := s.node.(*stuckNode)
	n.renewing = func(*replica.Renewals) error { return api.ErrTooManyRequests }
	if err := s.take(&pb.ClientMessage{Requests: []*pb.Request{
		{Id: 4, Body: &pb.Request_Renew{Renew: &pb.RenewRequest{Leases: []*pb.LeaseRef{{Id: 1}}}}},
	}}); err != nil {
		t.Fatal(err)
	}
	refused := s.done
	s.done = nil
	s.cancel(4)
	if _, err := s.sendAll(refused); err != nil {
		t.Fatal(err)
	}
	r := (<-p.answers).Responses
	if len(r) != 1 || r[0].Id != 4 || r[0].GetError() == nil {
		t.Errorf("answered with %v", r)
	}
	if err := s.take(&pb.ClientMessage{Requests: []*pb.Request{putRequest(5, 0)}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.sendAll(s.done); err != nil {
		t.Fatal(err)
	}
	for len(p.answers) > 0 {
		t.Errorf("answered again with %v", <-p.answers)
	}
}

// TestBatchEndsOnce checks that a batch ends only once, even if the last outcome, the timeout and
// the cancellation coincide.
func TestBatchEndsOnce(t *testing.T) {
	for i := range 500 {
		b := newBatch(&pb.RenewRequest{Leases: []*pb.LeaseRef{{Id: 1}, {Id: 2}}}, nil)
		ends := make(chan string, 10)
		b.report = func() { ends <- "reported" }
		var all sync.WaitGroup
		all.Go(func() {
			for range i % 10 {
				runtime.Gosched()
			}
			if done := b.wait(); done != nil {
				<-done
				ends <- "waited"
			}
		})
		all.Go(func() { b.RenewedOne(1, 5000, nil) })
		if i%2 == 0 {
			all.Go(b.cut)
		}
		b.RenewedOne(0, 5000, nil)
		all.Wait()
		<-ends
		b.cut()
		if len(ends) > 0 {
			t.Fatalf("round %d: it ended again: %s", i, <-ends)
		}
		if got := b.end().GetResults(); len(got) != 2 {
			t.Fatalf("round %d: %v", i, got)
		}
	}
}

// TestLastOutcomesInFinalResponse checks that the last outcomes are sent with the final response,
// which would otherwise be empty.
func TestLastOutcomesInFinalResponse(t *testing.T) {
	b := newBatch(&pb.RenewRequest{Leases: []*pb.LeaseRef{{Id: 1}, {Id: 2}}}, nil)
	b.wait()
	if got := b.take(); got != nil {
		t.Errorf("before any outcome: %v", got)
	}
	b.RenewedOne(0, 5000, nil)
	if got := b.take().GetResults(); len(got) != 1 || got[0].Id != 1 {
		t.Errorf("the first outcome: %v", got)
	}
	b.RenewedOne(1, 5000, nil)
	if got := b.take(); got != nil {
		t.Errorf("when all is known: %v", got)
	}
	if got := b.end().GetResults(); len(got) != 1 || got[0].Id != 2 {
		t.Errorf("the last response: %v", got)
	}
}

// TestLateJoins checks that leases join groups no matter how long the confirm round takes or which
// part of the response includes them.
func TestLateJoins(t *testing.T) {
	for name, first := range map[string]func(b *bench, to RenewedAll){
		"at once": func(*bench, RenewedAll) {},
		"late":    func(b *bench, _ RenewedAll) { b.pass(3 * partialAfter) },
		"after a part": func(b *bench, to RenewedAll) {
			to.RenewedOne(3, 0, lease.ErrNotFound)
			b.pass(3 * partialAfter)
			b.only()
		},
	} {
		onStream(t, func(b *bench) {
			to, asks := columnsOf(b)
			first(b, to)
			asks.Joined = []lease.GroupID{7, 0, 7, 0}
			asks.Kept = 0
			keep(asks, 0, 1, 2)
			b.pass(2 * partialAfter)
			joined := b.only().GetRenew().GetJoined()
			if !slices.Equal(joined, []uint64{7, 0, 7, 0}) {
				t.Errorf("%s: joined %v", name, joined)
			}
		})
	}
}
