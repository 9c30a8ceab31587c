package server

import (
	"errors"
	"reflect"
	"testing"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/api/native"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/trace"
	"leasehold.dev/internal/trace/tracetest"
	"leasehold.dev/lease"
	"leasehold.dev/test/virtual"
)

// fullTenant runs a member with a user that may have one lease, has 1, and was refused another.
func fullTenant(t *testing.T) (
	r *running, grant func(lease.ID) fsm.Command, revoke func(lease.ID),
) {
	t.Helper()
	r = run(t, traced(t, cheapConfig(shortDir(t)), &tracetest.Collector{}))
	withUsers(t, r)
	ctx := r.tenant(t, "tenant", 0, 0)
	r.asRoot(t, &fsm.SetLimits{
		Of:   access.Holder{Kind: access.OfUser, Name: "tenant"},
		List: []access.LimitChange{{What: access.Leases, Most: 1}},
	})
	who := api.CallerOf(ctx)
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

// Goal: nothing of a request is left where another will be, whichever way it was answered. Method:
// submissions of all kinds, and their memory when they are answered. No test runs beside it, since
// all share that memory.
func TestSubmissionsLeaveNothing(t *testing.T) {
	r, grant, revoke := fullTenant(t)
	for _, c := range []struct {
		name         string
		cmd          fsm.Command
		refusal      error
		room, unsure bool // there is room, and it is not known whether there is
	}{
		{name: "a read"},
		{name: "a refusal by a limit", cmd: grant(2)},
		{name: "a refusal", cmd: grant(2), refusal: fsm.ErrNoSpace},
		{name: "a grant", cmd: grant(2), room: true},
		{name: "a grant of which a limit is unsure", cmd: grant(3), room: true, unsure: true},
	} {
		if c.room {
			revoke(c.cmd.(*fsm.By).Command.(*fsm.Grant).Terms.ID - 1)
			r.node.limits.HasRoom("tenant")
		}
		if c.unsure {
			r.node.limits.Refused(&access.LimitError{Principal: "tenant"})
		}
		b, to := r.node.newSubmission(1), make(answered, 1)
		call := r.core.tracer.sampledCall(trace.Parent{Trace: trace.NewID(1, 1)}, "/s/m")
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

// Goal: a grant for which there is room, but not in the inbox, is refused, and not forgotten.
// Method: requests that are refused at once fill the inbox between the read that finds the room and
// the proposal.
func TestRoomButNotInTheInbox(t *testing.T) { virtual.Test(t, testRoomButNotInTheInbox) }

func testRoomButNotInTheInbox(t *testing.T) {
	r, grant, revoke := fullTenant(t)
	revoke(1)
	fill := func(*lease.Lessor) {
		r.node.inbox.put(func(m *mail) {
			for len(m.Proposals) < maxQueued {
				m.Proposals = append(m.Proposals, &replica.Proposal{
					Command: &fsm.SetAlarm{Alarm: fsm.Alarm{Kind: 99}}, Owner: nobody{},
				})
			}
		})
	}
	to := make(answered, 1)
	letGo := holdCore(r)
	r.node.inbox.put(func(m *mail) {
		m.Reads = append(m.Reads, &replica.Read{Inspect: fill, Owner: nobody{}})
	})
	r.node.Submit([]native.Submission{{Command: grant(3), To: to}})
	letGo()
	if err := r.node.Confirm(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-to:
		if !errors.Is(err, api.ErrTooManyRequests) {
			t.Errorf("the grant: %v", err)
		}
	default:
		t.Error("the grant has no answer")
	}
}

// holdCore has the core wait until it is let go. It takes at once then what came meanwhile.
func holdCore(r *running) (letGo func()) {
	held, hold := make(chan struct{}), make(chan struct{})
	r.node.inbox.task(func() { close(held); <-hold })
	<-held
	return func() { close(hold) }
}

// nobody waits for a request.
type nobody struct{}

func (nobody) answered(int64) {}

// Goal: puts and transactions that come over a stream keep their order, also if a limit may refuse
// the first of them. Method: two to one key, while the core waits.
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
		r.node.limits.Refused(&access.LimitError{Principal: "alice"})
		r.node.Submit([]native.Submission{{Command: fsm.OnBehalf(alice, first), To: to}})
		r.node.limits.HasRoom("alice")
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
