package transport

import (
	"testing"

	"leasehold.dev/test/virtual"
)

// TestTraffic checks that the byte counts of sender and receiver agree. The number of messages kept
// for a disconnected member is bounded, and the rest count as dropped. Connected members are asked
// to respond.
func TestTraffic(t *testing.T) { virtual.Test(t, testTraffic) }

func testTraffic(t *testing.T) {
	a, b := pair(t, options{})
	if of := want(t, a.took); of != 2 {
		t.Errorf("member %d answered", of)
	}
	until(t, "what one sends the other receives", func() bool {
		there, back := a.Traffic(2), b.Traffic(1)
		return there.Sent > 0 && there.Sent == back.Received &&
			back.Sent > 0 && back.Sent == there.Received
	})
	before := a.Traffic(2)
	b.stop()
	until(t, "the connection has broken", func() bool {
		_, ok := a.Since(2)
		return !ok
	})
	const more = 36
	for range idleLimits.count + more {
		a.Send(2, bytesMessage("kept or dropped"))
	}
	if got := a.Traffic(2); got.Dropped != before.Dropped+more || got.Sent != before.Sent {
		t.Errorf("after %d messages to nobody: %+v, before %+v", idleLimits.count+more, got, before)
	}
	if got := a.Traffic(3); got != (Traffic{}) {
		t.Errorf("traffic with an unknown member: %+v", got)
	}
}

// TestAsk checks that a process responds even while its core does not consume messages, which
// distinguishes a busy member from a hung one. Disconnected members are not asked, and a closed
// transport asks no member.
func TestAsk(t *testing.T) { virtual.Test(t, testAsk) }

func testAsk(t *testing.T) {
	a, b := pair(t, options{})
	hold := make(chan struct{})
	b.hold.Store(&hold)
	defer close(hold)
	a.Send(2, bytesMessage("nobody takes it"))
	for range 2 * int(patience/aliveInterval) {
		a.Ask(2)
		if of := want(t, a.took); of != 2 {
			t.Fatalf("member %d answered", of)
		}
	}
	a.Ask(3)
	a.stop()
	a.Ask(2)
}
