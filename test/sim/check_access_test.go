package sim

import (
	"testing"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// administered returns a history with access control. The last entry removes the permission of user
// alice to read r0; had is the last index at which she has it.
func administered(t *testing.T) (b *hand, had uint64) {
	t.Helper()
	b = newHand()
	root := access.Caller{User: access.Root, Revision: 1 << 62}
	var e *Entry
	do := func(c fsm.Command) {
		had = uint64(len(b.h.Log)) + firstIndex - 1
		e = b.entry(Time(len(b.h.Log))*Millisecond, fsm.OnBehalf(root, c))
		if err := e.Results[0].Err; err != nil {
			t.Fatal(err)
		}
		e.Callers, e.Commands[0] = []access.Caller{root}, c
		op := b.op(1, opCommand, e.At-1, e.At+1)
		op.Command, op.Caller, op.Fsm = c, root, e.Results[0]
	}
	do(&fsm.UserAdd{Name: access.Root, NoPassword: true})
	do(&fsm.UserGrantRole{User: access.Root, Role: access.Root})
	do(&fsm.UserAdd{Name: "alice", NoPassword: true})
	do(&fsm.RoleAdd{Name: "reader"})
	do(&fsm.UserGrantRole{User: "alice", Role: "reader"})
	r0 := access.Permission{Kind: access.Read, Key: "r0"}
	do(&fsm.RoleGrant{Role: "reader", Permission: r0})
	do(&fsm.AuthEnable{})
	do(&fsm.Grant{Terms: lease.Terms{ID: 7, TTL: 90_000}})
	do(&fsm.Put{Key: "r0", Lease: 7})
	do(&fsm.RoleRevoke{Role: "reader", Key: "r0"})
	return b, had
}

// aliceAt returns alice as if she had logged in at the given index.
func (b *hand) aliceAt(t *testing.T, index uint64) access.Caller {
	t.Helper()
	r := newRights()
	for _, e := range b.h.Log[:index-firstIndex+1] {
		next, err, ok := r.change(e.Commands[0])
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			r = next
		}
	}
	return access.Caller{User: "alice", Revision: r.revision}
}

// TestCheckAccess checks that A1 is judged by the state that the member was in when it answered the
// caller. It covers reads before and after alice loses a permission, reads of a key that she never
// could read, and denials.
func TestCheckAccess(t *testing.T) {
	pair := func() *mvcc.RangeResult {
		return &mvcc.RangeResult{Revision: 2, Count: 1, KVs: []*mvcc.KeyValue{{
			Key: "r0", Lease: 7, CreateRevision: 2, ModRevision: 2, Version: 1, Value: []byte{},
		}}}
	}
	delivers := func(kind opKind, key string, after uint64) func(*hand, uint64) {
		return func(b *hand, had uint64) {
			op := b.op(2, kind, 9_200, 9_500)
			op.Caller, op.AsOf = b.aliceAt(t, had+after), had+after
			op.Request.Range, op.Answer.Range = &fsm.Range{Key: key}, pair()
			op.Serializable = true
			if key != "r0" {
				op.Answer.Range = &mvcc.RangeResult{Revision: 2}
			}
			if kind == opCached && after == 0 {
				op.Start, op.End, op.Answered = 8_500, 8_900, 8_900
			}
		}
	}
	watched := func(index uint64) func(*hand, uint64) {
		return func(b *hand, had uint64) {
			b.h.Watches = append(b.h.Watches, &Watch{
				Client: 2, Caller: access.Caller{User: "alice"}, Member: 1, At: 9_100, Key: "r0", From: 3,
				Resumes: -1, Closed: 9_600,
			})
			b.h.Deliveries = append(b.h.Deliveries, Delivery{
				At: 9_500, Revision: 2, Index: had + index, Progress: true,
			})
		}
	}
	for name, x := range map[string]struct {
		add  func(b *hand, had uint64)
		want string
	}{
		"read with permission":                    {delivers(opRange, "r0", 0), ""},
		"read after losing the permission":        {delivers(opRange, "r0", 1), "A1"},
		"read without permission":                 {delivers(opRange, "r1", 0), "A1"},
		"cached read with permission":             {delivers(opCached, "r0", 0), ""},
		"cached read after losing the permission": {delivers(opCached, "r0", 1), "A1"},
		"watch with permission":                   {watched(0), ""},
		"watch after losing the permission":       {watched(1), "A1"},
		"renewal of a lease without an owner":     {renews(t), "A1"},
		"refusal despite permission":              {refuses(t, 0), "A1"},
		"refusal after losing the permission":     {refuses(t, 1), ""},
		"command executed without permission":     {does(t), "A1"},
	} {
		t.Run(name, func(t *testing.T) {
			b, had := administered(t)
			x.add(b, had)
			got := Check(b.h, handLimits).Violations
			switch {
			case x.want == "" && len(got) > 0:
				t.Errorf("%v", got)
			case x.want != "" && (len(got) == 0 || got[0].ID != x.want):
				t.Errorf("not found: %v", got)
			}
		})
	}
}

// renews has alice renew the lease of r0, a key that she is not allowed to write.
func renews(t *testing.T) func(*hand, uint64) {
	return func(b *hand, had uint64) {
		op := b.op(2, opRenew, 9_200, 9_500)
		op.Caller, op.AsOf, op.Lease, op.TTL = b.aliceAt(t, had), had, 7, 90_000
	}
}

// refuses has the cluster deny alice access to r0.
func refuses(t *testing.T, after uint64) func(*hand, uint64) {
	return func(b *hand, had uint64) {
		op := b.op(2, opRange, 9_200, 9_500)
		op.Caller, op.AsOf = b.aliceAt(t, had+after), had+after
		op.Request.Range = &fsm.Range{Key: "r0"}
		op.Outcome, op.Err = Failed, access.ErrPermissionDenied
	}
}

// does has the state machine execute a command for which alice has no permission.
func does(t *testing.T) func(*hand, uint64) {
	return func(b *hand, had uint64) {
		root := access.Caller{User: access.Root, Revision: 1 << 62}
		c := &fsm.Put{Key: "r0"}
		e := b.entry(10_000, fsm.OnBehalf(root, c))
		e.Commands[0], e.Callers = c, []access.Caller{b.aliceAt(t, had+1)}
		op := b.op(2, opCommand, 9_900, 10_100)
		op.Command, op.Caller, op.Fsm = c, e.Callers[0], e.Results[0]
	}
}
