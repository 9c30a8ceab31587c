package etcd

import (
	"runtime"
	"testing"
	"weak"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
)

// TestIdlePermitsKeepNoUsers checks that an idle stream does not keep the previous users and roles
// in memory after they change.
func TestIdlePermitsKeepNoUsers(t *testing.T) {
	p := &permits{}
	who := access.Caller{User: "alice", Revision: 5}
	look := func() weak.Pointer[access.State] {
		v := &fsm.View{Access: access.New(true, 5, []access.User{{Name: "alice", Roles: []string{"a"}}},
			[]access.Role{{Name: "a", Permissions: []access.Permission{
				{Kind: access.ReadWrite, Key: "a", End: "b"},
			}}})}
		ctx := api.WithCaller(t.Context(), who)
		for range 2 {
			if holder, err := p.holder(ctx, v, 1); err != nil || holder == nil || *holder != who {
				t.Errorf("the holder is %v, %v", holder, err)
			}
		}
		x := &api.Held{ID: 2, Found: true, Keys: []string{"a"}}
		if err := p.decide(fsm.Asker{By: v.Access, Who: who}, x); err != nil || !p.lookedAt(v, who, 2) {
			t.Errorf("a lease whose keys the caller may write: %v", err)
		}
		return weak.Make(v.Access)
	}
	before := look()
	for range 10 {
		if runtime.GC(); before.Value() == nil {
			break
		}
	}
	if before.Value() != nil {
		t.Error("the users of before are kept")
	}
	runtime.KeepAlive(p)
}
