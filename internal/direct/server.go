package direct

import (
	"context"
	"errors"
	"io"
	"net"
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

	"leasehold.dev/internal/intercept"
)

// Options say how streams are served.
type Options struct {
	// Credentials make the handshake of a connection, as those of a grpc.Server do.
	Credentials credentials.TransportCredentials
	// Codec encodes and decodes messages.
	Codec encoding.CodecV2
	// Interceptors surround a handler, outermost first.
	Interceptors []intercept.Stream
	// Panics makes errors of the panics of handlers. Nil ends the process.
	Panics intercept.Panics
	// MaxMessage bounds the bytes of a message that a client sends.
	MaxMessage int
	// Requests bounds what clients can cost before their messages are complete; nil bounds nothing.
	Requests Requests
	// Patience is how long a client may take until it has sent its metadata.
	Patience time.Duration
}

// Requests bounds what clients can cost before their messages are complete.
type Requests interface {
	// Stream begins the account of a stream, whose connection end closes, or refuses it. The stream
	// gets the context that it returns.
	Stream(ctx context.Context, from string, end func()) (context.Context, Account, error)
}

// Account is what a stream costs. Its methods but Close are called by the goroutine that receives.
type Account interface {
	// Wait waits until the next message may be received.
	Wait() error
	// Came notes that a whole message has come.
	Came()
	// Hold says that the stream needs so many bytes for a message of which no more has come than
	// what it has said before. Release is called when it needs more or no longer any.
	Hold(bytes int) (release func(), err error)
	// Close ends the account, and wakes Wait.
	Close()
}

// Server serves streams. Its methods may be called from several goroutines, but no service is to be
// registered once it serves.
type Server struct {
	o       Options
	methods map[string]*intercept.Method
	wg      sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]*serverStream // nil before the stream has begun
	poller *poller                    // nil until a stream could rest
}

var _ grpc.ServiceRegistrar = (*Server)(nil)

