package fsm

import (
	"errors"
	"slices"
	"testing"

	"leasehold.dev/lease"
)

// Alarms are told in the order of their members, and of one member of their kinds.
func TestAlarmsAreSorted(t *testing.T) {
	m := New(Config{})
	var want []Alarm
	for member := range uint64(10) {
		want = append(want, Alarm{member, NoSpace}, Alarm{member, Corrupt})
	}
	for _, a := range slices.Backward(want) {
		mustApply(t, m, &SetAlarm{Alarm: a})
	}
	if got := m.View().Alarms; !slices.Equal(got, want) {
		t.Errorf("alarms %v", got)
	}
}

// The CORRUPT alarm refuses whatever clients want to change. Leases end all the same, and
// alarms can be lowered.
func TestCorruptAlarm(t *testing.T) {
	m := New(Config{})
	mustApply(t, m, &Grant{Terms: lease.Terms{ID: 1, TTL: 5000}})
	mustApply(t, m, &Put{Key: "k", Lease: 1})
	a := Alarm{Member: 7, Kind: Corrupt}
	mustApply(t, m, &SetAlarm{Alarm: a})
	for _, c := range []Command{
		&Put{Key: "k"}, &DeleteRange{Key: "k"}, &Txn{}, &Compact{Revision: 2},
		&Grant{Terms: lease.Terms{ID: 2, TTL: 5000}}, &Revoke{ID: 1},
		&ChangeTTL{ID: 1, TTL: 1}, &HandOver{ID: 1}, &Resume{ID: 1},
	} {
		if r := apply(t, m, c); !errors.Is(r.Err, ErrDiverged) {
			t.Errorf("%T: %v", c, r.Err)
		}
	}
	info, _ := m.Lessor().Lookup(1)
	due := lease.Due{ID: 1, Token: info.Token, Stamp: info.Stamp}
	mustApply(t, m, &Expire{Term: m.term, Leases: []lease.Due{due}})
	if kv := m.View().KV.Get("k"); kv != nil {
		t.Errorf("after the end of its lease there is %+v", kv)
	}
	mustApply(t, m, &SetAlarm{Alarm: a, Off: true})
	mustApply(t, m, &Put{Key: "k"})
}

// Goal: alarms that a client raises for members that are not there are bounded; those of members
// are not. Method: many numbers; one that is raised already, or lowered, makes no difference.
func TestAlarmsOfStrangers(t *testing.T) {
	m := New(Config{})
	m.AddMember(Member{ID: 1, Name: "a"})
	for i := range uint64(maxUnknownAlarms) {
		mustApply(t, m, &SetAlarm{Alarm: Alarm{Member: 100 + i, Kind: Corrupt}})
	}
	more := &SetAlarm{Alarm: Alarm{Member: 99, Kind: Corrupt}}
	if r := apply(t, m, more); r.Err != ErrTooManyAlarms { //nolint:errorlint
		t.Errorf("one more: %v", r.Err)
	}
	mustApply(t, m, &SetAlarm{Alarm: more.Alarm, Off: true})
	mustApply(t, m, &SetAlarm{Alarm: Alarm{Member: 100, Kind: Corrupt}})
	mustApply(t, m, &SetAlarm{Alarm: Alarm{Member: 1, Kind: NoSpace}})
	mustApply(t, m, &SetAlarm{Alarm: Alarm{Member: 101, Kind: Corrupt}, Off: true})
	mustApply(t, m, more)
	if n := len(m.View().Alarms); n != maxUnknownAlarms+1 {
		t.Errorf("%d alarms", n)
	}
}
