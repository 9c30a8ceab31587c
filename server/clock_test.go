package server

import (
	"testing"

	"leasehold.dev/lease"
	"leasehold.dev/test/virtual"
)

// TestClockOfAll checks that other goroutines read the same time as the core, even after boot time
// goes backward.
func TestClockOfAll(t *testing.T) { virtual.Test(t, testClockOfAll) }

func testClockOfAll(t *testing.T) {
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

// TestClocksAreReadTogether checks that being descheduled between reading two clocks does not make
// them appear to diverge. The clocks are read again in that case, a bounded number of times.
func TestClocksAreReadTogether(t *testing.T) { virtual.Test(t, testClocksAreReadTogether) }

func testClocksAreReadTogether(t *testing.T) {
	for _, c := range []struct {
		waits int           // number of reads that are interrupted
		each  lease.Instant // length of each interruption
		tries int
		apart lease.Instant
	}{
		{0, 0, 1, 0},
		{1, 300, 2, 0},
		{9, 300, 10, 0},
		{1000, 300, 10, 300},
		{1, together, 2, 0},
		{1, together - 1, 1, together - 1},
	} {
		var now lease.Instant
		tries := 0
		read := clock{mono: func() lease.Instant { return now }}
		read.boot = func() lease.Instant {
			at := now
			if tries++; tries <= c.waits {
				now += c.each
			}
			return at
		}
		r := read.read()
		if tries != c.tries || r.Mono-r.Boot != c.apart {
			t.Errorf("%d waits of %d ms: after %d tries %+v", c.waits, c.each, tries, r)
		}
	}
}
