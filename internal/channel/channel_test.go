package channel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
)

// pipe is one end of an in-memory stream that buffers one message.
type pipe struct {
	out chan<- []*pb.RelayFrame
	in  <-chan []*pb.RelayFrame
	end <-chan struct{}
}

// Send implements Stream.
func (p pipe) Send(m []*pb.RelayFrame) error {
	select {
	case p.out <- m:
		return nil
	case <-p.end:
		return io.EOF
	}
}

// Recv implements Stream.
func (p pipe) Recv() ([]*pb.RelayFrame, error) {
	select {
	case m := <-p.in:
		return m, nil
	case <-p.end:
		return nil, io.EOF
	}
}

type served struct {
	*Channel
	call *pb.RelayCall
	ctx  context.Context // canceled when the client cancels the call
}

// joined connects a relay to a member in virtual time. It runs f with the relay's end of the link
// and the calls that the member receives.
func joined(t *testing.T, most int, f func(t *testing.T, relay *Link, calls <-chan served)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		up, down := make(chan []*pb.RelayFrame, 1), make(chan []*pb.RelayFrame, 1)
		end := make(chan struct{})
		calls := make(chan served, 16)
		relay := New(pipe{up, down, end}, most, nil)
		member := New(pipe{down, up, end}, most, func(c *Channel, call *pb.RelayCall) func() {
			ctx, cancel := context.WithCancel(context.Background())
			calls <- served{c, call, ctx}
			return cancel
		})
		for _, l := range []*Link{relay, member} {
			go func() { _ = l.Run(t.Context()) }() // ends with the stream
		}
		f(t, relay, calls)
		close(end)
		synctest.Wait()
	})
}

func open(t *testing.T, l *Link, name string) *Channel {
	t.Helper()
	c, err := l.Open(&pb.RelayCall{Method: name})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func send(t *testing.T, c *Channel, b []byte) {
	t.Helper()
	if err := c.Send(t.Context(), b); err != nil {
		t.Fatal(err)
	}
}

func wants(t *testing.T, c *Channel, want []byte) {
	t.Helper()
	if got, err := c.Recv(t.Context()); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("received %d bytes, %v; want %d", len(got), err, len(want))
	}
}

// TestEcho checks that each channel delivers its own messages, complete, in order and of any size,
// and its own status.
func TestEcho(t *testing.T) {
	joined(t, 1<<20, func(t *testing.T, relay *Link, calls <-chan served) {
		messages := func(name string) (out [][]byte) {
			for _, n := range []int{0, 1, shortMessage, pieceSize, pieceSize + 1, 3 * window, 5} {
				out = append(out, bytes.Repeat([]byte(name[len(name)-1:]), n))
			}
			return out
		}
		for range 5 {
			go func() {
				c := <-calls
				c.SendHeader(&pb.RelayHeader{Headers: []*pb.RelayHeaderField{{Name: c.call.Method}}})
				for {
					b, err := c.Recv(t.Context())
					if err != nil {
						c.End(&pb.RelayEnd{Code: 7, Message: fmt.Sprint(c.call.Method, err)})
						return
					}
					if c.Send(t.Context(), b) != nil {
						return
					}
				}
			}()
		}
		over := make(chan error, 5)
		for i := range 5 {
			name := fmt.Sprint("m", i)
			c := open(t, relay, name)
			go func() {
				for _, m := range messages(name) {
					if c.Send(t.Context(), m) != nil {
						return
					}
				}
				c.CloseSend()
			}()
			go func() {
				for _, m := range messages(name) {
					if got, err := c.Recv(t.Context()); err != nil || !bytes.Equal(got, m) {
						over <- fmt.Errorf("%s: %d bytes %.10q, %w; want %d", name, len(got), got, err, len(m))
						return
					}
				}
				_, err := c.Recv(t.Context())
				if e := c.Ended(); err != io.EOF || e == nil || e.Message != name+"EOF" ||
					c.Header().GetHeaders()[0].Name != name {
					over <- fmt.Errorf("%s ended with %w: %v, %v", name, err, e, c.Header())
					return
				}
				over <- nil
			}()
		}
		for range 5 {
			if err := <-over; err != nil {
				t.Error(err)
			}
		}
		if n := relay.Channels(); n != 0 {
			t.Errorf("%d channels left", n)
		}
	})
}

