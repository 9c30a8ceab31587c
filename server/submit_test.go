package server

import (
	"errors"
	"reflect"
	"testing"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/api/native"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
	"leasehold.dev/test/virtual"
)

// fullTenant runs a member with a user whose limit is one lease. The user holds lease 1, and a
// second grant was rejected.
func fullTenant(t *testing.T) (
	r *running, grant func(lease.ID) fsm.Command, revoke func(lease.ID),
) {
	t.Helper()
	cfg, _ := traced(cheapConfig(shortDir(t)), true)
	r = run(t, cfg)
	withUsers(t, r)
	r.asRoot(t, &fsm.UserAdd{Name: "tenant", NoPassword: true})
	r.asRoot(t, &fsm.SetLimits{
		Of:   access.Holder{Kind: access.OfUser, Name: "tenant"},
		List: []access.LimitChange{{What: access.Leases, Most: 1}},
	})
	who := access.Caller{User: "tenant", Revision: r.node.View().Access.Revision()}
	ctx := api.WithCaller(t.Context(), who)
	grant = func(id lease.ID) fsm.Command {
		return fsm.OnBehalf(who, &fsm.Grant{Terms: lease.Terms{ID: id, TTL: 60_000}})
	}
	for _, id := range []lease.ID{1, 2} {
		res, err := r.node.order(t.Context(), grant(id))
		if errors.Join(err, res.Err) != nil != (id == 2) {
			t.Fatal(id, res.Err, err)
		}
	}
	return r, grant, func(id lease.ID) {
		t.Helper()
		res, err := r.node.Propose(ctx, &fsm.Revoke{ID: id})
		if err := errors.Join(err, res.Err); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSubmissionsLeaveNothing checks that reused memory keeps nothing of an earlier request,
// however that request was answered. It does not run in parallel with other tests, because all of
// them share this memory.
func TestSubmissionsLeaveNothing(t *testing.T) {
	r, grant, revoke := fullTenant(t)
	for _, c := range []struct {
		name    string
		cmd     fsm.Command
		refusal error
		room    bool // an earlier lease is revoked first
	}{
		{name: "a read"},
		{name: "a refusal by a limit", cmd: grant(2)},
		{name: "a refusal", cmd: grant(2), refusal: fsm.ErrNoSpace},
		{name: "a grant", cmd: grant(2), room: true},
	} {
		if c.room {
			revoke(c.cmd.(*fsm.By).Command.(*fsm.Grant).Terms.ID - 1)
		}
		b, to := r.node.newSubmission(1), make(answered, 1)
		call := r.core.tracer.Request(&pb.Request{Body: &pb.Request_Put{}})
		b.add(native.Submission{Command: c.cmd, To: to, Trace: call}, c.refusal)
		if err := r.node.inbox.submit(b); err != nil {
			t.Fatal(c.name, err)
		}
		if err := <-to; (err == nil) != (c.cmd == nil || c.room) {
			t.Errorf("%s: %v", c.name, err)
		}
		left := b.all[:1][0]
		left.among = nil
		if !reflect.DeepEqual(left, submitted{}) {
			t.Errorf("%s leaves %+v", c.name, left)
		}
		call.End(nil)
	}
}

// holdCore blocks the core until letGo is called. The core then takes everything that has arrived
// in the meantime in one step.
func holdCore(r *running) (letGo func()) {
	held, hold := make(chan struct{}), make(chan struct{})
	r.node.inbox.task(func() { close(held); <-hold })
	<-held
	return func() { close(hold) }
}

// TestSubmissionsKeepTheirOrder checks that puts and transactions from one stream are applied in
// order.
func TestSubmissionsKeepTheirOrder(t *testing.T) { virtual.Test(t, testSubmissionsKeepTheirOrder) }

func testSubmissionsKeepTheirOrder(t *testing.T) {
	r := run(t, cheapConfig(shortDir(t)))
	withUsers(t, r)
	alice := access.Caller{User: "alice", Revision: r.node.View().Access.Revision()}
	put := func(value string) *fsm.Put { return &fsm.Put{Key: "a", Value: []byte(value)} }
	for _, first := range []fsm.Command{
		put("first"), &fsm.Txn{Then: []fsm.Op{{Put: put("first")}}},
	} {
		to := make(answered, 2)
		letGo := holdCore(r)
		r.node.Submit([]native.Submission{{Command: fsm.OnBehalf(alice, first), To: to}})
		r.node.Submit([]native.Submission{{Command: fsm.OnBehalf(alice, put("second")), To: to}})
		letGo()
		if err := errors.Join(<-to, <-to); err != nil {
			t.Fatal(err)
		}
		kv := r.node.View().KV.Get("a")
		if kv == nil || string(kv.Value) != "second" {
			t.Errorf("%T, then a put: %v", first, kv)
		}
	}
}