// NewServer returns a server without services.
func NewServer(o Options) *Server {
	return &Server{
		o: o, methods: make(map[string]*intercept.Method),
		conns: make(map[net.Conn]*serverStream),
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
		s.methods[name] = &intercept.Method{
			Info: &grpc.StreamServerInfo{
				FullMethod: name, IsClientStream: true, IsServerStream: true,
			},
			Handler: m.Handler, Service: service, Panics: s.o.Panics,
			Around: intercept.Chain(s.o.Interceptors...),
		}
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
	s.conns[c] = nil
	s.wg.Add(1)
	return true
}

// begin notes that the stream of a connection begins. It reports whether it may.
func (s *Server) begin(g *serverStream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[g.raw] = g
	return !s.closed
}

// GracefulStop lets no connection in any more, and returns when all streams have ended. Connections
// without one are closed: it need not come.
func (s *Server) GracefulStop() {
	s.mu.Lock()
	s.closed = true
	for c, g := range s.conns {
		if g == nil {
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
	for c, g := range s.conns {
		go func() {
			_ = c.Close() // its stream learns of it; TLS may wait until it has said goodbye
			if g != nil {
				g.rest.close()
			}
		}()
	}
}

// serve serves a connection until its stream has ended or pauses.
func (s *Server) serve(raw net.Conn) {
	_ = raw.SetDeadline(time.Now().Add(s.o.Patience)) // if that fails, so does what follows
	c, info, err := s.o.Credentials.ServerHandshake(raw)
	if err != nil {
		s.leave(raw)
		return
	}
	g := &serverStream{server: s, raw: raw, c: c, in: reader{c: c}}
	m, err := g.begin(info)
	switch {
	case err != nil && status.Code(err) == codes.Unknown, err == nil && !s.begin(g):
		g.close() // the connection is to blame, and not what the client wants
	case err != nil:
		g.end(err)
	default:
		_ = raw.SetDeadline(time.Time{})
		g.in.most = s.o.MaxMessage
		if g.call, err = m.Begin(g, func() { go g.serve() }); err != nil {
			g.silence()
			g.end(err)
			return
		}
		g.serve()
	}
}

// leave forgets a connection, of which all is said.
func (s *Server) leave(raw net.Conn) {
	s.mu.Lock()
	delete(s.conns, raw)
	s.mu.Unlock()
	_ = raw.Close()
	s.stopPolling()
	s.wg.Done()
}

// past is a deadline that wakes what waits for a connection.
var past = time.Unix(1, 0)

// serverStream implements grpc.ServerStream. As gRPC says, one goroutine may receive and another
// one send; what is told of headers is the business of the latter.
type serverStream struct {
	server  *Server
	raw     net.Conn
	c       net.Conn // over raw
	call    *intercept.Call
	in      reader
	account Account // nil if nothing is bounded
	ctx     context.Context
	cancel  context.CancelFunc
	header  head
	trailer head
	sent    bool  // the header
	rest    *Rest // nil if it cannot rest
	// ending guards the deadline for reading, which is past once the stream has ended.
	ending sync.Mutex
	// receiving is held while a message is received, and guards through.
	receiving sync.Mutex
	through   bool // no message follows from the client
}

// begin greets the client, and reads what it wants. An error that has no code of gRPC is of the
// connection.
func (g *serverStream) begin(info credentials.AuthInfo) (*intercept.Method, error) {
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
	method := g.server.methods[name]
	if method == nil {
		return nil, status.Errorf(codes.Unimplemented, "direct: no stream %q", name)
	}
	ctx := peer.NewContext(context.Background(), &peer.Peer{
		Addr: g.c.RemoteAddr(), LocalAddr: g.c.LocalAddr(), AuthInfo: info,
	})
	g.ctx, g.cancel = context.WithCancel(metadata.NewIncomingContext(g.withRest(ctx), md))
	if r := g.server.o.Requests; r != nil {
		end := func() { go g.c.Close() } //nolint:errcheck // nothing more is said
		if g.ctx, g.account, err = r.Stream(g.ctx, g.c.RemoteAddr().String(), end); err != nil {
			g.cancel()
			return nil, err
		}
		g.in.hold = g.account.Hold
	}
	return method, nil
}

// serve serves the stream until it has ended or pauses.
func (g *serverStream) serve() {
	paused, err := g.call.Serve()
	if paused {
		return
	}
	g.silence()
	g.end(err)
}

// silence sees to it that no message is received any more. What the client still sends is thrown
// away, in pieces: a goroutine that received what is left would take the inside of a message for
// one.
func (g *serverStream) silence() {
	g.cancel()
	if g.account != nil {
		g.account.Close()
	}
	g.ending.Lock()
	_ = g.c.SetReadDeadline(past) // wakes a goroutine that receives
	g.ending.Unlock()
	g.rest.close()
	g.receiving.Lock()
	defer g.receiving.Unlock() // nobody receives now, or later: the context has ended
}

// close closes the connection.
func (g *serverStream) close() {
	if g.account != nil {
		g.account.Close()
	}
	_ = g.c.Close()
	g.server.leave(g.raw)
}

// end tells the client how the stream has ended, and waits for a moment until it has heard that.
func (g *serverStream) end(err error) {
	defer g.close()
	_ = g.c.SetDeadline(time.Now().Add(farewellTime))
	if g.SendHeader(nil) != nil {
		return
	}
	if g.sendHead(metadata.Join(g.trailer, encodeEnd(err))) == nil {
		_, _ = io.CopyN(io.Discard, g.c, farewellBytes) // until the client closes
	}
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
	all := metadata.Join(g.header, md)
	g.header = nil
	return g.sendHead(all)
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
	if g.account != nil {
		if err := g.account.Wait(); err != nil {
			return err
		}
	}
	err := g.receive(m)
	if err == nil && g.account != nil {
		g.account.Came()
	}
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
