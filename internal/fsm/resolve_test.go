package fsm

import (
	"testing"
)

// A key is compared with the lease that has a name: it is never on the lease of a name that no
// lease has, also if it is on none.
func TestCompareLeaseName(t *testing.T) {
	m := New(Config{})
	mustApply(t, m, &Grant{Terms: terms(1, "n")})
	mustApply(t, m, &Put{Key: "a", Lease: 1})
	mustApply(t, m, &Put{Key: "b"})
	for _, c := range []struct {
		key, name string
		want      bool
	}{{"a", "n", true}, {"b", "n", false}, {"a", "m", false}, {"b", "m", false}, {"c", "m", false}} {
		for _, r := range []Relation{Equal, NotEqual} {
			cond := Compare{Key: c.key, Target: TargetLeaseName, Relation: r, Value: []byte(c.name)}
			txn := &Txn{Compare: []Compare{cond}}
			got := mustApply(t, m, txn).(*TxnResult).Succeeded
			if got != (c.want == (r == Equal)) || txn.ReadOnly() {
				t.Errorf("key %s, name %s, relation %d: %v", c.key, c.name, r, got)
			}
		}
	}
}

// A refusal that tells a name is told again from a snapshot, as other refusals are.
func TestNamedRefusalIsRemembered(t *testing.T) {
	m := New(Config{})
	once := &Once{open(t, m, 5), 1, 0, &Revoke{ID: 3, Name: "n"}}
	first := apply(t, m, once)
	again := apply(t, restored(t, m), once)
	if first.Err.Error() != `lease: not found: lease 0000000000000003 does not have the name "n"` ||
		again.Err == nil || again.Err.Error() != first.Err.Error() || !again.Repeated {
		t.Errorf("%v, and from a snapshot %v", first.Err, again.Err)
	}
}
