package native

import (
	"testing"
	"testing/synctest"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// apply applies a command like a member and returns the result.
func (b *bench) apply(c fsm.Command) fsm.Result {
	b.t.Helper()
	n := b.node
	n.mu.Lock()
	n.machine.Begin(n.machine.Index()+1, 1)
	res := n.machine.Apply(c)
	changes := n.machine.TakeChanges()
	n.machine.View()
	n.mu.Unlock()
	for _, change := range changes {
		var events []*api.Event
		for i := range change.Events {
			events = append(events, api.NewEvent(&change.Events[i]))
		}
		n.hub.Publish(change.Revision, events)
	}
	return res
}

// enterRequest returns a request that adds a key to a wait queue.
func enterRequest(id uint64, key string, on lease.ID) *pb.Request {
	return &pb.Request{Id: id, Body: &pb.Request_Txn{Txn: &pb.TxnRequest{
		Compare: []*pb.Compare{{
			Key: []byte(key), Target: &pb.Compare_Version{},
		}},
		Success: []*pb.Op{{Op: &pb.Op_Put{Put: &pb.PutRequest{Key: []byte(key), Lease: int64(on)}}}},
		Wait:    &pb.Wait{Key: []byte(key), Prefix: []byte("l/")},
	}}}
}

// answer makes the node execute the last submission.
func (b *bench) answer() {
	b.t.Helper()
	last := b.node.submitted[len(b.node.submitted)-1]
	last.To.Answered(b.apply(last.Command), nil)
}

// enter joins a wait queue and returns the response.
func (b *bench) enter(id uint64, key string, on lease.ID) *pb.Response {
	b.t.Helper()
	b.send(enterRequest(id, key, on))
	b.answer()
	return b.only()
}

func wantTicket(t *testing.T, r *pb.Response, id uint64, s pb.Ticket_State) *pb.Ticket {
	t.Helper()
	ticket := r.GetTxn().GetTicket()
	gone := s == pb.Ticket_STATE_GONE
	if r.Id != id || ticket.GetState() != s || ticket == nil || r.More == gone ||
		ticket.CreateRevision == 0 {
		t.Fatalf("response %v, want %v of %d", r, s, id)
	}
	return ticket
}

func onLine(t *testing.T, test func(*bench)) {
	onStream(t, func(b *bench) {
		b.node.machine.Lessor().Advance(1)
		b.node.machine.Lessor().Promote(1)
		for id := lease.ID(1); id < 4; id++ {
			b.apply(&fsm.Grant{Terms: lease.Terms{ID: id, TTL: 100_000}})
		}
		test(b)
		b.stop()
		b.ended <- <-b.ended
		if s := b.node.queues.Stats(); s.Waiting != 0 {
			t.Errorf("left behind: %+v", s)
		}
	})
}

// TestWait checks that a waiting transaction gets a response when it is applied, when it reaches
// the front of the queue, and when its key is gone.
func TestWait(t *testing.T) {
	onLine(t, func(b *bench) {
		r := b.enter(1, "l/1", 1)
		wantTicket(t, r, 1, pb.Ticket_STATE_READY)
		if !r.GetTxn().Succeeded || len(r.GetTxn().Responses) != 1 {
			t.Errorf("response %v", r)
		}
		wantTicket(t, b.enter(2, "l/2", 2), 2, pb.Ticket_STATE_WAITING)
		wantTicket(t, b.enter(3, "l/3", 3), 3, pb.Ticket_STATE_WAITING)
		b.pass(time.Minute) // longer than requests wait
		b.apply(&fsm.Revoke{ID: 1})
		b.node.hub.Distribute()
		at := b.node.View().KV.Revision()
		for _, r := range b.got() {
			if r.Id == 1 {
				ticket := wantTicket(t, r, 1, pb.Ticket_STATE_GONE)
				if ticket.Cause != pb.Event_CAUSE_REVOKED || ticket.Lease != 1 {
					t.Errorf("gone: %v", ticket)
				}
				continue
			}
			ticket := wantTicket(t, r, 2, pb.Ticket_STATE_READY)
			if string(ticket.PreviousKey) != "l/1" || r.GetTxn().GetHeader().GetRevision() != at {
				t.Errorf("come: %v", r)
			}
		}
		// Both keys are deleted before anything is sent, so no waiter is notified.
		b.apply(&fsm.DeleteRange{Key: "l/2"})
		b.apply(&fsm.DeleteRange{Key: "l/3"})
		b.node.hub.Distribute()
		for i, r := range b.got() {
			wantTicket(t, r, uint64(i+2), pb.Ticket_STATE_GONE)
		}
		if s := b.node.queues.Stats(); s.Waiting != 0 {
			t.Errorf("left behind: %+v", s)
		}
		b.send(&pb.Request{Id: 9, Body: &pb.Request_Cancel{Cancel: 3}})
		b.pass(time.Second)
		if list := b.got(); len(list) > 0 {
			t.Errorf("after the end: %v", list)
		}
	})
}

// TestWaitCancel checks that a cancellation ends the wait, both before and after the response. The
// last response comes with the next message or shortly afterward.
func TestWaitCancel(t *testing.T) {
	onLine(t, func(b *bench) {
		wantTicket(t, b.enter(1, "l/1", 1), 1, pb.Ticket_STATE_READY)
		wantTicket(t, b.enter(2, "l/2", 2), 2, pb.Ticket_STATE_WAITING)
		b.send(&pb.Request{Id: 3, Body: &pb.Request_Cancel{Cancel: 2}}, putRequest(4, 0))
		if list := b.got(); len(list) > 0 {
			t.Errorf("for itself: %v", list)
		}
		b.answer()
		list := b.got()
		if len(list) != 2 || list[0].Id != 4 || list[1].Id != 2 || list[1].More {
			t.Errorf("responses %v", list)
		}
		b.send(&pb.Request{Id: 5, Body: &pb.Request_Cancel{Cancel: 1}})
		b.pass(2 * lookEvery)
		if r := b.only(); r.Id != 1 || r.More || r.Body != nil {
			t.Errorf("response %v", r)
		}
		b.send(enterRequest(6, "l/3", 3))
		b.send(&pb.Request{Id: 7, Body: &pb.Request_Cancel{Cancel: 6}})
		b.wantError(6, pb.Reason_REASON_UNKNOWN_OUTCOME)
		b.answer()
		if list := b.got(); len(list) > 0 {
			t.Errorf("late: %v", list)
		}
		if s := b.node.queues.Stats(); s.Waiting != 0 {
			t.Errorf("left behind: %+v", s)
		}
	})
}

// stall blocks the stream while it sends the response to a put, until release is called.
func (b *bench) stall(id uint64) {
	b.t.Helper()
	b.send(putRequest(id, 0))
	for len(b.answers) < cap(b.answers) {
		b.answers <- &pb.ServerMessage{}
	}
	b.answer()
	synctest.Wait()
}

// release ends a stall and returns the responses that follow.
func (b *bench) release() []*pb.Response { return append(b.got(), b.got()...) }

func cancelRequest(id, of uint64) *pb.Request {
	return &pb.Request{Id: id, Body: &pb.Request_Cancel{Cancel: of}}
}

// TestWaitCancelRace checks that a cancellation between the transaction and its response ends the
// wait, and that nothing is sent after the final response.
func TestWaitCancelRace(t *testing.T) {
	onLine(t, func(b *bench) {
		wantTicket(t, b.enter(1, "l/1", 1), 1, pb.Ticket_STATE_READY)
		b.send(enterRequest(2, "l/2", 2), enterRequest(3, "l/3", 3))
		two, three := b.node.submitted[1], b.node.submitted[2]
		b.stall(4)
		res := b.apply(two.Command)
		b.node.hub.Distribute()
		two.To.Answered(res, nil)
		// Starting the wait of request 3 reveals that request 2 is ready.
		b.apply(&fsm.DeleteRange{Key: "l/1"})
		three.To.Answered(b.apply(three.Command), nil)
		b.send(cancelRequest(5, 2))
		var of2 []*pb.Response
		for _, r := range b.release() {
			if r.Id == 2 {
				of2 = append(of2, r)
			}
		}
		b.pass(time.Second)
		if len(of2) != 2 || b.got() != nil {
			t.Fatalf("responses %v", of2)
		}
		wantTicket(t, of2[0], 2, pb.Ticket_STATE_WAITING)
		if of2[1].More || of2[1].GetError() == nil {
			t.Errorf("response %v", of2[1])
		}
		if s := b.node.queues.Stats(); s.Waiting != 1 {
			t.Errorf("waiting: %+v", s)
		}
	})
}

// TestWaitCancelRepeated checks the same for a repeated transaction that has renewed its earlier
// grant.
func TestWaitCancelRepeated(t *testing.T) {
	onLine(t, func(b *bench) {
		r := enterRequest(1, "l/1", 1)
		r.GetTxn().Success = append(r.GetTxn().Success, &pb.Op{Op: &pb.Op_Grant{
			Grant: &pb.GrantRequest{Id: 77, TtlMs: 1000},
		}})
		b.send(r)
		res := b.apply(b.node.submitted[0].Command)
		res.Repeated = true
		b.node.submitted[0].To.Answered(res, nil)
		synctest.Wait()
		b.stall(2)
		b.node.renewals[0].Owner.(RenewedAll).RenewedOne(0, 900, nil)
		b.send(cancelRequest(3, 1))
		b.release()
		b.pass(time.Second)
		if s := b.node.queues.Stats(); s.Waiting != 0 {
			t.Errorf("waiting: %+v", s)
		}
	})
}

// TestWaitNotNeeded checks that a transaction does not wait if its conditions do not hold or its
// key is not in the wait queue.
func TestWaitNotNeeded(t *testing.T) {
	onLine(t, func(b *bench) {
		wantTicket(t, b.enter(1, "l/1", 1), 1, pb.Ticket_STATE_READY)
		r := b.enter(2, "l/1", 1)
		if r.More || r.GetTxn().GetSucceeded() || r.GetTxn().GetTicket() != nil {
			t.Errorf("the conditions do not hold: %v", r)
		}
		r = b.enter(3, "l/2", 0) // without a lease
		if r.More || !r.GetTxn().GetSucceeded() || r.GetTxn().GetTicket() != nil {
			t.Errorf("not in the queue: %v", r)
		}
		// The key is gone by the time the response is built.
		b.send(enterRequest(4, "l/3", 3))
		last := b.node.submitted[len(b.node.submitted)-1]
		res := b.apply(last.Command)
		b.apply(&fsm.Revoke{ID: 3})
		last.To.Answered(res, nil)
		ticket := wantTicket(t, b.only(), 4, pb.Ticket_STATE_GONE)
		if ticket.Cause != pb.Event_CAUSE_REVOKED {
			t.Errorf("gone: %v", ticket)
		}
		// A repeated request returns the first response and waits.
		b.send(enterRequest(5, "l/2", 2))
		b.apply(&fsm.DeleteRange{Key: "l/2"})
		last = b.node.submitted[len(b.node.submitted)-1]
		res = b.apply(last.Command)
		b.apply(&fsm.Put{Key: "later"})
		res.Repeated = true
		last.To.Answered(res, nil)
		r = b.only()
		wantTicket(t, r, 5, pb.Ticket_STATE_WAITING)
		if r.GetTxn().GetHeader().GetRevision() != res.Revision {
			t.Errorf("repeated: %v", r)
		}
	})
}

// TestWaitRefused checks that a request that cannot wait is rejected without effect.
func TestWaitRefused(t *testing.T) {
	onLine(t, func(b *bench) {
		id := uint64(0)
		refused := func(change func(*pb.TxnRequest)) {
			t.Helper()
			id++
			r := enterRequest(id, "l/1", 1)
			change(r.GetTxn())
			b.send(r)
			b.wantError(id, pb.Reason_REASON_INVALID)
		}
		refused(func(r *pb.TxnRequest) { r.Wait.Prefix = nil })
		refused(func(r *pb.TxnRequest) { r.Wait.Prefix = []byte("l/1") })
		refused(func(r *pb.TxnRequest) { r.Wait.Prefix = []byte("m/") })
		refused(func(r *pb.TxnRequest) { r.Wait.Key = []byte("l/x") })
		refused(func(r *pb.TxnRequest) { r.Wait.Key = nil })
		refused(func(r *pb.TxnRequest) { r.Wait.Permits = -1 })
		refused(func(r *pb.TxnRequest) {
			inner := enterRequest(1, "l/1", 1).GetTxn()
			r.Success = append(r.Success, &pb.Op{Op: &pb.Op_Txn{Txn: inner}})
		})
		s := unary{&store{leases: service(b.node, Options{}).leases, node: b.node}}
		if _, err := s.Txn(t.Context(), enterRequest(1, "l/1", 1).GetTxn()); err == nil {
			t.Error("a unary transaction may wait")
		}
		if len(b.node.submitted) > 0 {
			t.Error("a request had an effect")
		}
	})
}

// TestWaitAgain covers a waiter that asks again about a key that has since been deleted or put
// again. The response says what deleted the waiter's key, or that the cause is unknown.
func TestWaitAgain(t *testing.T) {
	onLine(t, func(b *bench) {
		ticket := wantTicket(t, b.enter(1, "l/1", 1), 1, pb.Ticket_STATE_READY)
		id := uint64(2)
		again := func(made int64) *pb.Response {
			b.send(&pb.Request{Id: id, Body: &pb.Request_Txn{Txn: &pb.TxnRequest{
				Compare: []*pb.Compare{{
					Key: []byte("l/1"), Target: &pb.Compare_CreateRevision{CreateRevision: made},
				}},
				Wait: &pb.Wait{Key: []byte("l/1"), Prefix: []byte("l/")},
			}}})
			id++
			b.node.submitted[len(b.node.submitted)-1].To.Answered(fsm.Result{}, nil)
			r := b.only()
			if r.GetTxn() == nil || r.GetTxn().Succeeded || r.More {
				t.Fatalf("response %v", r)
			}
			return r
		}
		b.send(cancelRequest(100, 1)) // as if its stream had broken
		b.apply(&fsm.Revoke{ID: 1})
		gone := b.node.View().KV.Revision()
		b.apply(&fsm.Grant{Terms: lease.Terms{ID: 1, TTL: 100_000}})
		b.pass(2 * lookEvery)
		b.got() // the final response
		for range 3 {
			r := again(ticket.CreateRevision)
			got := wantTicket(t, r, id-1, pb.Ticket_STATE_GONE)
			if got.Cause != pb.Event_CAUSE_REVOKED || got.Lease != 1 ||
				got.CreateRevision != ticket.CreateRevision {
				t.Errorf("gone: %v", got)
			}
			// The next waiter puts the key and loses it in another way.
			b.apply(&fsm.Put{Key: "l/1", Lease: 1})
			b.apply(&fsm.DeleteRange{Key: "l/1"})
		}
		b.apply(&fsm.Put{Key: "l/1", Lease: 1})
		if r := again(0); r.GetTxn().Ticket != nil {
			t.Errorf("of no key: %v", r)
		}
		b.apply(&fsm.Compact{Revision: gone + 1})
		r := again(ticket.CreateRevision)
		got := wantTicket(t, r, id-1, pb.Ticket_STATE_GONE)
		if got.Cause != pb.Event_CAUSE_UNKNOWN || got.Lease != 0 {
			t.Errorf("no longer known: %v", got)
		}
	})
}
