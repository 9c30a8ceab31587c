package access

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"leasehold.dev/internal/keyrange"
	"leasehold.dev/test/tier"
)

// A world consists of a lease and a caller with a single permission.
type world struct {
	root, bound bool
	has         Kind // the permission on all names that begin with n; Read stands for none
	lease       Lease
}

// worlds returns all combinations that affect decisions.
func worlds() (all []world) {
	for _, root := range []bool{false, true} {
		for _, bound := range []bool{false, true} {
			for _, has := range []Kind{Read, See, Hold, Manage} {
				for _, name := range []string{"", "name", "other"} {
					for _, principal := range []string{"", "me", "you"} {
						all = append(all, world{root, bound, has, Lease{name, principal}})
					}
				}
			}
		}
	}
	return all
}

// state returns the state and the caller of the world.
func (w world) state() (*State, Caller) {
	roles := []string{"r"}
	if w.root {
		roles = append(roles, Root)
	}
	users := []User{{Name: "you"}}
	me := Caller{User: "me", Revision: 1, Bound: &Bound{roles}}
	if !w.bound {
		users = append(users, User{Name: "me", Roles: roles})
		me.Bound = nil
	}
	return New(true, 1, users, []Role{{"r", []Permission{{w.has, "n", "o"}}}}), me
}

// may applies the rule for permissions on names: each kind includes all earlier kinds.
func (w world) may(what Kind) bool {
	named := strings.HasPrefix(w.lease.Name, "n")
	return w.root || named && w.has != Read && what <= w.has
}

// TestLeaseRules checks the documented rules for seeing, holding and granting leases, for
// users and other callers. An error discloses the name of a lease only to a caller that sent the
// name or may see it.
func TestLeaseRules(t *testing.T) {
	for _, w := range worlds() {
		s, me := w.state()
		name, own := w.lease.Name, w.lease.Principal == "me"
		self := own || w.lease.Principal == "" // no other principal owns the lease
		sees := own || w.may(See)
		holds := w.root || own && name == "" || own && w.may(Hold) || !own && w.may(Manage)
		granted := w.root || self && name == "" || self && w.may(Hold) || w.may(Manage)
		for _, x := range []struct {
			what      string
			err       error
			want      bool
			saysNames bool
		}{
			{"see", s.CheckLease(me, See, w.lease), sees, sees},
			{"hold", s.CheckLease(me, Hold, w.lease), holds, sees},
			{"see, named", s.CheckNamed(me, See, w.lease), sees, true},
			{"hold, named", s.CheckNamed(me, Hold, w.lease), holds, true},
			{"grant", s.CheckGrant(me, w.lease), granted, true},
		} {
			if (x.err == nil) != x.want {
				t.Errorf("%+v: %s: %v, allowed should be %v", w, x.what, x.err, x.want)
			}
			if x.err == nil {
				continue
			}
			if !errors.Is(x.err, ErrPermissionDenied) {
				t.Errorf("%+v: %s: %v", w, x.what, x.err)
			}
			msg := x.err.Error()
			if name == "" && x.what != "grant" && !strings.Contains(msg, "is not yours") {
				t.Errorf("%+v: %s: %v", w, x.what, x.err)
			}
			if says := strings.Contains(msg, name); name != "" && says != x.saysNames {
				t.Errorf("%+v: %s: %v: discloses the name: %v", w, x.what, x.err, says)
			}
		}
		keeps := !w.bound && (w.root || name == "" || w.may(Hold))
		if got := s.MayHold("me", name); got != keeps {
			t.Errorf("%+v: MayHold: %v", w, got)
		}
	}
}

// TestNothingIsRefusedWithoutAccessControl checks that every request is permitted while access
// control is disabled.
func TestNothingIsRefusedWithoutAccessControl(t *testing.T) {
	for _, w := range worlds() {
		s, me := w.state()
		for _, s := range []*State{nil, s.Disable()} {
			for _, c := range []Caller{me, {}, {User: "me"}} {
				err := errors.Join(
					s.CheckLease(c, Hold, w.lease), s.CheckNamed(c, See, w.lease),
					s.CheckGrant(c, w.lease), s.CheckRelay(c), s.CheckRoot(c),
					s.Check(c, Write, keyrange.All))
				if err != nil || !s.IsRoot(c) || !s.MayHold(c.User, w.lease.Name) ||
					s.Limit(c, Leases) != 0 {
					t.Errorf("%+v, %+v: %v, root %v", w, c, err, s.IsRoot(c))
				}
			}
		}
	}
}

