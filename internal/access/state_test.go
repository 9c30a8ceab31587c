package access

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"leasehold.dev/internal/keyrange"
)

// step is a change, along with the error and the revision expected after it.
type step struct {
	name     string
	do       func(*State) (*State, error)
	err      error
	revision uint64
}

func disable(s *State) (*State, error) { return s.Disable(), nil }

// named and paired return changes that call a method with one or two arguments.
func named[A any](do func(*State, A) (*State, error), a A) func(*State) (*State, error) {
	return func(s *State) (*State, error) { return do(s, a) }
}

func paired[A, B any](
	do func(*State, A, B) (*State, error), a A, b B,
) func(*State) (*State, error) {
	return func(s *State) (*State, error) { return do(s, a, b) }
}

// add returns a change that adds a user, with or without a password.
func add(name string, noPassword bool) func(*State) (*State, error) {
	return func(s *State) (*State, error) { return s.AddUser(name, []byte{1}, noPassword) }
}

// TestChanges applies a sequence of changes. The order of checks and the revision changes match
// etcd.
func TestChanges(t *testing.T) {
	k := keyrange.Range{Key: "k"}
	var s *State
	for _, c := range []step{
		{"enable without root", (*State).Enable, ErrRootUserNotExist, 1},
		{"disable while disabled", disable, nil, 1},
		{"empty name", add("", false), ErrUserEmpty, 1},
		{"add root", add("root", false), nil, 2},
		{"add root again", add("root", true), ErrUserExists, 2},
		{"enable without the role root", (*State).Enable, ErrRootRoleNotExist, 2},
		{"grant to a missing user", paired((*State).GrantRole, "bob", "root"), ErrUserNotFound, 2},
		{"grant a missing role", paired((*State).GrantRole, "root", "r"), ErrRoleNotFound, 2},
		{"grant the role root, which does not exist", paired((*State).GrantRole, "root", "root"), nil, 3},
		{"grant it again", paired((*State).GrantRole, "root", "root"), nil, 3},
		{"enable", (*State).Enable, nil, 3},
		{"enable again", (*State).Enable, nil, 3},
		{"delete the user root", named((*State).DeleteUser, "root"), rootDeleted, 3},
		{"revoke the role root", paired((*State).RevokeRole, "root", "root"), rootRevoked, 3},
		{"delete the role root", named((*State).DeleteRole, "root"), roleDeleted, 3},
		{"delete a missing user", named((*State).DeleteUser, "bob"), ErrUserNotFound, 3},
		{"add bob", add("bob", true), nil, 4},
		{"delete a missing role", named((*State).DeleteRole, "r"), ErrRoleNotFound, 4},
		{"add a role without a name", named((*State).AddRole, ""), ErrRoleEmpty, 4},
		{"add a role", named((*State).AddRole, "r"), nil, 5},
		{"add it again", named((*State).AddRole, "r"), ErrRoleExists, 5},
		{"revoke a role that bob lacks", paired((*State).RevokeRole, "bob", "r"), ErrRoleNotGranted, 5},
		{"revoke from a missing user", paired((*State).RevokeRole, "eve", "r"), ErrUserNotFound, 5},
		{"grant bob the role", paired((*State).GrantRole, "bob", "r"), nil, 6},
		{"revoke a missing permission", paired((*State).Revoke, "r", k), ErrPermissionNotGranted, 6},
		{"permit for a missing role", paired((*State).Grant, "q", Permission{Key: "k"}), ErrRoleNotFound, 6},
		{"permit without a key", paired((*State).Grant, "r", Permission{}), noKey, 6},
		{"permit an empty range", paired((*State).Grant, "r", Permission{Read, "b", "a"}), emptyRange, 6},
		{"permit an unknown kind", paired((*State).Grant, "r", Permission{3, "k", ""}), unknownKind, 6},
		{"revoke from a missing role", paired((*State).Revoke, "q", k), ErrRoleNotFound, 6},
		{"permit reads", paired((*State).Grant, "r", Permission{Read, "k", ""}), nil, 7},
		{"permit reads again", paired((*State).Grant, "r", Permission{Read, "k", ""}), nil, 7},
		{"permit writes instead", paired((*State).Grant, "r", Permission{Write, "k", ""}), nil, 8},
		{"set the password of a missing user", paired((*State).SetPassword, "eve", nil), ErrUserNotFound, 8},
		{"set bob's password", paired((*State).SetPassword, "bob", []byte{3}), nil, 9},
		{"set root's password", paired((*State).SetPassword, "root", []byte{4}), nil, 10},
		{"disable", disable, nil, 11},
		{"revoke the role root while disabled", paired((*State).RevokeRole, "root", "root"), nil, 12},
		{"delete root while disabled", named((*State).DeleteUser, "root"), nil, 13},
	} {
		before, copied := s, *s.orEmpty()
		after, err := c.do(s)
		if !errors.Is(err, c.err) || (c.err == nil) != (err == nil) {
			t.Errorf("%s: error %v, want %v", c.name, err, c.err)
		}
		if why := change(""); errors.As(err, &why) && !errors.Is(err, ErrInvalidAuthMgmt) {
			t.Errorf("%s: %v does not wrap ErrInvalidAuthMgmt", c.name, err)
		}
		if after.Revision() != c.revision {
			t.Errorf("%s: revision %d, want %d", c.name, after.Revision(), c.revision)
		}
		if err != nil && after != before {
			t.Errorf("%s: failed, but returned another state", c.name)
		}
		if before != nil && !reflect.DeepEqual(*before, copied) {
			t.Errorf("%s: the old state changed", c.name)
		}
		s = after
	}
	if u, ok := s.User("bob"); !ok || u.Hash != nil || !slices.Equal(u.Roles, []string{"r"}) {
		t.Errorf("bob is %+v, %v", u, ok)
	}
	if r, _ := s.Role("r"); !slices.Equal(r.Permissions, []Permission{{Write, "k", ""}}) {
		t.Errorf("the role r is %+v", r)
	}
	if s, _ = s.DeleteRole("r"); len(userOf(s, "bob").Roles) != 0 {
		t.Errorf("bob is %+v after the role was deleted", userOf(s, "bob"))
	}
}

