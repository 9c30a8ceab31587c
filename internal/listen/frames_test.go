package listen

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"
)

// arrivals is a connection on which each chunk arrives by itself. At the end, it is idle.
type arrivals struct {
	bytesConn
	list [][]byte
	idle func()
}

func (c *arrivals) Read(p []byte) (int, error) {
	if len(c.list) == 0 {
		c.idle()
		return 0, io.EOF
	}
	n := copy(p, c.list[0])
	if c.list[0] = c.list[0][n:]; len(c.list[0]) == 0 {
		c.list = c.list[1:]
	}
	return n, nil
}

// readAll reads a connection like gRPC, which reads the head of each frame and then its payload.
// known reports whether the client has logged in. The result tells which buffers were used while
// the client was sending, and when it had become idle.
func readAll(t *testing.T, known bool, sent ...[]byte) (busy, idle bool) {
	t.Helper()
	all := withStrangers()
	from := all.stranger("10.0.0.1:1")
	from.sender.known.Store(known)
	c := &arrivals{list: sent}
	f := &frames{conn: c, sender: from.sender, pace: newPace(runtime.Gosched)}
	c.idle = func() { idle = f.large != nil }
	framer := http2.NewFramer(io.Discard, readerFunc(func(p []byte) (int, error) {
		n, err := f.Read(p)
		busy = busy || err == nil && f.large != nil
		return n, err
	}))
	for {
		if _, err := framer.ReadFrame(); err != nil {
			return busy, idle
		}
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// dataFrames returns frames with payloads of the given sizes.
func dataFrames(sizes ...int) []byte {
	var b bytes.Buffer
	framer := http2.NewFramer(&b, nil)
	for _, n := range sizes {
		_ = framer.WriteData(1, false, make([]byte, n)) // cannot fail
	}
	return b.Bytes()
}

// TestLargeBuffer checks that a connection has a large buffer only while many small frames arrive.
// An idle connection has none, whatever it received last, and a stranger never has one.
func TestLargeBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		many := dataFrames(slices.Repeat([]int{20}, 1000)...)
		if busy, idle := readAll(t, true, many, dataFrames(20)); !busy || idle {
			t.Errorf("many small frames: large buffer %v, then %v", busy, idle)
		}
		for _, size := range []int{0, 100, 500, 1024, 1100, 2000, 4096, 16384} {
			if _, idle := readAll(t, true, dataFrames(size)); idle {
				t.Errorf("idle after a frame of %d bytes with a large buffer", size)
			}
		}
		if busy, idle := readAll(t, false, many); busy || idle {
			t.Errorf("a stranger: large buffer %v, then %v", busy, idle)
		}
	})
}

// TestBufferedResetsCount checks that resets count against their client's site soon after they have
// been read, even if they all arrived together.
func TestBufferedResetsCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := NewRequests(1, slog.New(slog.DiscardHandler))
		from := all.sender("10.0.0.1:1", func(error) {})
		var b bytes.Buffer
		framer := http2.NewFramer(&b, nil)
		for range 1000 {
			_ = framer.WriteRSTStream(1, http2.ErrCodeCancel) // cannot fail
		}
		f := &frames{
			conn: &arrivals{list: [][]byte{b.Bytes()}, idle: func() {}}, sender: from,
			pace: newPace(runtime.Gosched),
		}
		before := from.site.resets.Tokens()
		for range 900 {
			if _, err := io.ReadFull(f, make([]byte, 13)); err != nil {
				t.Fatal(err)
			}
		}
		if n := before - from.site.resets.Tokens(); n < 900-2*fewOpens {
			t.Errorf("%v resets count, 900 were read", n)
		}
	})
}

// TestHeader checks that Header returns the same values as gRPC's metadata, with and without the
// record that the tap handle makes.
func TestHeader(t *testing.T) {
	all := NewRequests(1, slog.New(slog.DiscardHandler))
	s := all.sender("10.0.0.1:1", func(error) {})
	md := metadata.Pairs("a", "1", "a", "2", "token", "x")
	plain := metadata.NewIncomingContext(t.Context(), md)
	tapped, err := all.tap(
		peer.NewContext(plain, &peer.Peer{Addr: remote{sender: s}}), &tap.Info{Header: md})
	if err != nil {
		t.Fatal(err)
	}
	if requestOf(tapped) == nil {
		t.Fatal("the call has no record")
	}
	for _, ctx := range []context.Context{plain, tapped, t.Context()} {
		for _, key := range []string{"a", "token", "absent"} {
			got, want := Header(ctx, key), metadata.ValueFromIncomingContext(ctx, key)
			if !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", key, got, want)
			}
		}
	}
}

// TestReadsCountAlike checks that requests count the same whether their frames are in the buffer when
// they are read, or arrive byte by byte.
func TestReadsCountAlike(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(1, 2))
		message := func(n int) []byte {
			return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(n)), make([]byte, n)...)
		}
		for range 200 {
			var sent bytes.Buffer
			framer := http2.NewFramer(&sent, nil)
			for range 1 + r.IntN(20) {
				text := slices.Concat(message(r.IntN(300)), message(r.IntN(300)))
				for len(text) > 0 && r.IntN(50) > 0 {
					n := min(r.IntN(200), len(text))
					if padding := make([]byte, r.IntN(2)*r.IntN(50)); len(padding) > 0 {
						_ = framer.WriteDataPadded(1, false, text[:n], padding) // cannot fail
					} else {
						_ = framer.WriteData(1, false, text[:n])
					}
					text = text[n:]
				}
			}
			counted := func(conn io.Reader) (held, whole, begun int64) {
				all := NewRequests(1, slog.New(slog.DiscardHandler))
				from := all.sender("10.0.0.1:1", func(error) {})
				defer from.close()
				from.newest = 1
				in := from.open(t.Context())
				framer := http2.NewFramer(io.Discard, &frames{
					conn: bytesConn{Reader: conn}, sender: from, pace: newPace(runtime.Gosched),
				})
				for {
					if _, err := framer.ReadFrame(); err != nil {
						return from.held, in.whole, in.begun
					}
				}
			}
			h1, w1, b1 := counted(bytes.NewReader(sent.Bytes()))
			h2, w2, b2 := counted(iotest.OneByteReader(bytes.NewReader(sent.Bytes())))
			if h1 != h2 || w1 != w2 || b1 != b2 || h1 == 0 {
				t.Fatalf("buffered: %d bytes, %d messages, %d incomplete; byte by byte: %d, %d, %d",
					h1, w1, b1, h2, w2, b2)
			}
		}
	})
}