// TestFull checks that a client that does not read blocks its own channel after a bounded number of
// bytes, but no other channel.
func TestFull(t *testing.T) {
	for _, size := range []int{0, 100, pieceSize} {
		joined(t, 1<<20, func(t *testing.T, relay *Link, calls <-chan served) {
			stuck, other := open(t, relay, "stuck"), open(t, relay, "other")
			full, well := <-calls, <-calls
			sent := 0
			ctx, cancel := context.WithCancel(t.Context())
			stopped := make(chan struct{})
			go func() {
				defer close(stopped)
				for full.Send(ctx, make([]byte, size)) == nil {
					sent++
				}
			}()
			synctest.Wait()
			for i := range 2000 { // exceeds the window
				send(t, well.Channel, []byte{byte(i)})
				wants(t, other, []byte{byte(i)})
				send(t, other, []byte{byte(i)})
				wants(t, well.Channel, []byte{byte(i)})
			}
			cancel()
			<-stopped
			if n := sent * (size + cost); n < window || n > window+pieceSize+cost {
				t.Errorf("%d messages of %d bytes were sent to a client that does not read", sent, size)
			}
			for range sent { // all of them arrive
				wants(t, stuck, make([]byte, size))
			}
			send(t, full.Channel, []byte("more"))
			wants(t, stuck, []byte("more"))
		})
	}
}

// TestShortFirst checks that a short message overtakes the pieces of a long one.
func TestShortFirst(t *testing.T) {
	l := New(nil, 1<<20, nil)
	long, short := open(t, l, "long"), open(t, l, "short")
	send(t, long, make([]byte, 2*pieceSize))
	send(t, long, []byte("after"))
	send(t, short, []byte("renewal"))
	frames, _ := l.next()
	var order []string
	for _, f := range frames {
		switch {
		case f.Call != nil:
			order = append(order, "open "+f.Call.Method)
		default:
			order = append(order, fmt.Sprint(f.Channel, ":", len(f.Data)))
		}
	}
	want := "open long open short 2:7 1:16384 1:16384 1:5"
	if got := strings.Join(order, " "); got != want {
		t.Errorf("order %s, want %s", got, want)
	}
	send(t, long, []byte("short again"))
	if frames, _ := l.next(); len(frames) != 1 || len(l.long) > 0 || long.long != 0 {
		t.Errorf("%d frames; %d waiting", len(frames), len(l.long))
	}
}

// TestEnds checks both ways in which a call can end. A call canceled by the client ends at the
// member. For a call ended by the member, everything sent before the end is delivered, and later
// frames are ignored.
func TestEnds(t *testing.T) {
	joined(t, 1<<20, func(t *testing.T, relay *Link, calls <-chan served) {
		given := open(t, relay, "canceled")
		at := <-calls
		given.End(&pb.RelayEnd{Code: 1})
		<-at.ctx.Done()
		if _, err := at.Recv(t.Context()); !errors.Is(err, io.EOF) {
			t.Errorf("canceled call: %v", err)
		}
		if err := at.Send(t.Context(), nil); !errors.Is(err, errEnded) {
			t.Errorf("send: %v", err)
		}
		if a, b := relay.Channels(), at.link.Channels(); a+b != 0 {
			t.Errorf("%d and %d channels left", a, b)
		}
		c := open(t, relay, "ended")
		at = <-calls
		send(t, at.Channel, make([]byte, window)) // fills the window, so the end must wait
		at.End(&pb.RelayEnd{Message: "why"})
		if err := c.Send(t.Context(), []byte("late")); err != nil && !errors.Is(err, errEnded) {
			t.Error(err) // the end may or may not have arrived
		}
		wants(t, c, make([]byte, window))
		if _, err := c.Recv(t.Context()); err != io.EOF || c.Ended().GetMessage() != "why" {
			t.Errorf("%v, %v", err, c.Ended())
		}
		if a, b := relay.Channels(), at.link.Channels(); a+b != 0 {
			t.Errorf("%d and %d channels left", a, b)
		}
	})
}

