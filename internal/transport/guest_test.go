package transport

import (
	"net/url"
	"testing"

	"leasehold.dev/test/virtual"
)

// TestAnswerToStranger checks that a member that missed a membership change can reply to a member
// that it does not know yet, as long as that member keeps sending. Once Update adds the new member,
// only one connection is kept.
func TestAnswerToStranger(t *testing.T) { virtual.Test(t, testAnswerToStranger) }

func testAnswerToStranger(t *testing.T) {
	leader, away := start(t, 4, options{}), start(t, 1, options{})
	leader.Update([]Peer{leader.peer(4), away.peer(1)})
	away.Update([]Peer{away.peer(1), {ID: 2, URLs: []url.URL{closedURL(t)}}})
	leader.meet(away, "who are you")
	away.meet(leader, "one of you")
	since, _ := away.Since(4)
	away.Update([]Peer{away.peer(1), leader.peer(4)})
	away.meet(leader, "now I know")
	if now, ok := away.Since(4); !ok || !now.Equal(since) {
		t.Error("the connection to a guest that became a member was not kept")
	}
	away.Update([]Peer{away.peer(1)})
	away.meet(leader, "a guest again")
	leader.stop()
	until(t, "the guest has left", func() bool { return away.link(4) == nil })
}

// TestAnswerToMoved checks that a member with a new address gets replies at that address, even from
// a member that missed the announcement.
func TestAnswerToMoved(t *testing.T) { virtual.Test(t, testAnswerToMoved) }

func testAnswerToMoved(t *testing.T) {
	moved, away := start(t, 4, options{}), start(t, 1, options{})
	moved.Update([]Peer{moved.peer(4), away.peer(1)})
	away.Update([]Peer{away.peer(1), {ID: 4, URLs: []url.URL{closedURL(t)}}})
	moved.meet(away, "I am here now")
	away.meet(moved, "I see")
	never(t, "gone", away.gone)
}

// TestNoAnswerToRemoved checks that a member that is not admitted gets no replies.
func TestNoAnswerToRemoved(t *testing.T) { virtual.Test(t, testNoAnswerToRemoved) }

func testNoAnswerToRemoved(t *testing.T) {
	removed, b := start(t, 4, options{}), start(t, 1, options{})
	b.admit.Store(&ErrRemoved)
	removed.Update([]Peer{removed.peer(4), b.peer(1)})
	removed.Send(1, bytesMessage("let me in"))
	want(t, removed.recorder.removed)
	if b.link(4) != nil {
		t.Error("there is a link to one that was removed")
	}
}
