package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"leasehold.dev/test/virtual"
)

// TestOrder checks that messages arrive in order and complete, whether small or large, and that
// many of them share a frame.
func TestOrder(t *testing.T) { virtual.Test(t, testOrder) }

func testOrder(t *testing.T) {
	a, b := pair(t, options{})
	const n = 5000
	for i := range n {
		a.Send(2, bytesMessage(fmt.Sprintf("%d %s", i, strings.Repeat("x", i%300))))
		b.Send(1, bytesMessage(fmt.Sprint(i)))
	}
	for i := range n {
		if got := want(t, b.got); got != fmt.Sprintf("%d %s", i, strings.Repeat("x", i%300)) {
			t.Fatalf("message %d is %.20q", i, got)
		}
		if got := want(t, a.got); got != fmt.Sprint(i) {
			t.Fatalf("message %d is %.20q", i, got)
		}
	}
	never(t, "lost", a.unreachable)
	if _, ok := a.Since(2); !ok {
		t.Error("not connected")
	}
	if _, ok := a.Since(3); ok {
		t.Error("connected to nobody")
	}
}

// TestLarge checks that a message far larger than a frame arrives in order. A message above the
// limit is dropped and logged, and later messages arrive. An empty message is delivered too.
func TestLarge(t *testing.T) { virtual.Test(t, testLarge) }

func testLarge(t *testing.T) {
	a, b := pair(t, options{})
	large := bytes.Repeat([]byte("large"), 5<<20)
	a.Send(2, bytesMessage("before"))
	a.Send(2, bytesMessage(large))
	a.Send(2, modest(make([]byte, MaxMessage+1)))
	a.Send(2, bytesMessage(nil))
	a.Send(2, bytesMessage("after"))
	for _, text := range []string{"before", string(large), "", "after"} {
		if got := want(t, b.got); got != text {
			t.Fatalf("received %.20q of %d bytes, want %.20q", got, len(got), text)
		}
	}
	if want(t, a.unreachable) != 2 || a.log.Count("exceeds the maximum of") != 1 {
		t.Error("the loss was not told")
	}
}

// modest is a message that reports a size of 0.
type modest []byte

func (m modest) Size() int                { return 0 }
func (m modest) AppendTo(b []byte) []byte { return append(b, m...) }

// TestIdle checks that the most recent messages sent before a connection exists are kept, and that
// the loss of older ones is reported.
func TestIdle(t *testing.T) { virtual.Test(t, testIdle) }

func testIdle(t *testing.T) {
	a, b := start(t, 1, options{}), start(t, 2, options{})
	a.Send(2, bytesMessage("to a stranger"))
	nowhere := closedURL(t)
	a.Update([]Peer{{ID: 2, URLs: []url.URL{nowhere}}})
	for i := range idleLimits.count + 1 {
		a.Send(2, bytesMessage(fmt.Sprint(i)))
	}
	if want(t, a.unreachable) != 2 {
		t.Fatal("wrong member")
	}
	// A change of URLs would drop the link and its queue, so b listens on the old URL instead.
	_ = b.mux.Close()
	l, err := virtual.Listen(t.Context(), nowhere)
	if err != nil {
		t.Fatal(err)
	}
	b.open(l, nil)
	for i := range idleLimits.count {
		if got := want(t, b.got); got != fmt.Sprint(i+1) {
			t.Fatalf("received %q, want %d", got, i+1)
		}
	}
	never(t, "gone before it was there", a.gone)
}

// closedURL returns a URL that refuses connections and that no other listener will use.
func closedURL(t *testing.T) url.URL {
	l := virtual.Port(t)
	_ = l.Close()
	return url.URL{Scheme: "http", Host: l.Addr().String()}
}

