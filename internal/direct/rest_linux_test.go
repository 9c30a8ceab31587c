package direct

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
)

// TestRests: a stream that rests has only the goroutine of its handler and no buffer, and its small
// messages are answered without another. A long message wakes it, and it rests again.
func TestRests(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		var streams []grpc.ClientStream
		var sleepers []*sleepy
		before := 0
		for i := range 40 {
			s, x := b.open(b.dial())
			streams, sleepers = append(streams, s), append(sleepers, x)
			if i == 0 {
				before = goroutines() // with those that are there for all
			}
		}
		for goroutines() > before+39 {
			runtime.Gosched() // those that received are about to end; the test ends if they do not
		}
		for i, s := range streams {
			say(t, s, fmt.Sprint("a message ", i))
			x := sleepers[i]
			x.mu.Lock()
			if x.inline != 1 {
				t.Errorf("%d messages were taken inline", x.inline)
			}
			x.mu.Unlock()
			x.rest.mu.Lock() // until the message is dealt with
			if x.rest.stream.in.buf != nil {
				t.Error("a stream that rests has a buffer")
			}
			x.rest.mu.Unlock()
		}
		say(t, streams[0], strings.Repeat("long", 1000))
		if x := <-b.again; x != sleepers[0] {
			t.Error("another stream than was woken rests again")
		}
		say(t, streams[0], "short")
	})
}

// goroutines counts them while all stand still: [runtime.NumGoroutine] is off by dozens while some
// begin or end.
func goroutines() int {
	stacks := make([]byte, 1<<20)
	return bytes.Count(stacks[:runtime.Stack(stacks, true)], []byte("\n\ngoroutine "))
}

// TestClosedLate: a stream that is to be closed for want of memory ends, though its message has
// come whole by then, and it rests again.
func TestClosedLate(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		s, x := b.open(b.dial())
		say(t, s, strings.Repeat("long", 1000))
		<-b.again
		b.mu.Lock()
		end := b.end
		b.mu.Unlock()
		end()
		<-x.g.Context().Done() // the test ends if it never is
		if m, err := recv(s); err == nil {
			t.Errorf("after the end: %q", m)
		}
	})
}

// TestRestsInPieces: a message that comes byte by byte is received once it is whole, and several
// that come at once one after the other, more of them than are taken at once, too. Then a client
// that sends no more ends the stream.
func TestRestsInPieces(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		c := b.dial()
		s, _ := b.open(c)
		var frames bytes.Buffer
		data, _ := bytesCodec{}.Marshal(new([]byte("piece by piece")))
		if err := writeFrame(&frames, flagMessage, data); err != nil {
			t.Fatal(err)
		}
		for _, x := range frames.Bytes() {
			if _, err := c.Write([]byte{x}); err != nil {
				t.Fatal(err)
			}
		}
		hear(t, s, "piece by piece")
		frames.Reset()
		const n = 10 * maxAtOnce
		for i := range n {
			data, _ := bytesCodec{}.Marshal(new([]byte(fmt.Sprint(i, strings.Repeat("x", i)))))
			if err := writeFrame(&frames, flagMessage, data); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.Write(frames.Bytes()); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			hear(t, s, fmt.Sprint(i, strings.Repeat("x", i)))
		}
		say(t, s, "last")
		if err := s.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if m, err := recv(s); err == nil {
			t.Errorf("after the end: %q", m)
		}
	})
}

// TestRestEnds: a stream that rests ends when its client hangs up, also right after a message; when
// its connection is closed here; and when the server stops.
func TestRestEnds(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		ended := func(x *sleepy) { <-x.g.Context().Done() }
		c := b.dial()
		_, x := b.open(c)
		_ = c.Close()
		ended(x)
		o, other := b.open(b.dial())
		c = b.dial()
		s, x := b.open(c)
		other.mu.Lock() // which keeps the poller, so that it learns of what follows at once
		m := []byte("last words")
		if err := o.SendMsg(&m); err != nil {
			t.Fatal(err)
		}
		for other.rest.mu.TryLock() {
			other.rest.mu.Unlock()
			runtime.Gosched()
		}
		if err := s.SendMsg(&m); err != nil {
			t.Fatal(err)
		}
		if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		other.mu.Unlock()
		ended(x)
		for len(b.l.accepted) > 0 {
			<-b.l.accepted
		}
		_, x = b.open(b.dial())
		_ = (<-b.l.accepted).Close()
		ended(x)
		_, x = b.open(b.dial())
		socket := (<-b.l.accepted).(*Socket)
		_ = socket.Conn.Close() // not by us
		socket.Closed()
		ended(x)
		_, x = b.open(b.dial())
		b.server.Stop()
		ended(x)
	})
}