// text formats everything in a state.
func text(s *State) string {
	var b strings.Builder
	for _, name := range s.Users() {
		fmt.Fprintf(&b, "%+v\n", userOf(s, name))
	}
	for _, name := range s.Roles() {
		r, _ := s.Role(name)
		fmt.Fprintf(&b, "%+v\n", r)
	}
	for _, of := range s.LimitHolders() {
		l := s.Limits(of)
		fmt.Fprintf(&b, "%+v %v\n", of, l.Changes())
	}
	fmt.Fprintf(&b, "%v %d %d\n", s.Enabled(), s.Revision(), s.Bytes())
	return b.String()
}

// anyChange attempts a random change. Many attempts fail because there are only a few names.
func anyChange(r *rand.Rand, s *State) (*State, error) {
	name := func() string { return []string{"", "root", "a", "b"}[r.IntN(4)] }
	of := anyRange(r)
	switch r.IntN(12) {
	case 0:
		return s.AddUser(name(), []byte("12"), r.IntN(2) == 0)
	case 1:
		return s.DeleteUser(name())
	case 2:
		return s.SetPassword(name(), make([]byte, r.IntN(3)))
	case 3, 4:
		return s.GrantRole(name(), name())
	case 5:
		return s.RevokeRole(name(), name())
	case 6:
		return s.AddRole(name())
	case 7:
		return s.DeleteRole(name())
	case 8:
		kinds := []Kind{Read, Write, ReadWrite, 3, See, Hold, Manage, Manage + 1}
		return s.Grant(name(), Permission{kinds[r.IntN(len(kinds))], of.Key, of.End})
	case 9:
		return s.Revoke(name(), of)
	case 10:
		list := []LimitChange{{Resource(r.IntN(Resources + 1)), r.Int64N(4) - 2}}
		return s.SetLimits(Holder{HolderKind(r.IntN(4)), name()}, list)
	}
	if r.IntN(2) == 0 {
		return s.Disable(), nil
	}
	return s.Enable()
}

// TestRandomChanges makes random changes using only a few names, and checks that no change alters
// the state that it started from. A state is immutable, and a failed change returns the old one.
// Each state is consistent: users have existing, sorted roles; limits belong to existing users and
// roles; the size matches the contents; and while access control is enabled, root can disable it.
func TestRandomChanges(t *testing.T) {
	refused, changed := 0, 0
	for seed := range uint64(tier.Budget(15, 60)) {
		r := rand.New(rand.NewPCG(seed, 4))
		var s *State
		for range 120 {
			before, was := s, text(s)
			after, err := anyChange(r, s)
			switch {
			case text(before) != was:
				t.Fatalf("seed %d: the old state changed from\n%s to\n%s", seed, was, text(before))
			case err != nil && after != before:
				t.Fatalf("seed %d: failed (%v), but returned another state", seed, err)
			case err == nil && after != before && text(after) == was && after.Enabled():
				t.Fatalf("seed %d: returned another, equal state\n%s", seed, was)
			case err != nil:
				refused++
			default:
				changed++
			}
			s = after
			inOrder(t, seed, s)
		}
	}
	if refused < 300 || changed < 300 {
		t.Errorf("%d changes failed, %d did not: the test covers too little", refused, changed)
	}
}

// inOrder checks the invariants of a state.
func inOrder(t *testing.T, seed uint64, s *State) {
	t.Helper()
	again := remade(s)
	for _, of := range s.LimitHolders() {
		_, user := s.User(of.Name)
		_, role := s.Role(of.Name)
		if of.Kind == OfUser && !user || of.Kind == OfRole && !role {
			t.Fatalf("seed %d: limits of %+v, which does not exist", seed, of)
		}
		limits := s.Limits(of)
		again, _ = again.SetLimits(of, limits.Changes())
	}
	if text(again) != text(s) {
		t.Fatalf("seed %d: rebuilt state is\n%s, want\n%s", seed, text(again), text(s))
	}
	for _, name := range s.Users() {
		u := userOf(s, name)
		if !slices.IsSorted(u.Roles) || len(slices.Compact(slices.Clone(u.Roles))) != len(u.Roles) {
			t.Fatalf("seed %d: %+v: roles are not sorted or not unique", seed, u)
		}
		for _, role := range u.Roles {
			if _, ok := s.Role(role); !ok && role != Root {
				t.Fatalf("seed %d: %+v has a role that does not exist", seed, u)
			}
		}
		if u.NoPassword && u.Hash != nil {
			t.Fatalf("seed %d: %+v has a password, but should not", seed, u)
		}
	}
	if s.Enabled() && !s.IsRoot(Caller{User: Root}) {
		t.Fatalf("seed %d: root cannot disable access control\n%s", seed, text(s))
	}
}
