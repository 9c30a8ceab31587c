package server

import (
	"testing"

	"leasehold.dev/lease"
)

// TestClockOfAll: what every goroutine may ask for is the instant by which the core counts, also
// after boot time has gone back.
func TestClockOfAll(t *testing.T) {
	t.Parallel()
	s, err := New(testConfig(shortDir(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c := s.core
	boot := c.clock.boot()
	c.clock.boot = func() lease.Instant { return boot }
	for _, step := range []lease.Instant{10, 300, -90_000, 20} {
		boot += step
		if _, err := c.step(); err != nil {
			t.Fatal(err)
		}
		if got := c.clock.now(); got != c.shell.Now {
			t.Errorf("after a step of %d: another goroutine is at %d, the core at %d", step, got,
				c.shell.Now)
		}
	}
}

// TestClocksAreReadTogether: a goroutine that waits for a processor between two clocks does not
// make them part. One that always waits returns all the same.
func TestClocksAreReadTogether(t *testing.T) {
	t.Parallel()
	for _, waits := range []int{0, 1, 9, 1000} {
		var now lease.Instant
		tries := 0
		c := clock{mono: func() lease.Instant { return now }}
		c.boot = func() lease.Instant {
			at := now
			if tries++; tries <= waits {
				now += 300
			}
			return at
		}
		r := c.read()
		if apart := r.Mono != r.Boot; apart != (waits == 1000) {
			t.Errorf("with %d waits, after %d tries: %+v", waits, tries, r)
		}
	}
}
