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

// Options configures a server.
type Options struct {
	// Credentials performs the handshake of a connection, as for a grpc.Server.
	Credentials credentials.TransportCredentials
	// Codec encodes and decodes messages.
	Codec encoding.CodecV2
	// Interceptors wrap the handlers, outermost first.
	Interceptors []intercept.Stream
	// Panics converts panics in handlers to errors. If it is nil, a panic ends the process.
	Panics intercept.Panics
	// MaxMessage is the maximum size of a client's message.
	MaxMessage int
	// Requests limits the resources that clients can use before their messages are complete. If it
	// is nil, there are no limits.
	Requests Requests
	// Patience is the timeout for a client to send its metadata.
	Patience time.Duration
}

// Requests limits the resources that clients can use before their messages are complete.
type Requests interface {
	// Stream opens an account for a stream, or rejects the stream. Calling end closes the
	// connection. The stream uses the returned context.
	Stream(ctx context.Context, from string, end func()) (context.Context, Account, error)
}

// Account tracks the resources that a stream uses. Only the receiving goroutine calls its methods,
// except for Close.
type Account interface {
	// Wait waits until the next message can be received.
	Wait() error
	// Came records that a message has arrived completely.
	Came()
	// Hold reserves memory for a message that is still arriving, in addition to earlier
	// reservations. The caller calls release once the stream has reserved more memory or needs
	// none.
	Hold(bytes int) (release func(), err error)
	// Close closes the account and unblocks Wait.
	Close()
}

// Server serves streams. It is safe for concurrent use, but all services must be registered before
// it starts serving.
type Server struct {
	o       Options
	methods map[string]*intercept.Method
	wg      sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]*serverStream // the stream is nil until it has started
	poller *poller                    // nil until a stream can rest
}

var _ grpc.ServiceRegistrar = (*Server)(nil)

// NewServer returns a server without services.
func NewServer(o Options) *Server {
	return &Server{
		o: o, methods: make(map[string]*intercept.Method),
		conns: make(map[net.Conn]*serverStream),
	}
}

// RegisterService implements grpc.ServiceRegistrar. Only the bidirectional streaming methods of the
// service can be called.
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

