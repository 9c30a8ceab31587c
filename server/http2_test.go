package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"leasehold.dev/internal/transport"
	"leasehold.dev/test/virtual"
)

// These are the steps of a script. Each step is two bytes: an action and an argument.
const (
	sendOpen     byte = iota // open the next stream with the call that argument%8 selects
	sendMessage              // send a whole message
	sendRubbish              // send argument bytes that do not form a message
	sendEmpty                // send an empty frame
	sendWindow               // grow the window of a stream or of the connection by argument bytes
	sendReset                // reset a stream
	sendSettings             // change a setting
	awaitRead                // wait until the member has read everything sent
	sendAgain                // send the headers of an open stream again
	sendOdd                  // open a stream with headers that no library sends
	sendRaw                  // send a frame of any type
	sendGoAway
	scriptSteps
)

// These flags are part of a step's argument. Its lowest three bits select a call, or a stream
// counted back from the newest.
const (
	sendEnd         = 1 << 3 // end the stream with this frame
	wholeConnection = 1 << 4 // act on the connection instead of a stream
)

// strangersCalls lists the calls that a stranger makes on the client port and on the peer port. All
// of them are harmless, however often they are repeated.
var strangersCalls = [2][8]string{
	{
		"/etcdserverpb.Lease/LeaseLeases", "/etcdserverpb.KV/Range", "/etcdserverpb.Watch/Watch",
		"/etcdserverpb.Lease/LeaseKeepAlive", "/leasehold.v1.StreamService/Open",
		"/leasehold.v1.LeaseService/List", "/v3lockpb.Lock/Unlock", "/no.such/Call",
	},
	{
		"/leasehold.transport.v1/Describe", "/leasehold.transport.v1/Messages",
		"/leasehold.transport.v1/Snapshot", "/leasehold.transport.v1/Describe",
		"/etcdserverpb.KV/Range", "/no.such/Call", "/", "",
	},
}

// endedTwice returns a script that crashed members built with grpc-go 1.83 or earlier. The response
// to a call waits for flow control, so its stream still exists when the frame that ends it arrives
// a second time.
func endedTwice() []byte {
	script := []byte{sendSettings, 0}
	for range 32 {
		for stream := range byte(8) {
			script = append(script, sendOpen, 0, sendMessage, 0, awaitRead, stream)
		}
		for stream := range byte(8) {
			script = append(script, sendEmpty, sendEnd|stream, sendEmpty, sendEnd|stream)
		}
	}
	return script
}

// FuzzHTTP2 checks that no sequence of HTTP/2 frames stops a member or makes one of its ports
// unresponsive. go test runs fixed scripts against the client and peer ports. go test -fuzz
// searches for more.
func FuzzHTTP2(f *testing.F) {
	f.Add(endedTwice())
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 0))
		script := make([]byte, 400)
		for i := range script {
			script[i] = byte(random.Uint32())
			if i%2 == 0 && random.Uint32()%2 == 0 {
				script[i] %= sendReset // Most frames must be valid, or few connections survive.
			}
		}
		f.Add(script)
	}
	r := run(f, testConfig(shortDir(f)))
	ports := [2]string{r.cfg.URLs.ListenClient[0].Path, r.cfg.URLs.ListenPeer[0].Path}
	cluster, member := r.node.cluster, r.node.member
	f.Fuzz(func(t *testing.T, script []byte) {
		for i, port := range ports {
			s := newStranger(t, port)
			s.calls = strangersCalls[i][:]
			s.hello = fmt.Sprintf("%x %x %x %x %x", cluster, member+1, member, 1, 1)
			for at := 0; at+1 < len(script) && s.err == nil; at += 2 {
				s.send(script[at]%scriptSteps, script[at+1])
			}
			s.end()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := r.client.Get(ctx, "k", clientv3.WithSerializable()); err != nil {
			t.Errorf("clients are not answered any more: %v", err)
		}
		way := transport.Way{Dial: virtual.Dial}
		if _, err := transport.Describe(ctx, r.cfg.URLs.ListenPeer[0], way); err != nil {
			t.Errorf("members are not answered any more: %v", err)
		}
	})
}

// TestHeadersAreBounded checks that both ports bound the header memory that one connection can make
// a member use. HPACK can encode kilobytes in one byte. A request that exceeds the announced bound
// must not become a call.
func TestHeadersAreBounded(t *testing.T) {
	t.Parallel()
	r := run(t, testConfig(shortDir(t)))
	for _, port := range []url.URL{r.cfg.URLs.ListenClient[0], r.cfg.URLs.ListenPeer[0]} {
		s := newStranger(t, port.Path)
		s.await()
		streams, list := s.bounds[http2.SettingMaxConcurrentStreams],
			s.bounds[http2.SettingMaxHeaderListSize]
		if streams == 0 || list == 0 || int64(streams)*int64(list) > 256<<20 {
			t.Errorf("%s: %d streams with %d bytes of headers each", port.Path, streams, list)
		}
		fields := make([]string, 0, 2000)
		for range cap(fields) / 2 {
			fields = append(fields, "a", "")
		}
		s.headers(1, false, fields...)
		s.await()
		if s.err != nil || s.resets.Load() != 1 {
			t.Errorf("%s: %d streams were reset, %v", port.Path, s.resets.Load(), s.err)
		}
		s.end()
	}
}

