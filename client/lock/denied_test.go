package lock_test

import (
	"errors"
	"sync"
	"testing"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/client/lock"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
)

// TestWaitDenied checks a session that loses permission to read a queue after it has entered the
// queue and before it waits. It gets a permission error and leaves no key that would block others.
func TestWaitDenied(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		direct := members.connect(t)
		b := &rig.Between{Seen: func(r *pb.Response) {
			if m := r.GetTxn(); m.GetTicket() != nil {
				m.WaitRefused = &pb.Error{Reason: pb.Reason_REASON_PERMISSION_DENIED}
				m.Ticket, r.More = nil, false
			}
		}}
		s := session(t, b.Serve(t, members[0]))
		ctx := rig.Soon(t)
		if _, err := lock.NewMutex(s, "denied").Lock(ctx); !errors.Is(err, client.ErrPermissionDenied) {
			t.Errorf("lock: %v", err)
		}
		rig.Keys(t, direct, "denied/", 0)
		election := lock.NewElection(direct, "denied")
		_, err := election.Campaign(ctx, s, lock.Candidate{ID: "a"})
		if !errors.Is(err, client.ErrPermissionDenied) {
			t.Errorf("campaign: %v", err)
		}
		rig.Keys(t, direct, "denied~candidates/", 0)
	})
}

// TestDeniedLater checks that a waiter that loses permission to read the queue gets a permission
// error, and that its key is deleted.
func TestDeniedLater(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		direct, ctx := members.connect(t), rig.Soon(t)
		held := rig.Must[*lock.Held](t)(lock.NewMutex(session(t, direct), "m").Lock(ctx))
		enters := make(chan struct{})
		entered := sync.OnceFunc(func() { close(enters) }) // called again on a new stream
		b := &rig.Between{Seen: func(r *pb.Response) {
			switch r.GetTxn().GetTicket().GetState() {
			case pb.Ticket_STATE_WAITING:
				entered()
			case pb.Ticket_STATE_READY:
				r.Body, r.More = rig.Refused(1).Body, false
			}
		}}
		s := session(t, b.Serve(t, members[0]))
		waits := rig.Async(func() (*lock.Held, error) { return lock.NewMutex(s, "m").Lock(ctx) })
		<-enters
		if err := held.Release(ctx); err != nil {
			t.Fatal(err)
		}
		if a := <-waits; !errors.Is(a.Err, client.ErrPermissionDenied) {
			t.Errorf("Lock: %v, want permission denied", a.Err)
		}
		rig.Keys(t, direct, "m/", 0)
	})
}
