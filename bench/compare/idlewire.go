package compare

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"
)

// wireConn is an HTTP/2 connection for gRPC that costs this process one goroutine and a few hundred
// bytes. A grpc-go connection would cost this process more than the connection costs the measured
// server. A wireConn never updates the flow-control window, so it can receive a few megabytes at
// most.
type wireConn struct {
	net.Conn
	headers hpack.Encoder
	block   bytes.Buffer
	in      [512]byte
	had     int    // bytes read into in but not processed yet
	data    []byte // part of an incomplete message

	mu sync.Mutex // guards writes
}

const wireWindow = 1 << 24

// dialWire connects to an address, with TLS if conf is not nil.
func dialWire(ctx context.Context, addr string, conf *tls.Config) (*wireConn, error) {
	raw, err := dialRaw(ctx, addr, conf)
	if err != nil {
		return nil, err
	}
	c := &wireConn{Conn: raw}
	c.headers = *hpack.NewEncoder(&c.block)
	var b bytes.Buffer
	b.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&b, nil)
	err = errors.Join(
		f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: wireWindow}),
		f.WriteWindowUpdate(0, wireWindow))
	if err == nil {
		_, err = raw.Write(b.Bytes())
	}
	if err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	return c, nil
}

// dialRaw creates the connection underlying a protocol.
func dialRaw(ctx context.Context, addr string, conf *tls.Config) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil || conf == nil {
		return c, err
	}
	t := tls.Client(c, conf)
	if err := t.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return t, nil
}

// open starts a call on a stream.
func (c *wireConn) open(stream uint32, method string) error {
	c.block.Reset()
	for _, h := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", method},
		{":authority", "localhost"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
	} {
		if err := c.headers.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}); err != nil {
			return err
		}
	}
	var b bytes.Buffer
	err := http2.NewFramer(&b, nil).WriteHeaders(http2.HeadersFrameParam{
		StreamID: stream, BlockFragment: c.block.Bytes(), EndHeaders: true,
	})
	if err != nil {
		return err
	}
	return c.write(b.Bytes())
}

// send sends a message on a stream. If last is set, the message is the last one.
func (c *wireConn) send(stream uint32, m proto.Message, last bool) error {
	const head = 9 + 5
	b, err := proto.MarshalOptions{}.MarshalAppend(make([]byte, head, 128), m)
	if err != nil {
		return err
	}
	n := len(b) - head
	binary.BigEndian.PutUint32(b, uint32(n+5)<<8|uint32(http2.FrameData))
	if last {
		b[4] = byte(http2.FlagDataEndStream)
	}
	binary.BigEndian.PutUint32(b[5:], stream)
	binary.BigEndian.PutUint32(b[10:], uint32(n))
	return c.write(b)
}

func (c *wireConn) write(b []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.Write(b)
	return err
}

// receive reads messages until the connection ends or take returns an error.
func (c *wireConn) receive(take func(stream uint32, message []byte) error) error {
	for {
		n, err := c.frame(c.in[:c.had], take)
		c.had = copy(c.in[:], c.in[n:c.had])
		switch {
		case err != nil:
			return err
		case n > 0:
			continue
		case c.had == len(c.in):
			return errors.New("bench: a frame is too long for this client")
		}
		n, err = c.Read(c.in[c.had:])
		if c.had += n; n == 0 && err != nil {
			return err
		}
	}
}

// frame processes the frame at the start of b and returns its length, or 0 if it is incomplete.
func (c *wireConn) frame(b []byte, take func(uint32, []byte) error) (int, error) {
	if len(b) < 9 {
		return 0, nil
	}
	n := 9 + int(binary.BigEndian.Uint32(b)>>8)
	if len(b) < n {
		return 0, nil
	}
	kind, flags, body := http2.FrameType(b[3]), http2.Flags(b[4]), b[9:n]
	stream := binary.BigEndian.Uint32(b[5:])
	switch kind {
	case http2.FrameData:
		return n, c.messages(stream, body, take)
	case http2.FrameSettings, http2.FramePing:
		const ack = 1
		if flags&ack != 0 {
			break
		}
		answer := append([]byte{0, 0, 0, byte(kind), ack, 0, 0, 0, 0}, body...)
		if kind == http2.FrameSettings {
			answer = answer[:9]
		}
		answer[2] = byte(len(answer) - 9)
		return n, c.write(answer)
	case http2.FrameGoAway, http2.FrameRSTStream:
		return n, fmt.Errorf("bench: the server ended the stream: %v %q", kind, body)
	}
	return n, nil
}

// messages processes the complete messages of a stream. Only one stream at a time may have an
// incomplete message.
func (c *wireConn) messages(stream uint32, b []byte, take func(uint32, []byte) error) error {
	c.data = append(c.data, b...)
	for len(c.data) >= 5 {
		n := 5 + int(binary.BigEndian.Uint32(c.data[1:]))
		if len(c.data) < n {
			return nil
		}
		m := c.data[5:n]
		c.data = c.data[n:]
		if err := take(stream, m); err != nil {
			return err
		}
	}
	if len(c.data) == 0 {
		c.data = nil
	}
	return nil
}