// A stranger is a connection that sends the frames of a script.
type stranger struct {
	conn    net.Conn
	framer  *http2.Framer
	fields  bytes.Buffer
	encoder *hpack.Encoder
	calls   []string
	hello   string // sent when posing as a member
	token   string // sent when posing as a client
	newest  uint32 // ID of the newest stream
	sent    int64  // SETTINGS frames sent
	acked   atomic.Int64
	ack     chan struct{}              // signaled when acked changes
	bounds  map[http2.SettingID]uint32 // announced by the member; set before the first ack
	resets  atomic.Int32               // streams reset by the member
	ended   chan struct{}              // closed when the member has closed the connection
	err     error
}

func newStranger(t *testing.T, socket string) *stranger {
	t.Helper()
	conn, err := virtual.Dial(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	s := &stranger{conn: conn, ack: make(chan struct{}, 1), ended: make(chan struct{})}
	s.framer = http2.NewFramer(conn, conn)
	s.framer.AllowIllegalWrites = true
	s.encoder = hpack.NewEncoder(&s.fields)
	go s.read()
	_, s.err = conn.Write([]byte(http2.ClientPreface))
	if s.err == nil {
		s.settings()
	}
	return s
}

// read discards the member's frames, but counts SETTINGS acknowledgments.
func (s *stranger) read() {
	defer close(s.ended)
	for {
		frame, err := s.framer.ReadFrame()
		if err != nil {
			return
		}
		if bye, ok := frame.(*http2.GoAwayFrame); ok && bye.ErrCode != http2.ErrCodeNo {
			return // the member closes the connection a second later
		}
		if _, ok := frame.(*http2.RSTStreamFrame); ok {
			s.resets.Add(1)
		}
		settings, ok := frame.(*http2.SettingsFrame)
		if ok && s.bounds == nil {
			s.bounds = make(map[http2.SettingID]uint32)
			_ = settings.ForeachSetting(func(x http2.Setting) error {
				s.bounds[x.ID] = x.Val
				return nil
			})
		}
		if ok && settings.IsAck() {
			s.acked.Add(1)
			select {
			case s.ack <- struct{}{}:
			default:
			}
		}
	}
}

func (s *stranger) end() {
	_ = s.conn.Close()
	<-s.ended
}

// send performs one step.
func (s *stranger) send(what, arg byte) {
	end, low := arg&sendEnd != 0, arg&7
	stream := s.newest - 2*uint32(low)
	if s.newest < 2*uint32(low)+1 {
		stream = 1
	}
	switch what {
	case sendOpen:
		s.newest = max(s.newest+2, 1) | 1
		s.headers(s.newest, end, ":method", "POST", ":scheme", "http", ":authority", "localhost",
			":path", s.calls[low], "content-type", "application/grpc", "te", "trailers",
			"leasehold-hello", s.hello, "leasehold-formats", "1 1", "token", s.token)
	case sendMessage:
		s.err = s.framer.WriteData(stream, end, make([]byte, 5))
	case sendRubbish:
		s.err = s.framer.WriteData(stream, end, bytes.Repeat([]byte{arg}, int(arg)))
	case sendEmpty:
		s.err = s.framer.WriteData(stream, end, nil)
	case sendWindow:
		if arg&wholeConnection != 0 {
			stream = 0
		}
		s.err = s.framer.WriteWindowUpdate(stream, uint32(arg)<<(arg>>4))
	case sendReset:
		s.err = s.framer.WriteRSTStream(stream, http2.ErrCode(arg>>4))
	case sendSettings:
		sizes := []uint32{0, 1, 16384, 65535, 1 << 20, 1<<31 - 1, 1 << 31, 1<<32 - 1}
		ids := []http2.SettingID{
			http2.SettingInitialWindowSize, http2.SettingMaxFrameSize,
			http2.SettingHeaderTableSize, http2.SettingMaxConcurrentStreams,
		}
		s.settings(http2.Setting{ID: ids[arg>>3&3], Val: sizes[low]})
	case awaitRead:
		s.await()
	case sendAgain:
		s.headers(stream, end, "grpc-status", "0")
	case sendOdd:
		s.newest = max(s.newest+2, 1) | 1
		s.headers(s.newest, end, ":method", []string{"POST", "GET", "PRI", ""}[low&3],
			":path", s.calls[low], "grpc-timeout", []string{"1n", "0S", "-1m", "x"}[low&3],
			"grpc-encoding", "gzip", "grpc-trace-bin", "!!", "content-type", "application/grpc+x")
	case sendRaw:
		payload := binary.BigEndian.AppendUint64(nil, uint64(arg)<<56|uint64(arg))
		s.err = s.framer.WriteRawFrame(http2.FrameType(low+2), http2.Flags(arg>>3), stream, payload)
	case sendGoAway:
		s.err = s.framer.WriteGoAway(stream, http2.ErrCodeNo, nil)
	}
}

func (s *stranger) headers(stream uint32, end bool, fields ...string) {
	s.fields.Reset()
	for i := 0; i < len(fields); i += 2 {
		_ = s.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	s.err = s.framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: stream, BlockFragment: s.fields.Bytes(), EndStream: end, EndHeaders: true,
	})
}

func (s *stranger) settings(list ...http2.Setting) {
	s.sent++
	s.err = s.framer.WriteSettings(list...)
}

// await waits until the member has read everything or has closed the connection. It sends SETTINGS
// frames because even a few pings count as abuse.
func (s *stranger) await() {
	s.settings()
	for s.err == nil && s.acked.Load() < s.sent {
		select {
		case <-s.ack:
		case <-s.ended:
			return
		}
	}
}
