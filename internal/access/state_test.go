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

// step is a change, what comes of it, and the revision after it.
type step struct {
	name     string
	do       func(*State) (*State, error)
	err      error
	revision uint64
}

func disable(s *State) (*State, error) { return s.Disable(), nil }

// named and paired return a change by a method with one or two arguments.
func named[A any](do func(*State, A) (*State, error), a A) func(*State) (*State, error) {
	return func(s *State) (*State, error) { return do(s, a) }
}

func paired[A, B any](
	do func(*State, A, B) (*State, error), a A, b B,
) func(*State) (*State, error) {
	return func(s *State) (*State, error) { return do(s, a, b) }
}

// add returns a change that adds a user, with a hash unless it is to have no password.
func add(name string, noPassword bool) func(*State) (*State, error) {
	return func(s *State) (*State, error) { return s.AddUser(name, []byte{1}, noPassword) }
}

// TestChanges makes one change after another. The order of the refusals and which changes count
// are etcd's.
func TestChanges(t *testing.T) {
	k := keyrange.Range{Key: "k"}
	var s *State
	for _, c := range []step{
		{"enable without root", (*State).Enable, ErrRootUserNotExist, 1},
		{"disable what is not enabled", disable, nil, 1},
		{"no name", add("", false), ErrUserEmpty, 1},
		{"add root", add("root", false), nil, 2},
		{"twice", add("root", true), ErrUserExists, 2},
		{"root without its role", (*State).Enable, ErrRootRoleNotExist, 2},
		{"no user", paired((*State).GrantRole, "bob", "root"), ErrUserNotFound, 2},
		{"no role", paired((*State).GrantRole, "root", "r"), ErrRoleNotFound, 2},
		{"the role root needs not be there", paired((*State).GrantRole, "root", "root"), nil, 3},
		{"again", paired((*State).GrantRole, "root", "root"), nil, 3},
		{"enable", (*State).Enable, nil, 3},
		{"enable again", (*State).Enable, nil, 3},
		{"root stays", named((*State).DeleteUser, "root"), rootDeleted, 3},
		{"with its role", paired((*State).RevokeRole, "root", "root"), rootRevoked, 3},
		{"which stays", named((*State).DeleteRole, "root"), roleDeleted, 3},
		{"no such user", named((*State).DeleteUser, "bob"), ErrUserNotFound, 3},
		{"add bob", add("bob", true), nil, 4},
		{"nor role", named((*State).DeleteRole, "r"), ErrRoleNotFound, 4},
		{"a role without a name", named((*State).AddRole, ""), ErrRoleEmpty, 4},
		{"add a role", named((*State).AddRole, "r"), nil, 5},
		{"add it again", named((*State).AddRole, "r"), ErrRoleExists, 5},
		{"it is not bob's", paired((*State).RevokeRole, "bob", "r"), ErrRoleNotGranted, 5},
		{"nobody's", paired((*State).RevokeRole, "eve", "r"), ErrUserNotFound, 5},
		{"now it is", paired((*State).GrantRole, "bob", "r"), nil, 6},
		{"it allows nothing", paired((*State).Revoke, "r", k), ErrPermissionNotGranted, 6},
		{"which role", paired((*State).Grant, "q", Permission{Key: "k"}), ErrRoleNotFound, 6},
		{"no key", paired((*State).Grant, "r", Permission{}), noKey, 6},
		{"none", paired((*State).Grant, "r", Permission{Read, "b", "a"}), emptyRange, 6},
		{"no kind", paired((*State).Grant, "r", Permission{3, "k", ""}), unknownKind, 6},
		{"and from which", paired((*State).Revoke, "q", k), ErrRoleNotFound, 6},
		{"to read", paired((*State).Grant, "r", Permission{Read, "k", ""}), nil, 7},
		{"as it may", paired((*State).Grant, "r", Permission{Read, "k", ""}), nil, 7},
		{"to write", paired((*State).Grant, "r", Permission{Write, "k", ""}), nil, 8},
		{"a password for nobody", paired((*State).SetPassword, "eve", nil), ErrUserNotFound, 8},
		{"for bob", paired((*State).SetPassword, "bob", []byte{3}), nil, 9},
		{"for root", paired((*State).SetPassword, "root", []byte{4}), nil, 10},
		{"disable", disable, nil, 11},
		{"now root may go", paired((*State).RevokeRole, "root", "root"), nil, 12},
		{"whole", named((*State).DeleteUser, "root"), nil, 13},
	} {
		before, copied := s, *s.orEmpty()
		after, err := c.do(s)
		if !errors.Is(err, c.err) || (c.err == nil) != (err == nil) {
			t.Errorf("%s: error %v, not %v", c.name, err, c.err)
		}
		if why := change(""); errors.As(err, &why) && !errors.Is(err, ErrInvalidAuthMgmt) {
			t.Errorf("%s: %v is no invalid change", c.name, err)
		}
		if after.Revision() != c.revision {
			t.Errorf("%s: revision %d, not %d", c.name, after.Revision(), c.revision)
		}
		if err != nil && after != before {
			t.Errorf("%s: refused, and yet another state", c.name)
		}
		if before != nil && !reflect.DeepEqual(*before, copied) {
			t.Errorf("%s: the old state is another now", c.name)
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

// remade returns a state with the same users and roles.
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

// TestBytes fills a state, and empties it: what it counts is what is there.
func TestBytes(t *testing.T) {
	var s *State
	made := func(changed *State, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		s = changed
		if again := remade(s); again.Bytes() != s.Bytes() {
			t.Fatalf("a state of %d bytes counts %d", again.Bytes(), s.Bytes())
		}
	}
	made(s.AddUser("u", make([]byte, 60), false))
	made(s.AddRole("r"))
	made(s.GrantRole("u", "r"))
	made(s.Grant("r", Permission{Read, "a", "b"}))
	made(s.SetPassword("u", make([]byte, 70)))
	if least := int64(userBytes + roleBytes + permissionBytes + 70); s.Bytes() < least {
		t.Errorf("%d bytes, at least %d are there", s.Bytes(), least)
	}
	made(s.DeleteRole("r"))
	made(s.DeleteUser("u"))
	if s.Bytes() != 0 {
		t.Errorf("an empty state of %d bytes", s.Bytes())
	}
}

// names are short, so that ranges of them often touch.
var names = []string{"", "\x00", "a", "a\x00", "a\x00\x00", "b", "bb", "c", "d"}

func anyRange(r *rand.Rand) keyrange.Range {
	ends := append([]string{keyrange.NoEnd}, names...)
	return keyrange.Range{Key: names[r.IntN(len(names))], End: ends[r.IntN(len(ends))]}
}

// TestCheckKeyByKey compares decisions with the rule that they follow: every key of the range lies
// in a permission of one of the user's roles. All keys that tell two ranges of names apart are
// asked.
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
		t.Errorf("%d of 20,000 are allowed: the test tells little", allowed)
	}
}

// TestCallers asks for one key by all kinds of callers.
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
			t.Errorf("%+v: %v, not %v", c.caller, got, want)
		}
		for _, s := range []*State{nil, off} {
			if err := errors.Join(
				s.Check(c.caller, Write, k), s.CheckKnown(c.caller), s.CheckRoot(c.caller),
			); err != nil {
				t.Errorf("%+v is refused without access control: %v", c.caller, err)
			}
		}
	}
}
