package access

import (
	"errors"
	"slices"
	"testing"
)

// limits is a state with users and roles for testing lease limits.
type limits struct {
	t *testing.T
	*State
}

func (l *limits) do(s *State, err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
	l.State = s
}

func (l *limits) set(k HolderKind, name string, most int64) {
	l.t.Helper()
	l.do(l.SetLimits(Holder{k, name}, []LimitChange{{Leases, most}}))
}

func newLimits(t *testing.T) *limits {
	l := &limits{t: t}
	for _, name := range []string{"root", "alice", "bob"} {
		l.do(l.AddUser(name, nil, true))
	}
	for _, name := range []string{"small", "large", "free", "plain"} {
		l.do(l.AddRole(name))
	}
	l.do(l.GrantRole("root", "root"))
	l.do(l.Enable())
	return l
}

// TestWhichLimit checks the precedence of limits. A user's own limit comes first, then the largest
// limit of the user's roles, then the default. Root has no limit.
func TestWhichLimit(t *testing.T) {
	l := newLimits(t)
	alice, bob := Caller{User: "alice"}, Caller{User: "bob"}
	bound := func(roles ...string) Caller { return Caller{User: "corp:eve", Bound: &Bound{roles}} }
	want := func(what string, who Caller, most int64) {
		t.Helper()
		if got := l.Limit(who, Leases); got != most {
			t.Errorf("%s: limit %d, want %d", what, got, most)
		}
	}
	want("none set", alice, 0)
	l.set(Default, "", 5)
	l.set(OfRole, "small", 2)
	l.set(OfRole, "large", 9)
	l.set(OfRole, "free", NoLimit)
	want("default", alice, 5)
	want("root", Caller{User: "root"}, 0)
	want("the role root", bound("root"), 0)
	want("an unknown principal", Caller{User: "corp:eve"}, 5)
	for _, role := range []struct {
		name string
		most int64
	}{{"plain", 5}, {"small", 2}, {"large", 9}, {"free", 0}} {
		l.do(l.GrantRole("alice", role.name))
		want("with the role "+role.name, alice, role.most)
	}
	want("bound roles", bound("small", "large"), 9)
	l.set(OfUser, "alice", 3)
	want("her own limit", alice, 3)
	want("a bound caller with her name", Caller{User: "alice", Bound: &Bound{[]string{"large"}}}, 5)
	want("another user", bob, 5)
	if got := l.Limit(alice, LeaseKeys); got != 0 {
		t.Errorf("limit of keys on leases: %d", got)
	}
	l.do(l.Disable(), nil)
	want("disabled", alice, 0)
}

// TestLimitsEnd checks that deleting a user or role also deletes its limits, and that a new user or
// role with the same name starts without limits. Limits count toward the state's size. Changing
// them does not require clients to log in again.
func TestLimitsEnd(t *testing.T) {
	l := newLimits(t)
	bytes, revision := l.Bytes(), l.Revision()
	l.set(OfUser, "alice", 3)
	l.set(OfRole, "small", 2)
	if l.Bytes() != bytes+2*limitBytes || l.Revision() != revision {
		t.Errorf("%d bytes, revision %d, before %d and %d", l.Bytes(), l.Revision(), bytes, revision)
	}
	old := l.State
	l.set(OfUser, "alice", 0)
	if l.Bytes() != bytes+limitBytes || old.Limits(Holder{OfUser, "alice"})[Leases] != 3 {
		t.Errorf("%d bytes, before limits %d; the old state has %v", l.Bytes(), bytes,
			old.Limits(Holder{OfUser, "alice"}))
	}
	l.set(OfUser, "alice", 3)
	l.do(l.DeleteUser("alice"))
	l.do(l.DeleteRole("small"))
	l.do(l.AddUser("alice", nil, true))
	l.do(l.AddRole("small"))
	if left := l.LimitHolders(); len(left) > 0 || l.Limited() || l.Bytes() != bytes {
		t.Errorf("limits of %v are left, %d bytes, before %d", left, l.Bytes(), bytes)
	}
}

// TestBadLimits checks that invalid limits are rejected and change nothing.
func TestBadLimits(t *testing.T) {
	l := newLimits(t)
	for name, x := range map[string]struct {
		of   Holder
		list []LimitChange
		want error
	}{
		"no user":           {Holder{OfUser, "eve"}, nil, ErrUserNotFound},
		"no role":           {Holder{OfRole, "eve"}, nil, ErrRoleNotFound},
		"a named default":   {Holder{Default, "alice"}, nil, namedDefault},
		"an unknown kind":   {Holder{OfUser + 1, "alice"}, nil, unknownOwner},
		"no such resource":  {Holder{}, []LimitChange{{Resource(Resources), 1}}, unknownLimit},
		"below no limit":    {Holder{}, []LimitChange{{Leases, -2}}, belowNone},
		"one of two is bad": {Holder{}, []LimitChange{{Leases, 1}, {Bytes, -2}}, belowNone},
	} {
		s, err := l.SetLimits(x.of, x.list)
		if !errors.Is(err, x.want) || s != l.State || len(s.LimitHolders()) > 0 {
			t.Errorf("%s: error %v", name, err)
		}
	}
	l.set(OfUser, "bob", 1)
	l.set(Default, "", 1)
	l.set(OfRole, "small", 1)
	want := []Holder{{}, {OfRole, "small"}, {OfUser, "bob"}}
	if got := l.LimitHolders(); !slices.Equal(got, want) {
		t.Errorf("holders %v, want %v", got, want)
	}
}

// TestLimitTexts checks that an error message names the limit and the principal that it applies to.
// It also states the usage if the caller is permitted to see it.
func TestLimitTexts(t *testing.T) {
	for want, e := range map[string]LimitError{
		"limit on leases reached: alice may have 3, has 2 and requested 2 more": {
			"alice", Leases, 3, 2, 2,
		},
		"limit on keys attached to leases reached: alice may have 3, has 0 and requested 4 more": {
			"alice", LeaseKeys, 3, 0, 4,
		},
		"limit on leases reached: \"a b\" may have 3":                        {"a b", Leases, 3, -1, 1},
		"limit on requests per second at one member reached: bob may have 9": {"bob", Rate, 9, 9, 1},
	} {
		if got := e.Error(); got != want {
			t.Errorf("%+v: %s\nwant %s", e, got, want)
		}
	}
	if got := Resource(Resources).String(); got != "resource 4" {
		t.Errorf("an unknown resource: %s", got)
	}
}
