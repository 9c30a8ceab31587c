package access

import (
	"errors"
	"strings"
	"testing"

	"leasehold.dev/internal/keyrange"
)

// deniers returns a state in which eve has no roles, and bob may read [a/, a0), see the names [s/,
// s0) and hold [h/, h0).
func deniers() *State {
	return New(true, 1, []User{
		{Name: "bob", Roles: []string{"reader", "r 2"}},
		{Name: "eve"},
		{Name: "x\ny", Roles: []string{"q"}},
	}, []Role{
		{"reader", []Permission{{Read, "a/", "a0"}, {See, "s/", "s0"}}},
		{"r 2", []Permission{{Hold, "h/", "h0"}}},
	})
}

func caller(user string) Caller { return Caller{User: user, Revision: 1} }

// TestDeniedText checks that an error states the missing permission and the caller. It discloses a
// name or key only if the caller sent it or may see it.
func TestDeniedText(t *testing.T) {
	s := deniers()
	bob, eve := caller("bob"), caller("eve")
	key := func(key, end string) keyrange.Range { return keyrange.Range{Key: key, End: end} }
	const isBob = `; you are bob (roles: reader, "r 2")`
	for want, err := range map[string]error{
		`needs write on /a/b` + isBob:                  s.Check(bob, Write, key("/a/b", "")),
		`needs write on "/a b"` + isBob:                s.Check(bob, Write, key("/a b", "")),
		`needs read on "" to "\x01"` + isBob:           s.Check(bob, Read, key("", "\x01")),
		`needs read on all keys from c` + isBob:        s.Check(bob, Read, key("c", "\x00")),
		`needs read on k; you are eve (no roles)`:      s.Check(eve, Read, key("k", "")),
		`needs read on k; you are "x\ny" (roles: q)`:   s.Check(caller("x\ny"), Read, key("k", "")),
		`needs write on all keys of the lease` + isBob: OfLease(s.Check(bob, Write, key("k", ""))),
		`the lease is not yours` + isBob:               s.CheckLease(bob, See, Lease{"n", "alice"}),
		`needs see on the name n` + isBob:              s.CheckNamed(bob, See, Lease{"n", "alice"}),
		`needs manage on the name s/1` + isBob:         s.CheckLease(bob, Hold, Lease{"s/1", "alice"}),
		`needs manage on the name h/1` + isBob:         s.CheckLease(bob, Hold, Lease{"h/1", "alice"}),
		`needs hold on the name mine` + isBob:          s.CheckLease(bob, Hold, Lease{"mine", "bob"}),
		`needs hold on the name n` + isBob:             s.CheckGrant(bob, Lease{Name: "n"}),
		`needs manage on the name h/2` + isBob:         s.CheckGrant(bob, Lease{"h/2", "alice"}),
		`only root may grant leases without a name to others` + isBob: s.CheckGrant(bob,
			Lease{Principal: "alice"}),
		`the lease is not yours; you are eve (no roles)`: s.CheckLease(eve, Hold, Lease{"n", "bob"}),
	} {
		if !errors.Is(err, ErrPermissionDenied) || err.Error() != "permission denied: "+want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestDeniedIsShort checks that errors stay short. They are sent in headers, which cannot hold long
// keys.
func TestDeniedIsShort(t *testing.T) {
	long := strings.Repeat("\xff", 1<<20)
	err := deniers().Check(caller("bob"), Read, keyrange.Range{Key: long, End: long + "x"})
	if err == nil || len(err.Error()) > 2000 {
		t.Errorf("an error of %d bytes", len(err.Error()))
	}
}

// TestDeniedCutsOff checks that a key up to the limit is quoted in full, and that a longer one is
// truncated and ends in dots.
func TestDeniedCutsOff(t *testing.T) {
	for n, want := range map[int]string{
		maxShown:     "needs read on " + strings.Repeat("k", maxShown) + ";",
		maxShown + 1: "needs read on " + strings.Repeat("k", maxShown) + "...;",
	} {
		err := deniers().Check(caller("eve"), Read, keyrange.Range{Key: strings.Repeat("k", n)})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a key of %d bytes: %v", n, err)
		}
	}
}

// TestOfLeaseOfOthers checks that OfLease leaves nil and unrelated errors unchanged.
func TestOfLeaseOfOthers(t *testing.T) {
	for _, err := range []error{nil, ErrUserEmpty, ErrOldRevision, ErrPermissionDenied} {
		if got := OfLease(err); got != err {
			t.Errorf("OfLease(%v) = %v", err, got)
		}
	}
}

// TestKindWords checks that each kind has a name for commands. Unknown kinds are printed as
// numbers.
func TestKindWords(t *testing.T) {
	for k, want := range map[Kind]string{
		Read: "read", Write: "write", ReadWrite: "readwrite", See: "see", Hold: "hold",
		Manage: "manage", ReadWrite + 1: "kind 3", Manage + 1: "kind 19", See - 1: "kind 15",
	} {
		if k.String() != want || k.Known() == strings.HasPrefix(want, "kind") {
			t.Errorf("kind %d: %s, known %v", uint8(k), k, k.Known())
		}
	}
}
