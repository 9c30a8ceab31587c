package native

import (
	"runtime"
	"testing"
	"weak"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// TestIdleRenewableKeepsNoUsers checks that a stream that is idle while users change does not keep
// the old users in memory.
func TestIdleRenewableKeepsNoUsers(t *testing.T) {
	r := new(renewable)
	known := func() weak.Pointer[access.State] {
		s := access.New(true, 5, []access.User{{Name: "alice"}}, nil)
		a := asker{fsm.Asker{By: s, Who: access.Caller{User: "alice", Revision: 5}}}
		ids, tokens := []lease.ID{1}, []lease.Token{7}
		if places := r.unknown(a, ids, tokens); len(places) != 1 {
			t.Errorf("unknown are %v", places)
		}
		r.add(a, 1, 7)
		if places := r.unknown(a, ids, tokens); len(places) != 0 {
			t.Errorf("still unknown are %v", places)
		}
		return weak.Make(s)
	}
	before := known()
	for range 10 {
		if runtime.GC(); before.Value() == nil {
			break
		}
	}
	if before.Value() != nil {
		t.Error("the old users are still in memory")
	}
	runtime.KeepAlive(r)
}