// TestRestsOfManyConnections: file descriptors are used again and again, and each message goes to
// the stream of its connection. Method: connections that end, some by the client and some by the
// server, while others come that get their file descriptors.
func TestRestsOfManyConnections(t *testing.T) {
	b := newBed(t, false)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 60 {
				c, err := net.Dial("tcp", b.l.Addr().String())
				if err != nil {
					t.Error(err)
					return
				}
				s, err := Open(t.Context(), c, echo, bytesCodec{})
				for j := 0; err == nil && j < 3; j++ {
					m := []byte(fmt.Sprint(w, "/", i, "/", j))
					var got []byte
					if err = s.SendMsg(&m); err == nil {
						got, err = recv(s)
					}
					if err == nil && !bytes.Equal(got, m) {
						t.Errorf("%q for %q", got, m)
					}
				}
				if i%3 == 0 {
					_ = s.CloseSend()
				}
				if err := errors.Join(err, c.Close()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestRestOfSlowReader: a client that reads nothing delays no other, and gets all in the end, in
// order. Method: more answers than small buffers take, and messages of another client meanwhile.
func TestRestOfSlowReader(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		c := b.dial()
		under := c
		if s, ok := c.(*tls.Conn); ok {
			under = s.NetConn()
		}
		if err := under.(*net.TCPConn).SetReadBuffer(1 << 14); err != nil {
			t.Fatal(err)
		}
		slow, _ := b.open(c)
		if err := (<-b.l.accepted).(*Socket).Conn.(*net.TCPConn).SetWriteBuffer(1 << 14); err != nil {
			t.Fatal(err)
		}
		quick, _ := b.open(b.dial())
		const n = 400
		text := strings.Repeat("s", 400)
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() {
			for i := range n {
				m := []byte(fmt.Sprint(i, text))
				if err := slow.SendMsg(&m); err != nil {
					t.Error(err)
					return
				}
			}
		})
		for range n {
			say(t, quick, "quick")
		}
		for i := range n {
			hear(t, slow, fmt.Sprint(i, text))
		}
		say(t, slow, "quick now")
	})
}

// TestSocketKeeps: what a write has no room for is kept, while nobody may wait, and comes before
// what is written later. It is bounded. Method: writes until no more is kept, then a reader.
func TestSocketKeeps(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	accepted := make(chan net.Conn, 1)
	if _, err := (&sockets{Listener: l, accepted: accepted}).Accept(); err != nil {
		t.Fatal(err)
	}
	s := (<-accepted).(*Socket)
	s.resting.Store(true)
	wrote := 0
	write := func(n int) error {
		_, err := s.Write(bytes.Repeat([]byte{byte(wrote)}, n))
		if err == nil {
			wrote++
		}
		return err
	}
	for !s.full() {
		if err := write(maxLeft / 2); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		_ = write(maxLeft / 4) // what is kept already may leave no room
	}
	if err := write(maxLeft); !errors.Is(err, errLeft) {
		t.Fatalf("more than is kept: %v", err)
	}
	s.resting.Store(false)
	total := make(chan []byte, 1)
	go func() {
		all, _ := io.ReadAll(near)
		total <- all
	}()
	if err := errors.Join(write(100), s.Close()); err != nil {
		t.Fatal(err)
	}
	all := <-total
	if last := all[len(all)-100:]; !bytes.Equal(last, bytes.Repeat([]byte{byte(wrote - 1)}, 100)) {
		t.Errorf("the last bytes are %x", last)
	}
	for i := range all[1:] {
		if d := all[i+1] - all[i]; d > 1 {
			t.Fatalf("%d follows %d", all[i+1], all[i])
		}
	}
}

// lastOne is a connection on which a message came, and then a part of what is none. TLS says both
// at once.
type lastOne struct {
	net.Conn
	text []byte
}

func (c *lastOne) Read(p []byte) (int, error) {
	n := copy(p, c.text)
	c.text = c.text[n:]
	return n, errWouldWait
}

// TestMessageBeforeNothing: a message that is read together with the news that more has to be
// waited for is not left until more comes.
func TestMessageBeforeNothing(t *testing.T) {
	var frame bytes.Buffer
	data, _ := bytesCodec{}.Marshal(new([]byte("first")))
	if err := writeFrame(&frame, flagMessage, data); err != nil {
		t.Fatal(err)
	}
	r := reader{c: &lastOne{text: frame.Bytes()}}
	if got := r.next(); got != message {
		t.Errorf("%d comes, want a message", got)
	}
	r.r = r.w
	if got := r.next(); got != nothing {
		t.Errorf("then %d comes, want nothing", got)
	}
}

// parting is a connection that takes long to close.
type parting struct {
	net.Conn
	closes, closed chan struct{}
}

func (c *parting) Close() error {
	close(c.closes)
	<-c.closed
	return c.Conn.Close()
}

// cutter ends each connection of which a long message comes.
type cutter struct{}

func (cutter) Receive(_ string, _ int, end func()) (func(), error) {
	end()
	return func() {}, nil
}

// TestNoRestAtTheEnd: a stream whose connection is about to be closed does not rest any more: TLS
// may wait for a client that reads nothing, and what answers for it in the place of all would, too.
func TestNoRestAtTheEnd(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	c := &parting{Conn: far, closes: make(chan struct{}), closed: make(chan struct{})}
	defer close(c.closed)
	g := &serverStream{server: NewServer(Options{Requests: cutter{}}), c: c}
	if _, err := g.hold(1); err != nil {
		t.Fatal(err)
	}
	<-c.closes
	g.rest.mu.Lock()
	defer g.rest.mu.Unlock()
	if !g.rest.closed {
		t.Error("the stream may begin to rest")
	}
}