// TestGoneAndBack checks that the death of a member is detected once, both over TCP and over a Unix
// socket. When a new process starts, messages flow again, and its start is not reported as another
// death.
func TestGoneAndBack(t *testing.T) {
	dir, err := os.MkdirTemp("", "leasehold") // the path of t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for _, u := range []url.URL{
		closedURL(t), // no other listener takes it in the meantime
		{Scheme: "unix", Path: filepath.Join(dir, "b")},
	} {
		bubble(t, u.Scheme, func(t *testing.T) {
			a, b := start(t, 1, options{}), start(t, 2, options{url: u})
			a.Update([]Peer{b.peer(2)})
			a.meet(b, "one")
			b.stop()
			if want(t, a.gone) != 2 || want(t, a.unreachable) != 2 {
				t.Fatal("wrong member")
			}
			if _, ok := a.Since(2); ok {
				t.Error("connected to the dead")
			}
			again := start(t, 2, options{url: b.url})
			again.Update([]Peer{a.peer(1)})
			a.meet(again, "two")
			again.meet(a, "three")
			never(t, "gone again", a.gone)
			if n := a.log.Count("no connection"); n > 4 {
				t.Errorf("%d lines in the log for one break", n)
			}
			again.stop()
			if want(t, a.gone) != 2 {
				t.Fatal("wrong member")
			}
		})
	}
}

// TestRefusedBeforeItCame checks that a connection refused before a new process started does not
// mean that the new process is gone.
func TestRefusedBeforeItCame(t *testing.T) { virtual.Test(t, testRefusedBeforeItCame) }

func testRefusedBeforeItCame(t *testing.T) {
	a := start(t, 1, options{})
	l := newLink(a.Transport, Peer{ID: 2}, nil)
	defer l.cancel()
	l.reached = true
	for process := range uint64(3) {
		known := l.known()
		if err := l.observe(100+process, 0); err != nil {
			t.Fatal(err)
		}
		drain(a.gone) // the previous process
		l.failed(errRefused{syscall.ECONNREFUSED}, known)
		never(t, "the new one is gone", a.gone)
	}
	l.failed(errRefused{syscall.ECONNREFUSED}, l.known())
	if want(t, a.gone) != 2 {
		t.Error("wrong member")
	}
}

// TestGoneByNewProcess checks that a new process with the ID of an unresponsive one implies that
// the old process is gone. This is reported before the new process's first message.
func TestGoneByNewProcess(t *testing.T) { virtual.Test(t, testGoneByNewProcess) }

func testGoneByNewProcess(t *testing.T) {
	a, b := start(t, 1, options{}), start(t, 2, options{})
	f := forward(t, b.url.Host)
	a.Update([]Peer{{ID: 2, URLs: []url.URL{f.url}}})
	a.meet(b, "hello")
	f.stall()
	again := start(t, 2, options{})
	again.Update([]Peer{a.peer(1)})
	again.insist(a, "anew")
	select {
	case <-a.gone:
	default:
		t.Error("not told before the first message")
	}
	never(t, "told twice", a.gone)
	never(t, "two at one time", a.copied)
}

// TestBreakIsNotGone checks that a broken connection to a live process is re-established and does
// not count as a death.
func TestBreakIsNotGone(t *testing.T) { virtual.Test(t, testBreakIsNotGone) }

func testBreakIsNotGone(t *testing.T) {
	a, b := start(t, 1, options{}), start(t, 2, options{})
	f := forward(t, b.url.Host)
	a.Update([]Peer{{ID: 2, URLs: []url.URL{f.url}}})
	for i := range 5 {
		a.meet(b, fmt.Sprint(i))
		f.cut()
		if want(t, a.unreachable) != 2 {
			t.Fatal("wrong member")
		}
	}
	a.meet(b, "last")
	never(t, "gone", a.gone)
}

// TestSilenceIsNotGone checks that a member that accepts connections but does not respond is
// unreachable, not gone. Connections time out.
func TestSilenceIsNotGone(t *testing.T) { virtual.Test(t, testSilenceIsNotGone) }

func testSilenceIsNotGone(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for seconds")
	}
	a, b := start(t, 1, options{}), start(t, 2, options{})
	f := forward(t, b.url.Host)
	a.Update([]Peer{{ID: 2, URLs: []url.URL{f.url}}})
	a.meet(b, "one")
	f.stall()
	if want(t, a.unreachable) != 2 {
		t.Fatal("wrong member")
	}
	until(t, "the silence is in the log", func() bool { return a.log.Count("not responded") == 1 })
	never(t, "gone", a.gone)
	f.resume()
	a.meet(b, "two")
	never(t, "gone", a.gone)
}

// TestRemoved checks that a removed member is informed, both while it is connected and when it
// connects again, and that it cannot send.
func TestRemoved(t *testing.T) { virtual.Test(t, testRemoved) }

