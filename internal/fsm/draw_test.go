package fsm

import (
	"errors"
	"slices"
	"testing"

	"leasehold.dev/lease"
)

// drawn applies a transaction and returns the tokens that it drew.
func drawn(t testing.TB, m *Machine, c *Txn) (tokens []lease.Token) {
	t.Helper()
	var add func(r *TxnResult)
	add = func(r *TxnResult) {
		for _, v := range r.Responses {
			switch v := v.(type) {
			case lease.Token:
				tokens = append(tokens, v)
			case *TxnResult:
				add(v)
			}
		}
	}
	add(mustApply(t, m, c).(*TxnResult))
	return tokens
}

// A token that is drawn is the next of all, and that is all that happens: no revision, no
// lease, no event.
func TestDraw(t *testing.T) {
	m := New(Config{})
	mustApply(t, m, &Grant{Terms: terms(7, "n")})
	revision, events := m.store.Revision(), m.events.Last()
	draw := Op{Draw: true}
	c := &Txn{Then: []Op{draw, {Txn: &Txn{
		Compare: []Compare{{Key: "none", Target: TargetMod, Relation: Greater}},
		Then:    []Op{draw, draw}, Else: []Op{draw},
	}}, draw}}
	if c.ReadOnly() || Growth(c) != 0 {
		t.Errorf("read only: %t, cost %d", c.ReadOnly(), Growth(c))
	}
	if got, want := drawn(t, m, c), []lease.Token{2, 3, 4}; !slices.Equal(got, want) {
		t.Errorf("drew %v, want %v", got, want)
	}
	if m.store.Revision() != revision || m.events.Last() != events || m.lessor.Len() != 1 {
		t.Errorf("revision %d, %d events, %d leases",
			m.store.Revision(), m.events.Last(), m.lessor.Len())
	}
	r := mustApply(t, m, &Grant{Terms: terms(8, "")})
	if info, _ := GrantResult(r); info.Token != 5 {
		t.Errorf("the next lease has token %d", info.Token)
	}
}

// A transaction that cannot be carried out as a whole draws nothing, wherever in it the
// draw is.
func TestDrawOrNothing(t *testing.T) {
	draw, late := Op{Draw: true}, Op{Put: &Put{Key: "k", Lease: 99}}
	for _, ops := range [][]Op{
		{draw, late},
		{late, draw},
		{{Txn: &Txn{Then: []Op{draw}}}, draw, {Txn: &Txn{Then: []Op{late}}}},
		{draw, {Grant: &Grant{Terms: terms(0, "")}}},
	} {
		m := New(Config{})
		if r := apply(t, m, &Txn{Then: ops}); r.Err == nil || m.lessor.LastToken() != 0 {
			t.Errorf("%+v: error %v, the last token is %d", ops, r.Err, m.lessor.LastToken())
		}
	}
}

// T27: a token that was drawn is remembered by a snapshot, and is below all that are drawn
// after a restore from a backup.
func TestDrawRestored(t *testing.T) {
	m := New(Config{})
	c := &Txn{Then: []Op{{Draw: true}}}
	last := drawn(t, m, c)[0]
	m = restored(t, m)
	if next := drawn(t, m, c)[0]; next != last+1 {
		t.Errorf("token %d after %d", next, last)
	}
	m = mustRestoreBackup(t, m, Restoration{})
	if next := drawn(t, m, c)[0]; next>>tokenGenerationShift != 1 {
		t.Errorf("token %#x after a restore from a backup", next)
	}
}

// A full store refuses what grows it; a token does not. One that differs from others, or may,
// gives none.
func TestDrawAlarms(t *testing.T) {
	for kind, want := range map[AlarmKind]error{NoSpace: nil, Corrupt: ErrDiverged} {
		m := New(Config{})
		mustApply(t, m, &SetAlarm{Alarm: Alarm{Member: 1, Kind: kind}})
		if r := apply(t, m, &Txn{Then: []Op{{Draw: true}}}); !errors.Is(r.Err, want) {
			t.Errorf("alarm %d: %v, want %v", kind, r.Err, want)
		}
	}
}
