package shell

import (
	"testing"

	"leasehold.dev/lease"
)

// TestClockGoesBack checks that if boot time goes backward, however little, the clock reports a
// jump, and its instants do not decrease.
func TestClockGoesBack(t *testing.T) {
	at := Reading{Boot: 100_000, Mono: 7}
	c := clock{start: at}
	var last lease.Instant
	for _, step := range []lease.Instant{10, -1, 5, -90_000, 20, -200_000, 1} {
		at.Boot += step
		now, jumped := c.read(at)
		if want := last + max(step, 0); now != want {
			t.Errorf("after a step of %d: at %d, want %d", step, now, want)
		}
		if step < 0 && !jumped {
			t.Errorf("a step of %d is not reported as a jump", step)
		}
		last = now
	}
}

// TestClockOfBoot checks that instants follow boot time, which keeps running while the machine is
// suspended. A suspension is reported as a jump, but a late reading is not. A jump is also reported
// if boot time falls behind the monotonic clock.
func TestClockOfBoot(t *testing.T) {
	at := Reading{Boot: 100_000, Mono: 7}
	c := clock{start: at}
	want := lease.Instant(0)
	for _, x := range []struct {
		awake, asleep lease.Instant
		jumped        bool
	}{
		{awake: 1, asleep: jumpLimit},
		{awake: 10},
		{awake: 100_000},
		{awake: 1, asleep: jumpLimit},
		{awake: 1, asleep: 1},
		{asleep: jumpLimit + 1, jumped: true},
		{awake: 5},
		{awake: 1000, asleep: -jumpLimit},
		{awake: 1000, asleep: -jumpLimit - 1, jumped: true},
		{asleep: 3_600_000, jumped: true},
		{},
	} {
		at.Boot, at.Mono = at.Boot+x.awake+x.asleep, at.Mono+x.awake
		want += x.awake + x.asleep
		now, jumped := c.read(at)
		if now != want || jumped != x.jumped {
			t.Errorf("after %+v: at %d, jumped %v; want %d", x, now, jumped, want)
		}
	}
}
