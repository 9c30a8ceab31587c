package fsm

import (
	"testing"
)

// TestAlarmsOfStrangers checks that the number of alarms for unknown members is bounded. Alarms for
// existing members are always accepted.
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
