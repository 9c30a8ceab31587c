package direct

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// Options say how streams are served.
type Options struct {
	// Credentials make the handshake of a connection, as those of a grpc.Server do.
	Credentials credentials.TransportCredentials
	// Codec encodes and decodes messages.
	Codec encoding.CodecV2
	// Interceptors are called before a handler, outermost first.
	Interceptors []grpc.StreamServerInterceptor
	// MaxMessage bounds the bytes of a message that a client sends.
	MaxMessage int
	// Requests bounds what is kept of messages that are not complete; nil bounds nothing.
	Requests Requests
	// Patience is how long a client may take until it has sent its metadata.
	Patience time.Duration
}

// Requests bounds what is kept of messages that are not complete.
type Requests interface {
	// Receive says that a connection needs so many bytes for a message of which no more has come
	// than what it has said before. Done is called when it needs more or no longer any; end may be
	// called before, and is to close the connection.
	Receive(from string, bytes int, end func()) (done func(), err error)
}

// Server serves streams. Its methods may be called from several goroutines, but no service is to be
// registered once it serves.
type Server struct {
	o       Options
	methods map[string]func(grpc.ServerStream) error
	wg      sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]bool // whether its stream has begun
	poller *poller           // nil until a stream could rest
}

var _ grpc.ServiceRegistrar = (*Server)(nil)

// NewServer returns a server without services.
func NewServer(o Options) *Server {
	return &Server{
		o: o, methods: make(map[string]func(grpc.ServerStream) error),
		conns: make(map[net.Conn]bool),
	}
}

// RegisterService implements grpc.ServiceRegistrar. Of the service only the methods that stream
// both ways can be called.
func (s *Server) RegisterService(d *grpc.ServiceDesc, service any) {
	for _, m := range d.Streams {
		if !m.ClientStreams || !m.ServerStreams {
			continue
		}
		name := "/" + d.ServiceName + "/" + m.StreamName
		info := &grpc.StreamServerInfo{FullMethod: name, IsClientStream: true, IsServerStream: true}
		handle := m.Handler
		for _, i := range slices.Backward(s.o.Interceptors) {
			inner := handle
			handle = func(service any, g grpc.ServerStream) error {
				return i(service, g, info, inner)
			}
		}
		s.methods[name] = func(g grpc.ServerStream) error { return handle(service, g) }
	}
}

// Serve serves the connections of a listener until that is closed. It returns why it ended.
func (s *Server) Serve(l net.Listener) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		if !s.enter(c) {
			_ = c.Close() // nobody is served any more
			continue
		}
		go s.serve(c)
	}
}

func (s *Server) enter(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.conns[c] = false
	s.wg.Add(1)
	return true
}

// begin notes that the stream of a connection begins. It reports whether it may.
func (s *Server) begin(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[c] = true
	return !s.closed
}

// GracefulStop lets no connection in any more, and returns when all streams have ended. Connections
// without one are closed: it need not come.
func (s *Server) GracefulStop() {
	s.mu.Lock()
	s.closed = true
	for c, begun := range s.conns {
		if !begun {
			go c.Close() //nolint:errcheck // TLS may wait until it has said goodbye
		}
	}
	s.mu.Unlock()
	s.wg.Wait()
	s.stopPolling()
}

// poll returns the poller of all streams that rest, nil if there can be none.
func (s *Server) poll() *poller {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.poller == nil {
		s.poller, _ = newPoller() // without one each stream has its goroutines
	}
	return s.poller
}

// stopPolling ends the poller if no stream will come any more.
func (s *Server) stopPolling() {
	s.mu.Lock()
	p := s.poller
	if !s.closed || len(s.conns) > 0 {
		p = nil
	}
	if p != nil {
		s.poller = nil
	}
	s.mu.Unlock()
	if p != nil {
		p.close()
	}
}

// Stop ends all connections at once.
func (s *Server) Stop() {
	defer s.stopPolling()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for c := range s.conns {
		go c.Close() //nolint:errcheck // its stream learns of it; TLS may wait until it has said goodbye
	}
}

// serve serves a connection until its stream has ended.
func (s *Server) serve(raw net.Conn) {
	defer s.wg.Done()
	defer func() {
		s.mu.Lock()
		delete(s.conns, raw)
		s.mu.Unlock()
		_ = raw.Close() // all is said
		s.stopPolling()
	}()
	_ = raw.SetDeadline(time.Now().Add(s.o.Patience)) // if that fails, so does what follows
	c, info, err := s.o.Credentials.ServerHandshake(raw)
	if err != nil {
		return
	}
	defer c.Close() //nolint:errcheck // all is said
	g := &serverStream{server: s, c: c, in: reader{c: c}}
	if socket := socketOf(raw); socket != nil {
		g.rest.stream, g.rest.socket = g, socket
	}
	handle, err := g.begin(info)
	if err != nil && status.Code(err) == codes.Unknown || err == nil && !s.begin(raw) {
		return // the connection, and not what the client wants
	}
	if err == nil {
		_ = raw.SetDeadline(time.Time{})
		g.in.most = s.o.MaxMessage
		if s.o.Requests != nil {
			g.in.hold = g.hold
		}
		err = handle(g)
		g.silence()
	}
	g.end(err)
}

// past is a deadline that wakes what waits for a connection.
var past = time.Unix(1, 0)

// serverStream implements grpc.ServerStream. As gRPC says, one goroutine may receive and another
// one send; what is told of headers is the business of the latter.
type serverStream struct {
	server  *Server
	c       net.Conn
	in      reader
	ctx     context.Context
	cancel  context.CancelFunc
	header  head
	trailer head
	sent    bool // the header
	rest    Rest // its socket is nil if it cannot rest
	// ending guards the deadline for reading, which is past once the stream has ended.
	ending sync.Mutex
	// receiving is held while a message is received, and guards through.
	receiving sync.Mutex
	through   bool // no message follows from the client
}

