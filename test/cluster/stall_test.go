package cluster

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A stallMeter adds up all stalls of this process that are longer than stallLeast. The servers run
// on the same machine, so they stall too, and the resulting delays are not their fault.
type stallMeter struct {
	mu    sync.Mutex
	last  time.Duration // when the process was last known to be running
	total time.Duration
}

const (
	stallTick  = 20 * time.Millisecond
	stallLeast = 200 * time.Millisecond
)

// look records that the process is running, and returns the sum.
func (m *stallMeter) look() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := now()
	if gap := at - m.last; gap > stallLeast {
		m.total += gap
	}
	m.last = at
	return m.total
}

// run calls look in an endless loop.
func (m *stallMeter) run() {
	for range time.Tick(stallTick) {
		m.look()
	}
}

var meter = sync.OnceValue(func() *stallMeter {
	m := &stallMeter{last: now()}
	go m.run()
	return m
})

// stalled returns the total stall time of this process so far. Callers use the difference of two
// calls.
func stalled() time.Duration { return meter().look() }

// TestStallMeter checks that the meter counts a stall even if it is read right after the stall, and
// that it does not count mere slowness.
func TestStallMeter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &stallMeter{last: now()}
		for range 100 {
			time.Sleep(stallLeast)
			m.look()
		}
		if got := m.look(); got != 0 {
			t.Errorf("%v without a stall", got)
		}
		time.Sleep(2 * time.Second)
		if got := m.look(); got != 2*time.Second {
			t.Errorf("%v after a stall of 2 s", got)
		}
	})
}
