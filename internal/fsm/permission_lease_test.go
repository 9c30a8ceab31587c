package fsm

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"leasehold.dev/internal/access"
	"leasehold.dev/lease"
)

// Goal: a renewal is decided as in the log where a member can do it quickly, and left undecided
// where it takes a longer look. Method: leases of holders, and by whom each may be renewed.
func TestMayRenew(t *testing.T) {
	m := holders(t)
	for _, of := range []struct {
		id   lease.ID
		name string
		keys int
	}{{10, "", fewKeys}, {11, "", fewKeys + 1}, {12, "x/12", fewKeys + 1}} {
		mustApply(t, m, as(m, "root", &Grant{Terms: lease.Terms{ID: of.id, TTL: 1000, Name: of.name}}))
		for i := range of.keys {
			mustApply(t, m, as(m, "root", &Put{Key: fmt.Sprint("k/", of.id, "/", i), Lease: of.id}))
		}
	}
	denied, yes := access.ErrPermissionDenied, error(nil)
	old := as(m, "alice", nil).Caller
	old.Revision--
	for name, c := range map[string]struct {
		id      lease.ID
		by      access.Caller
		decided bool
		want    error
	}{
		"an own one":                     {1, as(m, "alice", nil).Caller, true, yes},
		"another's":                      {1, as(m, "bob", nil).Caller, true, denied},
		"another's, by root":             {1, as(m, "root", nil).Caller, true, yes},
		"nobody's":                       {3, as(m, "dave", nil).Caller, true, yes},
		"nobody's, with a key of others": {6, as(m, "dave", nil).Caller, true, denied},
		"with a key that it may write":   {6, as(m, "bob", nil).Caller, true, yes},
		"with a few keys":                {10, as(m, "dave", nil).Caller, true, denied},
		"with many":                      {11, as(m, "dave", nil).Caller, false, yes},
		"many of a name":                 {12, as(m, "carol", nil).Caller, true, yes},
		"many of a name of others":       {12, as(m, "dave", nil).Caller, true, denied},
		"none":                           {99, as(m, "alice", nil).Caller, false, yes},
		"logged in before a change":      {1, old, false, yes},
		"not logged in":                  {3, access.Caller{}, true, access.ErrUserEmpty},
	} {
		decided, err := Asker{m.meta.access, c.by}.MayRenew(m.lessor, c.id)
		if decided != c.decided || !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: decided %v, %v; want %v, %v", name, decided, err, c.decided, c.want)
		}
	}
}

// A lease of nobody is seen by callers that may read its keys, and held by those that may write
// them; of another lease no key is asked for.
func TestMayTouch(t *testing.T) {
	m := holders(t)
	asked := access.Kind(0)
	no := func(needs access.Kind) error { asked = needs; return errors.New("no") }
	for name, c := range map[string]struct {
		user  string
		what  access.Kind
		of    access.Lease
		want  bool
		asked access.Kind
	}{
		"hold nobody's":       {"alice", access.Hold, access.Lease{}, false, access.Write},
		"see nobody's":        {"alice", access.See, access.Lease{}, false, access.Read},
		"hold as root":        {"root", access.Hold, access.Lease{}, true, 0},
		"hold an own one":     {"alice", access.Hold, access.Lease{Principal: "alice"}, true, 0},
		"see a name":          {"bob", access.See, access.Lease{Name: "x/1"}, true, 0},
		"hold a name":         {"bob", access.Hold, access.Lease{Name: "x/1"}, false, 0},
		"hold as nobody":      {"", access.Hold, access.Lease{}, false, 0},
		"hold as one unknown": {"gone", access.Hold, access.Lease{}, false, 0},
	} {
		asked = 0
		err := Asker{m.meta.access, as(m, c.user, nil).Caller}.MayTouch(c.what, c.of, no)
		if (err == nil) != c.want || asked != c.asked {
			t.Errorf("%s: %v, asked for %v", name, err, asked)
		}
	}
	alice := Asker{m.meta.access, as(m, "alice", nil).Caller}
	for keys, want := range map[string]bool{"": true, "a b": true, "A b": false, "a A": false} {
		err := alice.EachKey(slices.Values(strings.Fields(keys)))(access.Write)
		if (err == nil) != want {
			t.Errorf("to write each of %q: %v", keys, err)
		}
	}
}
