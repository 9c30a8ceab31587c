package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"testing"

	"golang.org/x/net/http2"

	"leasehold.dev/test/virtual"
)

// A glutton makes a member buffer data of requests that never end.
type glutton struct {
	*stranger
	limit int // maximum number of bytes to send
	sent  int
}

// pour sends bytes. It returns false once the limit is reached or the connection has failed.
func (g *glutton) pour(b []byte) bool {
	n, err := g.conn.Write(b)
	g.sent += n
	g.err = err
	return err == nil && g.sent < g.limit
}

// frames splits data into DATA frames; each is their maximum size.
func frames(stream uint32, data []byte, each int) []byte {
	var out bytes.Buffer
	framer := http2.NewFramer(&out, nil)
	for len(data) > 0 {
		n := min(each, len(data))
		_ = framer.WriteData(stream, false, data[:n]) // writing to memory cannot fail
		data = data[n:]
	}
	return out.Bytes()
}

// message returns a gRPC message of size bytes.
func message(size int) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(size)), make([]byte, size)...)
}

// begin opens the next stream.
func (g *glutton) begin(call byte) uint32 {
	g.send(sendOpen, call)
	return g.newest
}

// TestUnfinishedRequestsAreBounded checks, on both ports, that a member bounds how much incomplete
// or unread request data it buffers for each connection.
func TestUnfinishedRequestsAreBounded(t *testing.T) {
	const most = 96 << 20
	bubble := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) { virtual.Test(t, f) })
	}
	for name, does := range map[string]func(g *glutton){
		"large messages without an end": func(g *glutton) {
			for g.pour(frames(g.begin(1), message(1 << 20)[:1<<20-100], 16<<10)) {
			}
		},
		"a message in the smallest pieces": func(g *glutton) {
			for g.pour(frames(g.begin(1), message(1 << 20)[:1<<20-100], 1)) {
			}
		},
		"calls without an end": func(g *glutton) {
			key := append([]byte{1<<3 | 2, 0x80, 0x80, 0x3c}, make([]byte, 0x3c<<14)...) // 960 KiB
			call := message(len(key))
			copy(call[5:], key)
			for g.pour(frames(g.begin(1), call, 16<<10)) {
			}
		},
		"streams whose answers are not read": func(g *glutton) {
			g.settings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
			g.await()
			many := bytes.Repeat(message(0), (1<<20)/5-100)
			for g.pour(frames(g.begin(3), many, 16<<10)) {
			}
		},
	} {
		bubble(name, func(t *testing.T) {
			r := run(t, testConfig(shortDir(t)))
			g := &glutton{stranger: newStranger(t, r.cfg.URLs.ListenClient[0].Path), limit: 4 * most}
			g.calls = strangersCalls[0][:]
			does(g)
			if g.sent > most {
				t.Errorf("the member took %d bytes", g.sent)
			}
			g.end()
			if _, err := r.client.Get(context.Background(), "k"); err != nil {
				t.Error(err)
			}
		})
	}
	bubble("the peer port", func(t *testing.T) {
		r := run(t, testConfig(shortDir(t)))
		g := &glutton{stranger: newStranger(t, r.cfg.URLs.ListenPeer[0].Path), limit: 4 * most}
		g.calls = strangersCalls[1][:]
		g.hello = fmt.Sprintf("1 %x %x %x %x", r.node.cluster, r.node.member+1, r.node.member, 1)
		for g.pour(frames(g.begin(0), message(4 << 20)[:4<<20-100], 16<<10)) {
			if g.newest > 100 {
				break
			}
		}
		if g.sent > 16<<20 { // allows for two messages and buffered data
			t.Errorf("the member took %d bytes", g.sent)
		}
		g.end()
	})
}