// TestHeaderComesFirst checks that the receiver is notified once if a header arrives before the
// first message.
func TestHeaderComesFirst(t *testing.T) {
	joined(t, 1<<20, func(t *testing.T, relay *Link, calls <-chan served) {
		c := open(t, relay, "header")
		at := <-calls
		at.SendHeader(&pb.RelayHeader{})
		if _, err := c.RecvOr(t.Context(), nil); !errors.Is(err, ErrOther) || c.Header() == nil {
			t.Errorf("%v, header %v", err, c.Header())
		}
		send(t, at.Channel, []byte("message"))
		wants(t, c, []byte("message"))
		c.End(&pb.RelayEnd{})
	})
}

// TestEndsWhileFull checks that a Send blocked on the window returns when its channel or the stream
// ends.
func TestEndsWhileFull(t *testing.T) {
	for name, end := range map[string]func(*Channel, *Link){
		"channel":  func(c *Channel, _ *Link) { c.End(&pb.RelayEnd{}) },
		"canceled": func(c *Channel, _ *Link) { c.CloseSend() },
		"stream":   func(_ *Channel, l *Link) { l.End(io.EOF) },
	} {
		joined(t, 1<<20, func(t *testing.T, relay *Link, calls <-chan served) {
			c := open(t, relay, "full")
			<-calls
			over := make(chan error, 1)
			go func() { over <- c.Send(context.Background(), make([]byte, 2*window)) }()
			synctest.Wait()
			end(c, relay)
			if err := <-over; !errors.Is(err, errEnded) && !errors.Is(err, ErrLost) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// TestFinish checks that Finish sends all pending frames before the link ends.
func TestFinish(t *testing.T) {
	joined(t, 1<<20, func(t *testing.T, relay *Link, calls <-chan served) {
		c := open(t, relay, "last")
		at := <-calls
		send(t, at.Channel, make([]byte, window))
		at.End(&pb.RelayEnd{Message: "why"})
		at.link.Finish(io.EOF)
		wants(t, c, make([]byte, window))
		if _, err := c.Recv(t.Context()); err != io.EOF || c.Ended().GetMessage() != "why" {
			t.Errorf("%v, %v", err, c.Ended())
		}
		<-at.link.Done()
	})
}

// TestBatches checks that batches stay within the stream's message limit and below the size at
// which sending is delayed, for pieces, calls and statuses of every size.
func TestBatches(t *testing.T) {
	l := New(nil, 1<<20, nil)
	long := strings.Repeat("a", pieceSize/2)
	for range 20 {
		c, err := l.Open(&pb.RelayCall{Address: long})
		if err != nil {
			t.Fatal(err)
		}
		c.SendHeader(&pb.RelayHeader{Headers: []*pb.RelayHeaderField{{Name: long}}})
		send(t, c, make([]byte, 3*pieceSize))
		c.End(&pb.RelayEnd{Message: long})
	}
	frames := 0
	for {
		list, _ := l.next()
		if frames += len(list); len(list) == 0 {
			break
		}
		if n := proto.Size(&pb.RelayRequest{Frames: list}); n >= 64<<10 {
			t.Errorf("a batch of %d frames has %d bytes", len(list), n)
		}
	}
	if frames != 20*6 {
		t.Errorf("%d frames received", frames)
	}
}

// TestLost checks that when the stream ends, all calls fail with ErrLost.
func TestLost(t *testing.T) {
	joined(t, 1<<20, func(t *testing.T, relay *Link, calls <-chan served) {
		c := open(t, relay, "lost")
		at := <-calls
		relay.End(io.ErrUnexpectedEOF)
		if _, err := c.Recv(t.Context()); !errors.Is(err, ErrLost) || c.Ended() != nil {
			t.Errorf("received %v, %v", err, c.Ended())
		}
		if err := c.Send(t.Context(), nil); !errors.Is(err, ErrLost) {
			t.Errorf("sent: %v", err)
		}
		if _, err := relay.Open(&pb.RelayCall{}); !errors.Is(err, ErrLost) {
			t.Errorf("opened: %v", err)
		}
		<-relay.Done()
		at.link.End(io.EOF)
		<-at.ctx.Done()
	})
}

// TestTooLarge checks that a message above the limit ends only its own call, no matter how it is
// split into pieces.
func TestTooLarge(t *testing.T) {
	joined(t, 2*pieceSize, func(t *testing.T, relay *Link, calls <-chan served) {
		c := open(t, relay, "large")
		at := <-calls
		send(t, c, make([]byte, 2*pieceSize))
		wants(t, at.Channel, make([]byte, 2*pieceSize))
		send(t, c, make([]byte, 2*pieceSize+1))
		if _, err := at.Recv(t.Context()); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("message above the limit: %v", err)
		}
	})
}

// TestProtocol checks that violating the window or opening a channel twice ends the stream. Either
// could exhaust memory or mix up calls.
func TestProtocol(t *testing.T) {
	full := func() (list []*pb.RelayFrame) {
		list = append(list, &pb.RelayFrame{Channel: 1, Call: &pb.RelayCall{}})
		for range window/(pieceSize+cost) + 2 {
			list = append(list, &pb.RelayFrame{Channel: 1, Data: make([]byte, pieceSize), EndMessage: true})
		}
		return list
	}
	for name, frames := range map[string][]*pb.RelayFrame{
		"room":  full(),
		"piece": {{Channel: 1, Call: &pb.RelayCall{}}, {Channel: 1, Data: make([]byte, pieceSize+1)}},
		"twice": {{Channel: 1, Call: &pb.RelayCall{}}, {Channel: 1, Call: &pb.RelayCall{}}},
		"window that was not used": {
			{Channel: 1, Call: &pb.RelayCall{}}, {Channel: 1, Window: 1},
		},
		"data after the end": {
			{Channel: 1, Call: &pb.RelayCall{}, HalfClose: true}, {Channel: 1, EndMessage: true},
		},
	} {
		l := New(nil, 1<<20, func(*Channel, *pb.RelayCall) func() { return nil })
		if err := l.receive(frames); !errors.Is(err, errProtocol) {
			t.Errorf("%s: %v", name, err)
		}
		l = New(nil, 1<<20, func(*Channel, *pb.RelayCall) func() { return nil })
		if err := l.receive(frames[:len(frames)-1]); err != nil {
			t.Errorf("%s, before the last frame: %v", name, err)
		}
	}
}

// TestAnswers checks that a live member answers a probe, and that an unresponsive one is detected.
func TestAnswers(t *testing.T) {
	joined(t, 1<<20, func(t *testing.T, relay *Link, _ <-chan served) {
		for range 3 {
			if !relay.Answers(t.Context(), time.Second) {
				t.Error("a live member does not answer")
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		l := New(nil, 1<<20, nil)
		began := time.Now()
		if l.Answers(t.Context(), time.Second) {
			t.Error("a silent member answers")
		}
		notify(l.received)
		if !l.Answers(t.Context(), time.Second) || time.Since(began) != time.Second {
			t.Error("a member that has just sent something is probed")
		}
		if l.Answers(t.Context(), time.Second) {
			t.Error("a member that has been silent since answers")
		}
	})
}

// TestReadsNothing checks that a relay that does not read cannot exhaust a member's memory by
// sending frames that do not count against the window. Here the member answers each frame, but its
// answers cannot be sent.
func TestReadsNothing(t *testing.T) {
	refuse := func(c *Channel, _ *pb.RelayCall) func() {
		go c.End(&pb.RelayEnd{})
		return nil
	}
	for name, frames := range map[string]func(i uint64) []*pb.RelayFrame{
		"probes": func(uint64) []*pb.RelayFrame { return []*pb.RelayFrame{{}} },
		"refused calls": func(i uint64) []*pb.RelayFrame {
			return []*pb.RelayFrame{{Channel: i, Call: &pb.RelayCall{}}}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := New(nil, 1<<20, refuse)
			for i := range uint64(2 * maxFree) {
				err := l.receive(frames(i + 1))
				if i%1024 == 0 {
					synctest.Wait()
				}
				if err == nil {
					continue
				}
				if !errors.Is(err, errProtocol) || i < maxFree/2 {
					t.Errorf("%s, %d times: %v", name, i, err)
				}
				return
			}
			t.Errorf("%s: %d frames waiting", name, len(l.short))
		})
	}
	// Frames that have already been sent do not count.
	l := New(nil, 1<<20, refuse)
	for range 2 * maxFree {
		if err := l.receive([]*pb.RelayFrame{{}}); err != nil {
			t.Fatal(err)
		}
		l.next()
	}
}

// TestOutcomesAreBounded checks that a relay that does not read its outcomes is rejected once they
// contain too many groups in total.
func TestOutcomesAreBounded(t *testing.T) {
	const groups = 64
	l := New(nil, 1<<20, func(*Channel, *pb.RelayCall) func() { return nil })
	l.TakeGroups(1, func(_ *Channel, f *pb.RelayFrame) {
		o := &pb.RelayRoundOutcome{Number: f.Round.Number, Groups: make([]*pb.RelayGroup, groups)}
		for i := range o.Groups {
			o.Groups[i] = &pb.RelayGroup{}
		}
		l.SendGroups(&pb.RelayFrame{Outcome: o})
	})
	rounds := func(most uint64, sent bool) (n uint64, err error) {
		for err == nil && n < most {
			n++
			err = l.receive([]*pb.RelayFrame{{Round: &pb.RelayRound{Number: n}}})
			if sent {
				l.next()
			}
		}
		return n, err
	}
	if n, err := rounds(2*maxFree/groups, true); err != nil {
		t.Errorf("round %d, when all were sent: %v", n, err)
	}
	if n, err := rounds(2*maxFree/groups, false); !errors.Is(err, errProtocol) {
		t.Errorf("after %d rounds, when none was sent: %v", n, err)
	}
}

// TestTooManyCalls checks that a relay's calls and their headers are limited. A call above the
// limit is rejected, and no other call ends.
func TestTooManyCalls(t *testing.T) {
	accepted := 0
	l := New(nil, 1<<20, func(*Channel, *pb.RelayCall) func() { accepted++; return nil })
	take := func(id uint64, call *pb.RelayCall) []*pb.RelayFrame {
		t.Helper()
		frames := []*pb.RelayFrame{{Channel: id, Call: call}, {Channel: id, EndMessage: true}}
		if err := l.receive(frames); err != nil {
			t.Fatal(err)
		}
		frames, _ = l.next()
		return frames
	}
	refused := func(out []*pb.RelayFrame, id uint64) bool {
		return len(out) == 1 && out[0].Channel == id &&
			out[0].End.GetCode() == int32(codes.ResourceExhausted)
	}
	if !refused(take(1, &pb.RelayCall{Address: strings.Repeat("a", maxCall)}), 1) || accepted != 0 {
		t.Error("a call with huge headers was accepted")
	}
	for i := range uint64(maxChannels) {
		if out := take(i+2, &pb.RelayCall{}); len(out) != 0 {
			t.Fatalf("call %d: %v", i, out)
		}
	}
	if !refused(take(maxChannels+2, &pb.RelayCall{}), maxChannels+2) || accepted != maxChannels {
		t.Errorf("%d calls were accepted", accepted)
	}
	over := []*pb.RelayFrame{{Channel: 2, End: &pb.RelayEnd{}}}
	if err := l.receive(over); err != nil || len(take(maxChannels+3, &pb.RelayCall{})) != 0 {
		t.Errorf("after another call ended: %v", err)
	}
}

// TestGroupFrames checks that frames about groups are passed to the TakeGroups function in order,
// along with their channel if they have one. Messages passed to Deliver are received as if the
// member had sent them.
func TestGroupFrames(t *testing.T) {
	var got []string
	take := func(c *Channel, f *pb.RelayFrame) {
		got = append(got, fmt.Sprint(c != nil, f.Joined.GetAnsweredRounds(), f.Round.GetNumber(),
			f.Outcome.GetNumber()))
		if c != nil {
			c.Deliver([]byte("answer"))
		}
	}
	l := New(nil, 1<<20, nil)
	l.TakeGroups(7, take)
	c := open(t, l, "call")
	if err := l.receive([]*pb.RelayFrame{
		{Outcome: &pb.RelayRoundOutcome{Number: 1}},
		{Channel: c.id, Joined: &pb.RelayJoined{AnsweredRounds: 2}},
		{Channel: c.id + 1, Joined: &pb.RelayJoined{AnsweredRounds: 3}},
		{Round: &pb.RelayRound{Number: 4}},
	}); err != nil {
		t.Fatal(err)
	}
	// The client of the third frame has left.
	if want := []string{"false 0 0 1", "true 2 0 0", "false 3 0 0", "false 0 4 0"}; !slices.Equal(
		got, want) {
		t.Errorf("took %q, want %q", got, want)
	}
	wants(t, c, []byte("answer"))
	l.next()
	l.SendGroups(&pb.RelayFrame{Round: &pb.RelayRound{Number: 5}})
	c.SendJoined(&pb.RelayJoined{AnsweredRounds: 6})
	if out, _ := l.next(); len(out) != 2 || out[0].Round.GetNumber() != 5 ||
		out[1].Joined.GetAnsweredRounds() != 6 || out[1].Channel != c.id || c.Keeper() != 7 {
		t.Errorf("sent %v", out)
	}
	if n := c.Behind(); n != 0 {
		t.Errorf("backlog %d", n)
	}
	c.End(&pb.RelayEnd{})
	l.next()
	c.SendJoined(&pb.RelayJoined{AnsweredRounds: 7})
	if out, _ := l.next(); len(out) != 1 || out[0].Joined.GetAnsweredRounds() != 7 {
		t.Errorf("sent after the end of the call: %v", out)
	}
}

// TestDeliverBetweenPieces checks that a message passed to Deliver between the pieces of another
// message does not become part of that message.
func TestDeliverBetweenPieces(t *testing.T) {
	l := New(nil, 1<<20, nil)
	c := open(t, l, "call")
	piece := func(text string, whole bool) {
		t.Helper()
		f := &pb.RelayFrame{Channel: c.id, Data: []byte(text), EndMessage: whole}
		if err := l.receive([]*pb.RelayFrame{f}); err != nil {
			t.Fatal(err)
		}
	}
	piece("long ", false)
	token := make(chan struct{}, 1)
	token <- struct{}{}
	if _, err := c.RecvOr(t.Context(), token); !errors.Is(err, ErrOther) { // consumes the piece
		t.Fatal(err)
	}
	c.Deliver([]byte("answer"))
	wants(t, c, []byte("answer"))
	piece("message", true)
	wants(t, c, []byte("long message"))
}

// TestCount checks that Count reports the bytes held at one end, waiting either to be sent or to be
// received. Nothing remains once the channel has ended, no matter which end closed it.
func TestCount(t *testing.T) {
	for _, end := range []string{"received", "ended here", "ended there", "link"} {
		t.Run(end, func(t *testing.T) {
			joined(t, 1<<20, func(t *testing.T, relay *Link, calls <-chan served) {
				c := open(t, relay, "m")
				var kept int
				c.Count(func(n int) { kept += n })
				at := <-calls
				send(t, at.Channel, make([]byte, 3*pieceSize))
				c.Deliver(make([]byte, 1000))
				synctest.Wait()
				if kept < 3*pieceSize+1000 || kept > 4*pieceSize {
					t.Errorf("%d bytes are kept", kept)
				}
				switch end {
				case "received":
					wants(t, c, make([]byte, 1000))
					wants(t, c, make([]byte, 3*pieceSize))
				case "ended there":
					at.End(&pb.RelayEnd{})
					synctest.Wait()
				case "link":
					relay.End(io.ErrClosedPipe)
				}
				if end != "received" {
					c.End(&pb.RelayEnd{})
				}
				synctest.Wait()
				if kept != 0 {
					t.Errorf("%d bytes are left", kept)
				}
			})
		})
	}
}

// TestCountUnsent checks that unsent bytes count until they are sent, even if the channel ends
// first.
func TestCountUnsent(t *testing.T) {
	l := New(nil, 1<<20, nil)
	c := open(t, l, "m")
	var kept int
	c.Count(func(n int) { kept += n })
	send(t, c, make([]byte, 2*pieceSize))
	c.End(&pb.RelayEnd{})
	if kept != 2*pieceSize {
		t.Errorf("%d bytes are kept", kept)
	}
	for frames, _ := l.next(); len(frames) > 0; frames, _ = l.next() {
	}
	if kept != 0 {
		t.Errorf("%d bytes are left", kept)
	}
	c = open(t, l, "m")
	c.Count(func(n int) { kept += n })
	send(t, c, make([]byte, 2*pieceSize))
	if l.End(io.EOF); kept != 0 {
		t.Errorf("%d bytes are left after the link", kept)
	}
}
