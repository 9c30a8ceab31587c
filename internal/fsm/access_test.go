package fsm

import (
	"errors"
	"slices"
	"testing"

	"leasehold.dev/internal/access"
)

// TestAccessGrowth checks that Growth predicts exactly how much a command about users and roles
// adds to the state.
func TestAccessGrowth(t *testing.T) {
	m := New(Config{})
	for _, c := range []Command{
		&UserAdd{Name: "alice", Hash: []byte("hash")}, &RoleAdd{"reader"},
		&UserGrantRole{"alice", "reader"},
		&RoleGrant{"reader", access.Permission{Kind: access.Read, Key: "a", End: "b"}},
	} {
		before := m.View().Bytes.Access
		mustApply(t, m, c)
		if got, want := Growth(c), m.View().Bytes.Access-before; got != want {
			t.Errorf("%T grows by %d, and is said to by %d", c, want, got)
		}
	}
}

// TestTakesRights checks which commands require caches to drop everything before they are applied,
// with or without a caller.
func TestTakesRights(t *testing.T) {
	takes := []kind{
		kindAuthEnable, kindUserDelete, kindUserRevokeRole, kindRoleDelete, kindRoleGrant,
		kindRoleRevoke, kindUserPassword,
	}
	for _, c := range bare() {
		want := slices.Contains(takes, c.kind())
		if TakesRights(c) != want || TakesRights(&By{Command: c}) != want {
			t.Errorf("%T takes rights: %v", c, !want)
		}
	}
}

// TestRestoreBadAccess checks that Restore rejects a snapshot with users and roles that no member
// would write.
func TestRestoreBadAccess(t *testing.T) {
	leases := []access.LimitChange{{What: access.Leases, Most: 9}}
	for name, records := range map[string][]func([]byte) []byte{
		"no revision": {controlRecord(0)},
		"twice":       {controlRecord(1), controlRecord(1)},
		"no control":  {limitsRecord("", leases)},
		"limits of no user": {
			controlRecord(1), limitsRecord("alice", leases),
		},
		"no limits": {controlRecord(1), limitsRecord("", nil)},
	} {
		if _, err := restoreRecords(records...); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	m, err := restoreRecords(controlRecord(1), limitsRecord("", leases))
	if err != nil || !m.meta.access.Limited() {
		t.Errorf("good records: %v", err)
	}
}

func controlRecord(revision uint64) func([]byte) []byte {
	return record(tagControl, func(b []byte) []byte {
		return appendControl(b, control{true, revision})
	})
}

// limitsRecord returns a record with limits of a user. If user is "", they are the default limits.
func limitsRecord(user string, list []access.LimitChange) func([]byte) []byte {
	c := &SetLimits{List: list}
	if user != "" {
		c.Of = access.Holder{Kind: access.OfUser, Name: user}
	}
	return record(tagLimits, func(b []byte) []byte { return appendSetLimits(b, c) })
}
