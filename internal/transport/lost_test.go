package transport

import (
	"errors"
	"fmt"
	"net/url"
	"testing"

	"leasehold.dev/test/virtual"
)

// TestLost checks that each side receives the other side's incarnation first, and that a member
// that lost its data is informed that its incarnation is not the expected one.
func TestLost(t *testing.T) { virtual.Test(t, testLost) }

func testLost(t *testing.T) {
	a, b := pair(t, options{})
	a.meet(b, "one")
	if got := want(t, a.met); got != 102 {
		t.Errorf("it met incarnation %d", got)
	}
	if got := want(t, b.admits); got != 101 {
		t.Errorf("it was asked about incarnation %d", got)
	}
	lost := fmt.Errorf("another disk: %w", ErrLost)
	b.admit.Store(&lost)
	// The incarnation differs from before.
	b.Update([]Peer{{ID: 1, URLs: []url.URL{a.url}, Incarnation: 7}})
	if want(t, a.lost) != 2 {
		t.Fatal("wrong member")
	}
	if err := a.sendSnapshot(t.Context(), nil, chunks(1, 1)); !errors.Is(err, ErrLost) {
		t.Errorf("snapshot: %v", err)
	}
	if len(a.removed) > 0 {
		t.Error("it was told that it was removed")
	}
}

// TestMetAnother checks that no message is sent to a process that responds in place of another
// member.
func TestMetAnother(t *testing.T) { virtual.Test(t, testMetAnother) }

func testMetAnother(t *testing.T) {
	a, b := start(t, 1, options{}), start(t, 2, options{})
	other := errors.New("that is another")
	a.other.Store(&other)
	a.Update([]Peer{b.peer(2)})
	a.Send(2, bytesMessage("to somebody"))
	until(t, "it says so", func() bool { return a.log.Count("that is another") > 0 })
	if _, ok := a.Since(2); ok {
		t.Error("it counts as connected")
	}
	never(t, "received", b.got)
	a.other.Store(nil)
	if got := want(t, b.got); got != "to somebody" {
		t.Errorf("received %q", got)
	}
}

// TestClaimed checks that a member detects that another cluster considers it a member.
func TestClaimed(t *testing.T) { virtual.Test(t, testClaimed) }

func testClaimed(t *testing.T) {
	b := start(t, 2, options{})
	a := start(t, 1, options{cluster: 7})
	a.Update([]Peer{b.peer(2)})
	if want(t, b.claimed) != 1 {
		t.Error("wrong member")
	}
}