func userOf(s *State, name string) User {
	u, _ := s.User(name)
	return u
}

// remade returns a newly built state with the same users and roles.
func remade(s *State) *State {
	var users []User
	for _, name := range s.Users() {
		users = append(users, userOf(s, name))
	}
	var roles []Role
	for _, name := range s.Roles() {
		r, _ := s.Role(name)
		roles = append(roles, r)
	}
	return New(s.Enabled(), s.Revision(), users, roles)
}

// TestBytes fills and empties a state, and checks that its size always matches its contents.
func TestBytes(t *testing.T) {
	var s *State
	made := func(changed *State, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		s = changed
		if again := remade(s); again.Bytes() != s.Bytes() {
			t.Fatalf("rebuilt state has %d bytes, but the original %d", again.Bytes(), s.Bytes())
		}
	}
	made(s.AddUser("u", make([]byte, 60), false))
	made(s.AddRole("r"))
	made(s.GrantRole("u", "r"))
	made(s.Grant("r", Permission{Read, "a", "b"}))
	made(s.SetPassword("u", make([]byte, 70)))
	if least := int64(userBytes + roleBytes + permissionBytes + 70); s.Bytes() < least {
		t.Errorf("%d bytes, want at least %d", s.Bytes(), least)
	}
	made(s.DeleteRole("r"))
	made(s.DeleteUser("u"))
	if s.Bytes() != 0 {
		t.Errorf("an empty state has %d bytes", s.Bytes())
	}
}

// names lists short keys, so that random ranges are often adjacent.
var names = []string{"", "\x00", "a", "a\x00", "a\x00\x00", "b", "bb", "c", "d"}

func anyRange(r *rand.Rand) keyrange.Range {
	ends := append([]string{keyrange.NoEnd}, names...)
	return keyrange.Range{Key: names[r.IntN(len(names))], End: ends[r.IntN(len(ends))]}
}