// begin greets the client, and reads what it wants. An error that has no code of gRPC is of the
// connection.
func (g *serverStream) begin(info credentials.AuthInfo) (func(grpc.ServerStream) error, error) {
	line, err := g.in.line(maxMethod)
	if err != nil {
		return nil, err
	}
	name, ok := strings.CutPrefix(line, Protocol+" ")
	if !ok {
		return nil, errors.New("direct: not this protocol")
	}
	if _, err := g.c.Write([]byte(greeting)); err != nil {
		return nil, err
	}
	flags, size, err := g.in.head()
	if err != nil {
		return nil, err
	}
	if flags != flagMetadata {
		return nil, errFlags
	}
	md, err := g.in.metadata(size)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	handle := g.server.methods[name]
	if handle == nil {
		return nil, status.Errorf(codes.Unimplemented, "direct: no stream %q", name)
	}
	ctx := peer.NewContext(context.Background(), &peer.Peer{
		Addr: g.c.RemoteAddr(), LocalAddr: g.c.LocalAddr(), AuthInfo: info,
	})
	g.ctx, g.cancel = context.WithCancel(metadata.NewIncomingContext(g.withRest(ctx), md))
	return handle, nil
}

// withRest returns a context that leads to the stream's Rest, if it can rest.
func (g *serverStream) withRest(ctx context.Context) context.Context {
	if g.rest.socket == nil {
		return ctx
	}
	if g.rest.poller = g.server.poll(); g.rest.poller == nil {
		return ctx
	}
	g.rest.socket.rest.Store(&g.rest)
	return context.WithValue(ctx, restKey{}, &g.rest)
}

// silence sees to it that no message is received any more. What the client still sends is thrown
// away, in pieces: a goroutine that received what is left would take the inside of a message for
// one.
func (g *serverStream) silence() {
	g.cancel()
	g.ending.Lock()
	_ = g.c.SetReadDeadline(past) // wakes a goroutine that receives
	g.ending.Unlock()
	g.rest.close()
	g.receiving.Lock()
	defer g.receiving.Unlock() // nobody receives now, or later: the context has ended
}

// end tells the client how the stream has ended, and waits for a moment until it has heard that.
func (g *serverStream) end(err error) {
	_ = g.c.SetDeadline(time.Now().Add(farewellTime))
	if g.SendHeader(nil) != nil {
		return
	}
	if g.sendHead(metadata.Join(g.trailer, encodeEnd(err))) == nil {
		_, _ = io.CopyN(io.Discard, g.c, farewellBytes) // until the client closes
	}
}

// hold says that there is to be memory for a message that comes.
func (g *serverStream) hold(bytes int) (func(), error) {
	return g.server.o.Requests.Receive(g.c.RemoteAddr().String(), bytes, func() {
		g.rest.close() // while TLS waits until it has said goodbye, an answer to a new key would, too
		go g.c.Close() //nolint:errcheck // nothing more is said
	})
}

// Context implements grpc.ServerStream. It ends when the connection has failed, or the handler has
// returned.
func (g *serverStream) Context() context.Context { return g.ctx }

// SetHeader implements grpc.ServerStream.
func (g *serverStream) SetHeader(md metadata.MD) error {
	if g.sent {
		return status.Error(codes.Internal, "direct: the header was sent before")
	}
	g.header = metadata.Join(g.header, md)
	return nil
}

// SendHeader implements grpc.ServerStream.
func (g *serverStream) SendHeader(md metadata.MD) error {
	if g.sent {
		return nil
	}
	g.sent = true
	return g.sendHead(metadata.Join(g.header, md))
}

func (g *serverStream) sendHead(md head) error {
	text, err := encodeHead(md)
	if err != nil {
		return err
	}
	return writeFrame(g.c, flagMetadata, mem.BufferSlice{mem.SliceBuffer(text)})
}

// SetTrailer implements grpc.ServerStream.
func (g *serverStream) SetTrailer(md metadata.MD) { g.trailer = metadata.Join(g.trailer, md) }

// SendMsg implements grpc.ServerStream. It returns when the kernel has taken the message.
func (g *serverStream) SendMsg(m any) error {
	data, err := g.server.o.Codec.Marshal(m)
	if err != nil {
		return err
	}
	if err := g.SendHeader(nil); err != nil {
		data.Free()
		return g.lost()
	}
	if writeFrame(g.c, flagMessage, data) != nil {
		return g.lost()
	}
	return nil
}

// lost ends the stream whose connection has failed.
func (g *serverStream) lost() error {
	g.cancel()
	return status.FromContextError(context.Canceled).Err()
}

// RecvMsg implements grpc.ServerStream.
func (g *serverStream) RecvMsg(m any) error {
	g.receiving.Lock()
	defer g.receiving.Unlock()
	switch {
	case g.ctx.Err() != nil:
		return status.FromContextError(g.ctx.Err()).Err()
	case g.through:
		return io.EOF
	}
	err := g.receive(m)
	switch {
	case err == nil || errors.Is(err, io.EOF) && g.through:
		return err
	case status.Code(err) != codes.Unknown:
		return err
	}
	_ = g.c.SetWriteDeadline(past) // wakes a goroutine that sends to a client that reads nothing
	return g.lost()
}

func (g *serverStream) receive(m any) error {
	flags, size, err := g.in.head()
	switch {
	case err != nil:
		return err
	case flags == flagMessage:
		return g.in.message(size, g.server.o.Codec, m)
	case flags == flagMetadata && size == 0:
		g.through = true
		return io.EOF
	}
	return errFlags
}