func testRemoved(t *testing.T) {
	a, b := pair(t, options{})
	out := fmt.Errorf("out: %w", ErrRemoved)
	b.admit.Store(&out)
	b.Update(nil)
	if want(t, a.removed) != 2 {
		t.Fatal("wrong member")
	}
	if want(t, a.removed) != 2 { // at the next attempt
		t.Fatal("wrong member")
	}
	err := a.sendSnapshot(t.Context(), nil, chunks(1, 1))
	if !errors.Is(err, ErrRemoved) {
		t.Errorf("snapshot: %v", err)
	}
	if want(t, a.unreachable) != 2 {
		t.Error("wrong member")
	}
	never(t, "gone", a.gone)
	never(t, "received", b.got)
	if _, ok := b.Since(1); ok {
		t.Error("still connected to one that is no member")
	}
	b.admit.Store(nil)
	a.meet(b, "let in again")
}

// TestRefused checks that a process that does not belong to the cluster is refused with the reason,
// and that none of its messages are delivered.
func TestRefused(t *testing.T) { virtual.Test(t, testRefused) }

func testRefused(t *testing.T) {
	b := start(t, 2, options{})
	busy := errors.New("not now")
	for _, c := range []struct {
		name, words string
		o           options
		self, to    uint64
		admit       *error
	}{
		{"cluster", "to cluster 7, but this member belongs to cluster 1", options{cluster: 7}, 1, 2, nil},
		{"member", "for member 3, but this is member 2", options{}, 1, 3, nil},
		{"itself", "two processes have the same identity", options{}, 2, 2, nil},
		{"admit", "not now", options{}, 1, 2, &busy},
	} {
		virtual.Step(t, c.name, func(t *testing.T) {
			b.admit.Store(c.admit)
			a := start(t, c.self, c.o)
			if c.self == c.to { // Update skips the member itself
				l := newLink(a.Transport, b.peer(c.to), nil)
				_, err := l.try(b.url)
				var remote *remoteError
				if !errors.As(err, &remote) || !strings.Contains(remote.Text, c.words) {
					t.Errorf("error %v", err)
				}
				return
			}
			a.Update([]Peer{b.peer(c.to)})
			a.Send(c.to, bytesMessage("x"))
			until(t, c.words, func() bool { return a.log.Count(c.words) == 1 })
			never(t, "gone", a.gone)
			never(t, "removed", a.removed)
			never(t, "received", b.got)
		})
	}
}

// TestCorrupt checks that a corrupt frame ends its stream, with an explanation on both sides.
// Earlier frames are delivered, no part of the corrupt frame is, and the next stream works.
func TestCorrupt(t *testing.T) { virtual.Test(t, testCorrupt) }

func testCorrupt(t *testing.T) {
	a, b := start(t, 1, options{}), start(t, 2, options{})
	a.Update([]Peer{b.peer(2)})
	a.meet(b, "good")
	s, err := connect(t.Context(), b.url, inMemory(Way{}))
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	// The damaged stream comes from a member with its own ID, because otherwise a's link would
	// immediately open a newer stream.
	damaged := start(t, 3, options{})
	stream, _, err := damaged.greet(t.Context(), s, hello{to: 2}, &messagesDesc)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"before", "damaged"} {
		frame, err := single(1, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if text == "damaged" {
			frame.data[len(frame.data)-1]++
		}
		if err := stream.SendMsg(frame); err != nil {
			t.Fatal(err)
		}
	}
	if got := want(t, b.got); got != "before" {
		t.Errorf("received %q", got)
	}
	for err == nil {
		err = stream.RecvMsg(new(blob))
	}
	var remote *remoteError
	if err := parseRefusal(err, stream.Trailer()); !errors.As(err, &remote) ||
		!strings.Contains(remote.Text, "corrupt frame") {
		t.Errorf("the sender got %v", err)
	}
	if b.log.Count("corrupt frame") != 1 {
		t.Error("not in the log")
	}
	a.meet(b, "after")
}

// TestOverflow checks that Send never blocks. If the receiver does not consume messages, the queue
// stays bounded, the loss is reported, and later messages stay in order.
func TestOverflow(t *testing.T) { virtual.Test(t, testOverflow) }

