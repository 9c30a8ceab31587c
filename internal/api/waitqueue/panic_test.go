package waitqueue

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"leasehold.dev/lease"
)

// recovered calls f and returns the value of its panic.
func recovered(f func()) (v any) {
	defer func() { v = recover() }()
	f()
	return nil
}

// TestPanicWhileReading checks that if a call panics while reading a queue and its server recovers,
// the queues still work for other calls.
func TestPanicWhileReading(t *testing.T) {
	m := newMember(1 << 16)
	const n = fewKeys + 10
	for id := lease.ID(1); id <= n; id++ {
		m.grant(t, id)
		m.put(t, keyOf(id), id, "")
	}
	m.queues.afterRead = func() { panic("a fault") }
	if v := recovered(func() { m.wait(t, 1, Ready) }); v != "a fault" {
		t.Fatalf("the reader panicked with %v", v)
	}
	if m.hub.Wanted() {
		t.Error("the hub keeps events for a call that ended")
	}
	m.queues.afterRead = nil
	e, _ := m.wait(t, 2, Waiting)
	e.Leave()
}

// panicWaiter is a waiter that panics.
type panicWaiter struct{}

func (panicWaiter) Notify(News) { panic("a fault of a waiter") }

// TestPanicWhileDistributing checks that a panic while distributing events ends the process, even
// if the call's server recovers. Otherwise, watchers would miss events.
func TestPanicWhileDistributing(t *testing.T) {
	const child = "LEASEHOLD_TEST_PANICS"
	if os.Getenv(child) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), child+"=1")
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "panic: a fault of a waiter") {
			t.Errorf("the child process ended with %v:\n%s", err, out)
		}
		return
	}
	m := newMember(1 << 16)
	for id := lease.ID(1); id <= 3; id++ {
		m.grant(t, id)
		m.put(t, keyOf(id), id, "")
	}
	revision := func() int64 { return m.view.Load().KV.Revision() }
	m.queues.Wait(Ask{Key: keyOf(2), Prefix: "l/", Permits: 1}, revision(), panicWaiter{})
	m.remove(t, keyOf(1))
	recovered(func() { m.wait(t, 3, Waiting) })
}
