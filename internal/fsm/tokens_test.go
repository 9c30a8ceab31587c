package fsm

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"leasehold.dev/internal/access"
)

// TestTokenKeys checks that a member's token key survives other changes and a snapshot. It is
// removed when access control is disabled.
func TestTokenKeys(t *testing.T) {
	m := tenants(t)
	for id := range uint64(3) {
		m.AddMember(Member{ID: id + 1})
	}
	for _, c := range []Command{
		&SetMember{Member{ID: 1, TokenKey: "old"}}, &SetMember{Member{ID: 1, TokenKey: "one"}},
		&SetMember{Member{ID: 2, TokenKey: "two"}}, &SetMember{Member{ID: 1, Name: "x"}},
		&RoleAdd{"more"}, &AuthEnable{},
	} {
		if !fromMembers(c) {
			c = as(m, "root", c)
		}
		mustApply(t, m, c)
	}
	want := map[uint64]string{1: "one", 2: "two", 3: ""}
	for range 2 {
		for _, m := range []*Machine{m, restored(t, m)} {
			for id, key := range want {
				if got, _ := m.View().Member(id); got.TokenKey != key {
					t.Errorf("member %d has the key %q, not %q", id, got.TokenKey, key)
				}
			}
			if m.View().Bytes != recount(m) {
				t.Errorf("%+v bytes, not %+v", m.View().Bytes, recount(m))
			}
		}
		mustApply(t, m, as(m, "root", &AuthDisable{}))
		want = map[uint64]string{1: "", 2: "", 3: ""}
	}
}

// TestOnBehalf checks that a client's command is always wrapped in By if members also issue that
// type of command themselves. StateHash is never wrapped, because no client can issue it.
func TestOnBehalf(t *testing.T) {
	for _, c := range samples() {
		if _, by := c.(*By); by || Internal(c) {
			continue
		}
		_, reported := c.(*StateHash)
		for _, who := range []access.Caller{{}, {User: "u", Revision: 1}, {Revision: 1}} {
			got := OnBehalf(who, c)
			by, wrapped := got.(*By)
			want := !reported && (who != access.Caller{} || fromMembers(c))
			if wrapped != want || wrapped && (by.Caller != who || by.Command != c) ||
				!wrapped && got != c {
				t.Errorf("%T by %+v is %T", c, who, got)
			}
		}
	}
}

// TestPermitRead checks that reads outside the log are authorized like reads in the log.
func TestPermitRead(t *testing.T) {
	m := tenants(t)
	rng := rand.New(rand.NewPCG(5, 5))
	denied := 0
	for range 20_000 {
		c := randomTree(rng, 3)
		if !c.ReadOnly() {
			continue
		}
		for _, user := range []string{"alice", "root", "", "gone"} {
			by := as(m, user, c)
			got, want := m.View().Permit(by.Caller, c), m.denied(by)
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("%+v by %q: %v, not %v", c, user, got, want)
			}
			if want != nil {
				denied++
			}
		}
	}
	if denied < 1000 {
		t.Errorf("%d are denied: the test tells little", denied)
	}
	mustApply(t, m, as(m, "root", &AuthDisable{}))
	if err := m.View().Permit(access.Caller{}, &Txn{Compare: []Compare{{Key: "c"}}}); err != nil {
		t.Error(err)
	}
}
