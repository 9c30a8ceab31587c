package cluster

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A stallMeter adds up for how long this process has stood still, each time for longer than
// stallLeast. The servers run on the same machine: where this process does not get on in time, they
// do not either, and what is late then is not late because of them.
type stallMeter struct {
	mu    sync.Mutex
	last  time.Duration // when it was last known to run
	total time.Duration
}

const (
	stallTick  = 20 * time.Millisecond
	stallLeast = 200 * time.Millisecond
)

// look notes that the process runs, and returns the sum.
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

// run looks again and again.
func (m *stallMeter) run() {
	for range time.Tick(stallTick) {
		m.look()
	}
}

// meter is that of the process.
var meter = sync.OnceValue(func() *stallMeter {
	m := &stallMeter{last: now()}
	go m.run()
	return m
})

// stalled returns for how long this process has stood still since it was first asked: of two
// answers the difference counts.
func stalled() time.Duration { return meter().look() }

// The meter counts stalls, also when it is read before anything else has run, and not mere
// slowness.
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
