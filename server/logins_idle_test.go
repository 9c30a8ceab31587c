package server

import (
	"runtime"
	"testing"
	"weak"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/fsm"
)

// A stream that was idle since users changed keeps the users of before no longer in memory: there
// may be very many streams, and very many users.
func TestIdleStreamKeepsNoUsers(t *testing.T) {
	n := &node{core: &core{}}
	s := &streamUser{logins: &logins{node: n}, name: "alice", byToken: true, hash: []byte("h")}
	users := func(revision uint64) weak.Pointer[access.State] {
		all := []access.User{{Name: "alice", Hash: []byte("h")}}
		v := &fsm.View{Access: access.New(true, revision, all, nil)}
		n.view.Store(v)
		return weak.Make(v.Access)
	}
	before := users(5)
	for range 2 {
		if got := s.Caller(); got != (access.Caller{User: "alice", Revision: 5}) {
			t.Errorf("the caller is %+v", got)
		}
	}
	users(6)
	for range 10 {
		if runtime.GC(); before.Value() == nil {
			break
		}
	}
	if before.Value() != nil {
		t.Error("the users of before are kept")
	}
	if got := s.Caller(); got != (access.Caller{User: "alice", Revision: 6}) {
		t.Errorf("the caller is %+v", got)
	}
}