// Serve accepts and serves connections until the listener is closed. It returns the error from the
// listener.
func (s *Server) Serve(l net.Listener) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		if !s.enter(c) {
			_ = c.Close() // the server has been stopped
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

// begin records that the stream of a connection is starting. It returns false if the server has
// been stopped.
func (s *Server) begin(g *serverStream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[g.raw] = g
	return !s.closed
}

// GracefulStop stops accepting connections and returns when all streams have ended. It closes
// connections without a stream, because a stream might never start.
func (s *Server) GracefulStop() {
	s.mu.Lock()
	s.closed = true
	for c, g := range s.conns {
		if g == nil {
			go c.Close() //nolint:errcheck // TLS may wait for its goodbye to be sent
		}
	}
	s.mu.Unlock()
	s.wg.Wait()
	s.stopPolling()
}

// poll returns the poller for all resting streams, or nil if none is available.
func (s *Server) poll() *poller {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.poller == nil {
		s.poller, _ = newPoller() // without a poller, each stream keeps its goroutines
	}
	return s.poller
}

// stopPolling closes the poller if there will not be any more streams.
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

// Stop closes all connections immediately.
func (s *Server) Stop() {
	defer s.stopPolling()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for c, g := range s.conns {
		go func() {
			// ends the stream; TLS may wait until its close notification has been sent
			_ = c.Close()
			if g != nil {
				g.rest.close()
			}
		}()
	}
}

// serve serves a connection until its stream ends or pauses.
func (s *Server) serve(raw net.Conn) {
	_ = raw.SetDeadline(time.Now().Add(s.o.Patience)) // if this fails, the handshake fails too
	c, info, err := s.o.Credentials.ServerHandshake(raw)
	if err != nil {
		s.leave(raw)
		return
	}
	g := &serverStream{server: s, raw: raw, c: c, in: reader{c: c}}
	m, err := g.begin(info)
	switch {
	case err != nil && status.Code(err) == codes.Unknown, err == nil && !s.begin(g):
		g.close() // the connection failed, or the server has been stopped
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

// leave removes a connection that is no longer needed.
func (s *Server) leave(raw net.Conn) {
	s.mu.Lock()
	delete(s.conns, raw)
	s.mu.Unlock()
	_ = raw.Close()
	s.stopPolling()
	s.wg.Done()
}

// expiredDeadline is a deadline that unblocks everything waiting on a connection.
var expiredDeadline = time.Unix(1, 0)

// serverStream implements grpc.ServerStream. As in gRPC, one goroutine can receive while another
// sends. Only the sending goroutine may use the header methods.
type serverStream struct {
	server  *Server
	raw     net.Conn
	c       net.Conn // wraps raw
	call    *intercept.Call
	in      reader
	account Account // nil if there are no limits
	ctx     context.Context
	cancel  context.CancelFunc
	header  head
	trailer head
	sent    bool  // the header has been sent
	rest    *Rest // nil if the stream cannot rest
	// ending guards the read deadline. Once the stream has ended, the deadline is in the past.
	ending sync.Mutex
	// receiving is held while a message is being received. It also guards through.
	receiving sync.Mutex
	through   bool // the client will not send any more messages
}

// begin greets the client and reads its request. An error without a gRPC code means that the
// connection has failed.
func (g *serverStream) begin(info credentials.AuthInfo) (*intercept.Method, error) {
	line, err := g.in.line(maxMethod)
	if err != nil {
		return nil, err
	}
	name, ok := strings.CutPrefix(line, Protocol+" ")
	if !ok {
		return nil, errors.New("direct: unknown protocol")
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
		return nil, status.Errorf(codes.Unimplemented, "direct: unknown method %q", name)
	}
	ctx := peer.NewContext(context.Background(), &peer.Peer{
		Addr: g.c.RemoteAddr(), LocalAddr: g.c.LocalAddr(), AuthInfo: info,
	})
	g.ctx, g.cancel = context.WithCancel(metadata.NewIncomingContext(g.withRest(ctx), md))
	if r := g.server.o.Requests; r != nil {
		end := func() { go g.c.Close() } //nolint:errcheck // nothing more to send
		if g.ctx, g.account, err = r.Stream(g.ctx, g.c.RemoteAddr().String(), end); err != nil {
			g.cancel()
			return nil, err
		}
		g.in.hold = g.account.Hold
	}
	return method, nil
}

// serve serves the stream until it ends or pauses.
func (g *serverStream) serve() {
	paused, err := g.call.Serve()
	if paused {
		return
	}
	g.silence()
	g.end(err)
}

// silence ensures that no more messages are received. Anything that the client still sends is
// discarded without regard to message boundaries. A goroutine that continued to receive could
// mistake the middle of a message for a new one.
func (g *serverStream) silence() {
	g.cancel()
	if g.account != nil {
		g.account.Close()
	}
	g.ending.Lock()
	_ = g.c.SetReadDeadline(expiredDeadline) // unblocks the receiving goroutine
	g.ending.Unlock()
	g.rest.close()
	g.receiving.Lock()
	defer g.receiving.Unlock() // the context has ended, so no goroutine will receive from now on
}

// close closes the connection.
func (g *serverStream) close() {
	if g.account != nil {
		g.account.Close()
	}
	_ = g.c.Close()
	g.server.leave(g.raw)
}

// end sends the outcome of the stream to the client. It waits briefly until the client has received
// it.
func (g *serverStream) end(err error) {
	defer g.close()
	_ = g.c.SetDeadline(time.Now().Add(farewellTime))
	if g.SendHeader(nil) != nil {
		return
	}
	if g.sendHead(metadata.Join(g.trailer, encodeEnd(err))) == nil {
		_, _ = io.CopyN(io.Discard, g.c, farewellBytes) // until the client closes the connection
	}
}

// Context implements grpc.ServerStream. The context ends when the connection has failed or the
// handler has returned.
func (g *serverStream) Context() context.Context { return g.ctx }

// SetHeader implements grpc.ServerStream.
func (g *serverStream) SetHeader(md metadata.MD) error {
	if g.sent {
		return status.Error(codes.Internal, "direct: the header was already sent")
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

// SendMsg implements grpc.ServerStream. It returns when the kernel has accepted the message.
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

// lost ends the stream because its connection has failed.
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
	// unblocks a goroutine that is sending to a client that does not read
	_ = g.c.SetWriteDeadline(expiredDeadline)
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