func testOverflow(t *testing.T) {
	a, b := pair(t, options{})
	hold := make(chan struct{})
	b.hold.Store(&hold)
	message := strings.Repeat("x", 1<<20)
	n := 2 * connectedLimits.bytes / len(message)
	for i := range n {
		a.Send(2, bytesMessage(fmt.Sprintf("%d %s", i, message)))
	}
	if want(t, a.unreachable) != 2 {
		t.Fatal("wrong member")
	}
	l := a.link(2)
	l.mu.Lock()
	if l.queue.bytes > connectedLimits.bytes {
		t.Errorf("%d bytes in the queue", l.queue.bytes)
	}
	l.mu.Unlock()
	b.hold.Store(nil)
	close(hold)
	until(t, "the queue is empty", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.queue.len() == 0
	})
	a.Send(2, bytesMessage("last"))
	last, count := -1, 0
	for {
		text := want(t, b.got)
		if text == "last" {
			break
		}
		var i int
		if _, err := fmt.Sscan(text, &i); err != nil || i <= last {
			t.Fatalf("message %d after %d, %v", i, last, err)
		}
		last, count = i, count+1
	}
	if count >= n || count == 0 {
		t.Errorf("%d of %d arrived", count, n)
	}
}

// TestUpdate checks that Update without a change keeps the connections, and that new URLs replace
// the old ones. A member that left gets no more messages.
func TestUpdate(t *testing.T) { virtual.Test(t, testUpdate) }

func testUpdate(t *testing.T) {
	a, b := pair(t, options{})
	since, _ := a.Since(2)
	a.Update([]Peer{b.peer(2), a.peer(1)})
	if now, ok := a.Since(2); !ok || !now.Equal(since) {
		t.Error("the connection did not survive an update that changed nothing")
	}
	f := forward(t, b.url.Host)
	a.Update([]Peer{{ID: 2, URLs: []url.URL{f.url}}})
	a.meet(b, "through the forwarder")
	if f.count() == 0 {
		t.Error("the old URL is in use")
	}
	out := fmt.Errorf("out: %w", ErrRemoved)
	a.admit.Store(&out)
	a.Update(nil)
	until(t, "2 is no guest either", func() bool { return a.link(2) == nil })
	a.Send(2, bytesMessage("no"))
	if err := a.SendSnapshot(t.Context(), 2, nil, chunks(0, 0)); !errors.Is(err, errUnknown) {
		t.Errorf("snapshot to one that left: %v", err)
	}
	until(t, "the connection is closed", func() bool { return f.count() == 0 })
	never(t, "gone", a.gone)
	never(t, "received", b.got)
}

// TestDescribe checks that any process can ask for the list of members, and gets an error if there
// is no response.
func TestDescribe(t *testing.T) { virtual.Test(t, testDescribe) }

func testDescribe(t *testing.T) {
	b := start(t, 2, options{})
	got, err := Describe(t.Context(), b.url, inMemory(Way{}))
	if err != nil || string(got) != "we are three" {
		t.Errorf("%q, %v", got, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	f := forward(t, b.url.Host)
	f.stall()
	if _, err := Describe(ctx, f.url, inMemory(Way{})); err == nil {
		t.Error("an answer from nowhere")
	}
	if _, err := Describe(t.Context(), closedURL(t), inMemory(Way{})); err == nil {
		t.Error("an answer from a closed port")
	}
}

// TestClose checks that Close ends all activity and can be repeated. Later calls have no effect.
func TestClose(t *testing.T) { virtual.Test(t, testClose) }

func testClose(t *testing.T) {
	a, b := pair(t, options{})
	a.Update([]Peer{b.peer(2), {ID: 3, URLs: []url.URL{closedURL(t)}}})
	for range 100 {
		a.Send(2, bytesMessage("x"))
		a.Send(3, bytesMessage("x"))
	}
	a.stop()
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	a.Update([]Peer{b.peer(2)})
	a.Send(2, bytesMessage("x"))
	if _, ok := a.Since(2); ok {
		t.Error("connected after Close")
	}
	l := virtual.Port(t)
	if err := a.Serve(l); err != nil {
		t.Errorf("serve after Close: %v", err)
	}
}
