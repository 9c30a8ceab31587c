package replica

import "testing"

// TestLinks: a member is active for an election timeout after it was heard, and stable once it has
// been heard, or connected, for long without a break.
func TestLinks(t *testing.T) {
	m := &local{cfg: Config{ID: 1, ElectionTicks: 10, Membership: Membership{Stable: 500}}}
	k := links{m: m}
	want := func(when string, active, stable bool) {
		t.Helper()
		if a, s := k.active(2), k.stable(2); a != active || s != stable {
			t.Errorf("%s: active %v, stable %v", when, a, s)
		}
	}
	if !k.active(1) || !k.stable(1) {
		t.Error("itself is neither active nor stable")
	}
	m.now = 1000
	want("before it was heard", false, false)
	k.heard(2)
	want("when it was heard", true, false)
	m.now, m.ticks = 1500, 5
	want("a while after", true, true)
	k.broken(2)
	want("after a break", true, false)
	k.connected(2, 1001)
	want("connected for less than long", true, false)
	k.connected(2, 1000)
	want("connected for long", true, true)
	m.now = 1600
	k.connected(2, 9000)
	m.now = 2100
	want("connected since then, by another clock", true, true)
	m.ticks = 9
	want("silent for long", true, true)
	m.ticks = 10
	want("silent for too long", false, false)
	k.heard(2)
	want("heard again", true, true)
	k.gone(2)
	k.broken(2)
	want("when its process has ended", false, false)
	if k.known(2) {
		t.Error("a member is known though its process has ended")
	}
}
