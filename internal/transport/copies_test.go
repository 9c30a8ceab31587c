package transport

import (
	"context"
	"net/url"
	"testing"
	"time"

	"google.golang.org/grpc"

	"leasehold.dev/test/virtual"
)

// TestCopied starts two processes with the same identity. One of them is refused and receives the
// reason, all members are informed of the copy, and the other process continues. The second process
// is refused, unless the first is too slow to respond.
func TestCopied(t *testing.T) { virtual.Test(t, testCopied) }

func testCopied(t *testing.T) {
	a, b := pair(t, options{})
	second := start(t, 2, options{})
	second.Update([]Peer{a.peer(1), second.peer(2)})
	var by uint64
	rest := b
	select {
	case by = <-second.refused:
	case by = <-b.refused:
		rest = second
	case <-time.After(patience):
		t.Fatal("none was refused")
	}
	if by != 1 || want(t, a.copied) != 2 || want(t, rest.copied) != 2 {
		t.Error("wrong member")
	}
	second.stop()
	if rest == b {
		a.insist(b, "you are the one")
		b.insist(a, "I am")
	}
}

// TestCopiedAfterSilence checks that a process that was unresponsive while another took its place
// is refused when it resumes.
func TestCopiedAfterSilence(t *testing.T) { virtual.Test(t, testCopiedAfterSilence) }

func testCopiedAfterSilence(t *testing.T) {
	a, b := start(t, 1, options{}), start(t, 2, options{})
	there, back := forward(t, b.url.Host), forward(t, a.url.Host)
	a.Update([]Peer{{ID: 2, URLs: []url.URL{there.url}}})
	b.Update([]Peer{{ID: 1, URLs: []url.URL{back.url}}})
	a.meet(b, "hello")
	b.meet(a, "hello")
	there.stall()
	back.stall()
	second := start(t, 2, options{})
	second.Update([]Peer{a.peer(1), second.peer(2)})
	second.insist(a, "instead")
	a.insist(second, "welcome")
	there.resume()
	back.resume()
	if want(t, b.refused) != 1 || want(t, a.copied) != 2 || want(t, second.copied) != 2 {
		t.Error("wrong member")
	}
}

// TestLateIsNoCopy checks that a delayed stream of a dead process is refused and not mistaken for a
// live copy, no matter how often it arrives.
func TestLateIsNoCopy(t *testing.T) { virtual.Test(t, testLateIsNoCopy) }

func testLateIsNoCopy(t *testing.T) {
	a, b := pair(t, options{})
	for range 5 {
		s, err := connect(t.Context(), a.url, inMemory(Way{}))
		if err != nil {
			t.Fatal(err)
		}
		h := hello{
			cluster: 1, from: 2, to: 1, instance: instance{process: 1 << 40}, formats: Formats{1, 1},
		}
		stream, err := s.NewStream(h.context(context.Background(), nil), &messagesDesc,
			"/"+serviceName+"/"+messagesDesc.StreamName)
		if err != nil {
			t.Fatal(err)
		}
		if said := refusalFrom(stream); said == nil || said.mark == 0 {
			t.Errorf("it was not refused with a mark: %v", said)
		}
		s.close()
	}
	b.meet(a, "still here")
	never(t, "two at one time", a.copied)
	never(t, "gone", a.gone)
}

// refusalFrom returns the error with which a stream was refused.
func refusalFrom(stream grpc.ClientStream) *markedError {
	err := parseRefusal(stream.RecvMsg(new(blob)), stream.Trailer())
	marked, _ := err.(*markedError)
	return marked
}

// TestLateIsPassedOver covers a process that connects after a delayed stream of its predecessor was
// recorded. The process is readmitted because it can prove that it is alive.
func TestLateIsPassedOver(t *testing.T) { virtual.Test(t, testLateIsPassedOver) }

func testLateIsPassedOver(t *testing.T) {
	a, b := start(t, 1, options{}), start(t, 2, options{})
	a.Update([]Peer{{ID: 2, URLs: []url.URL{closedURL(t)}}})
	b.Update([]Peer{a.peer(1)})
	b.insist(a, "I am the new one")
	if err := a.link(2).saw(1<<40, 0); err != nil {
		t.Fatal(err)
	}
	b.insist(a, "I am back")
	never(t, "two at one time", a.copied)
}

// TestStrangersAlarm checks that only a connected member can report that this member has a copy.
// Another process cannot, even if it knows all IDs.
func TestStrangersAlarm(t *testing.T) { virtual.Test(t, testStrangersAlarm) }

func testStrangersAlarm(t *testing.T) {
	a, b := pair(t, options{})
	s, err := connect(t.Context(), a.url, inMemory(Way{}))
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	h := hello{
		cluster: 1, from: 2, to: 1, formats: Formats{1, 1},
		instance: instance{process: 1 << 40, incarnation: 102},
	}
	alarm := func() {
		t.Helper()
		if _, err := s.unary(h.context(t.Context(), nil), pingDesc.MethodName,
			&blob{data: []byte{1}}); err != nil {
			t.Fatal(err)
		}
	}
	alarm()
	stream, err := s.NewStream(h.context(t.Context(), nil), &messagesDesc,
		"/"+serviceName+"/"+messagesDesc.StreamName)
	if err != nil {
		t.Fatal(err)
	}
	if said := refusalFrom(stream); said == nil {
		t.Error("the stream was let in")
	}
	alarm()
	never(t, "an alarm", a.copied)
	l := b.link(1)
	l.mu.Lock()
	out := l.out
	l.mu.Unlock()
	if err := out.ping(true); err != nil {
		t.Fatal(err)
	}
	if want(t, a.copied) != 1 {
		t.Error("wrong member")
	}
}