// TestCheckKeyByKey compares Check with its definition: each key of the range must be covered by a
// permission of one of the user's roles. It tests every key at which two ranges could differ.
func TestCheckKeyByKey(t *testing.T) {
	var keys []string
	for _, n := range names {
		keys = append(keys, n, n+"\x00", n+"\x00\x00", n+"\x01", n+"z")
	}
	r := rand.New(rand.NewPCG(1, 2))
	allowed := 0
	for range 20_000 {
		s, _ := New(true, 1, nil, nil).AddUser("u", nil, false)
		var all []Permission
		for i := range 1 + r.IntN(3) {
			name := "r" + strconv.Itoa(i)
			s, _ = s.AddRole(name)
			has := r.IntN(4) > 0
			if has {
				s, _ = s.GrantRole("u", name)
			}
			for range r.IntN(4) {
				of := anyRange(r)
				s, _ = s.Grant(name, Permission{Kind(r.IntN(3)), of.Key, of.End})
			}
			if role, _ := s.Role(name); has {
				all = append(all, role.Permissions...)
			}
		}
		of, what := anyRange(r), Kind(r.IntN(2))
		want := true
		for _, k := range keys {
			in := of.Contains(k) || of.Empty() && k == of.Key
			want = want && (!in || slices.ContainsFunc(all, func(p Permission) bool {
				return (p.Kind == what || p.Kind == ReadWrite) && p.Range().Contains(k)
			}))
		}
		err := s.Check(Caller{User: "u", Revision: s.Revision()}, what, of)
		if (err == nil) != want || err != nil && !errors.Is(err, ErrPermissionDenied) {
			t.Fatalf("%v of %q with %q: %v, allowed should be %v", what, of, all, err, want)
		}
		if want {
			allowed++
		}
	}
	if allowed < 1_000 || allowed > 19_000 {
		t.Errorf("%d of 20,000 are allowed: the test covers too little", allowed)
	}
}

// TestCallers checks access to one key for each type of caller.
func TestCallers(t *testing.T) {
	all := []User{{Name: "bob", Roles: []string{"gone", "r"}}, {Name: "root", Roles: []string{"root"}}}
	k := keyrange.Range{Key: "k"}
	roles := []Role{{"r", []Permission{{ReadWrite, "k", ""}}}}
	on, off := New(true, 5, all, roles), New(false, 5, all, roles)
	other := keyrange.Range{Key: "l"}
	for _, c := range []struct {
		caller                   Caller
		check, other, known, ask error
	}{
		{Caller{}, ErrUserEmpty, ErrUserEmpty, ErrUserEmpty, ErrUserEmpty},
		{InvalidLogin, ErrInvalidLogin, ErrInvalidLogin, ErrInvalidLogin, ErrInvalidLogin},
		{Caller{User: "bob", Revision: 5}, nil, ErrPermissionDenied, nil, ErrPermissionDenied},
		{Caller{User: "bob", Revision: 6}, nil, ErrPermissionDenied, nil, ErrPermissionDenied},
		{
			Caller{User: "bob", Revision: 4},
			ErrOldRevision, ErrOldRevision, ErrOldRevision, ErrPermissionDenied,
		},
		{
			Caller{User: "eve", Revision: 5},
			ErrPermissionDenied, ErrPermissionDenied, ErrPermissionDenied,
			ErrUserNotFound,
		},
		{Caller{User: "root", Revision: 5}, nil, nil, nil, nil},
		{Caller{User: "root", Revision: 4}, ErrOldRevision, ErrOldRevision, ErrOldRevision, nil},
	} {
		got := []error{
			on.Check(c.caller, Write, k), on.Check(c.caller, Read, other), on.CheckKnown(c.caller),
			on.CheckRoot(c.caller),
		}
		if want := []error{c.check, c.other, c.known, c.ask}; !slices.EqualFunc(got, want, errors.Is) {
			t.Errorf("%+v: got %v, want %v", c.caller, got, want)
		}
		for _, s := range []*State{nil, off} {
			if err := errors.Join(
				s.Check(c.caller, Write, k), s.CheckKnown(c.caller), s.CheckRoot(c.caller),
			); err != nil {
				t.Errorf("%+v is denied without access control: %v", c.caller, err)
			}
		}
	}
}
