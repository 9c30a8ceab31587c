package relayed

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/channel"
	"leasehold.dev/internal/intercept"
)

// Options configures how calls are served.
type Options struct {
	// Codec encodes messages. MaxMessage is the maximum size of a received message, in bytes.
	Codec      encoding.CodecV2
	MaxMessage int
	// Unary and Stream are the interceptors for calls, outermost first.
	Unary  []grpc.UnaryServerInterceptor
	Stream []intercept.Stream
	// Panics converts panics in streams to errors. If it is nil, they end the process.
	Panics intercept.Panics
	// MayRelay returns an error if the caller may not act as a relay. AccessChanged returns a
	// channel that is closed when MayRelay must be called again.
	MayRelay      func(context.Context) error
	AccessChanged func() <-chan struct{}
	// Account returns the context for calls made over one client's connection to the relay. It
	// counts their unread responses together and closes the connection if there are too many.
	Account func(context.Context, net.Conn) context.Context
	// Impersonate returns the context for a call on behalf of a relay's client. It returns an error
	// if the relay may not make the call.
	Impersonate func(relay, call context.Context) (context.Context, error)
	// When Stop is closed, each relay's stream ends after its calls have ended.
	Stop <-chan struct{}
}

// KeyKnown is a header. A relay sends it to ask whether the caller is logged in, and the response
// includes it if so. The relay cannot determine this on its own, but needs it to limit the load
// from callers that are not logged in.
const KeyKnown = "leasehold-known"

// Register registers leasehold.v1.RelayService with a Calls.
func Register(c *Calls, o Options) {
	pb.RegisterRelayServiceServer(c.Server, &service{calls: c, o: o})
}

type service struct {
	pb.UnsafeRelayServiceServer
	calls *Calls
	o     Options
}

// Relay implements pb.RelayServiceServer.
func (s *service) Relay(g pb.RelayService_RelayServer) error {
	ctx, cancel := context.WithCancelCause(g.Context())
	defer cancel(nil)
	changed := s.o.AccessChanged()
	if err := s.o.MayRelay(ctx); err != nil {
		return api.NativeError(err, api.ReadReason(err))
	}
	if err := g.Send(&pb.RelayResponse{}); err != nil { // confirms that the relay was accepted
		return err
	}
	r := &relay{service: s, ctx: ctx, clients: make(map[string]*client)}
	r.unary, r.stream = r.chains()
	r.link = channel.New(messages{g}, s.o.MaxMessage, r.accept)
	defer s.calls.takeGroups(r.link)()
	defer r.wait()
	defer r.link.End(context.Canceled)
	go r.watch(changed, cancel)
	err := r.link.Run(ctx)
	switch cause := context.Cause(ctx); {
	case g.Context().Err() != nil, errors.Is(err, io.EOF):
		return nil
	case cause != nil:
		return api.NativeError(cause, api.ReadReason(cause))
	default:
		return api.NativeError(err, api.ReadReason(err))
	}
}

// messages adapts a relay's stream to channel.Stream.
type messages struct{ pb.RelayService_RelayServer }

// Send implements channel.Stream.
func (g messages) Send(frames []*pb.RelayFrame) error {
	return g.RelayService_RelayServer.Send(&pb.RelayResponse{Frames: frames})
}

// Recv implements channel.Stream.
func (g messages) Recv() ([]*pb.RelayFrame, error) {
	m, err := g.RelayService_RelayServer.Recv()
	return m.GetFrames(), err
}

// relay is one stream from a relay.
type relay struct {
	*service
	ctx    context.Context // ends with the stream; the context of the relay, not of its clients
	link   *channel.Link
	unary  grpc.UnaryServerInterceptor
	stream intercept.Stream

	mu      sync.Mutex // guards the following fields and all clients
	clients map[string]*client
	calling sync.WaitGroup
	closed  bool // no more calls may start
}

// watch ends the stream when the caller may no longer act as a relay or when the member stops.
func (r *relay) watch(changed <-chan struct{}, end context.CancelCauseFunc) {
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-changed:
			changed = r.o.AccessChanged()
			if err := r.o.MayRelay(r.ctx); err != nil {
				end(err)
				// needed here because Run may be blocked by a relay that does not read
				r.link.End(err)
				return
			}
		case <-r.o.Stop:
			r.wait()
			r.link.Finish(api.ErrStopped)
			return
		}
	}
}

// wait waits for all calls to end and rejects new ones.
func (r *relay) wait() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.calling.Wait()
}

// accept starts serving a call.
func (r *relay) accept(c *channel.Channel, call *pb.RelayCall) (cancel func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		// on a separate goroutine, because the link is locked
		go c.End(endOf(api.Error(api.ErrStopped), nil))
		return func() {}
	}
	by := r.enterLocked(c, call.Address)
	ctx, cancel := context.WithCancel(by.ctx)
	if call.TimeoutMs > 0 {
		d := time.Duration(min(call.TimeoutMs, int64(maxTimeout/time.Millisecond))) * time.Millisecond
		ctx, cancel = context.WithTimeout(by.ctx, d)
	}
	r.calling.Add(1)
	s := &stream{codec: r.o.Codec, channel: c, done: func() {
		cancel()
		by.leave(c)
		r.calling.Done()
	}}
	go r.serve(ctx, s, call)
	return cancel
}

// maxTimeout is the maximum timeout of a call.
const maxTimeout = 1000 * time.Hour

// serve serves a call until it ends or pauses.
func (r *relay) serve(ctx context.Context, s *stream, call *pb.RelayCall) {
	m, ok := r.calls.methods[call.Method]
	if !ok {
		s.end(r.unknown(call.Method))
		return
	}
	ctx, err := clientContext(ctx, call)
	if err != nil {
		s.end(err)
		return
	}
	s.method = m.name
	s.ctx = grpc.NewContextWithServerTransportStream(s.channel.Context(ctx), transport{s})
	if m.unary != nil {
		s.end(r.one(m, s))
		return
	}
	if s.call, err = r.many(m).Begin(s, func() { go s.serve() }); err != nil {
		s.end(err)
		return
	}
	s.serve()
}

// many returns a streaming method to be called by this relay.
func (r *relay) many(m method) *intercept.Method {
	return &intercept.Method{
		Info: &grpc.StreamServerInfo{
			FullMethod: m.name, IsClientStream: m.stream.ClientStreams,
			IsServerStream: m.stream.ServerStreams,
		},
		Handler: m.stream.Handler, Service: m.impl, Around: r.stream, Panics: r.o.Panics,
	}
}

// one serves a unary call.
func (r *relay) one(m method, s *stream) error {
	resp, err := m.unary.Handler(m.impl, s.ctx, s.RecvMsg, r.unary)
	if err != nil {
		return err
	}
	return s.SendMsg(resp)
}

// unknown returns the error that gRPC returns for an unknown method.
func (r *relay) unknown(name string) error {
	if name == pb.RelayService_Relay_FullMethodName {
		return status.Error(codes.Unimplemented,
			"leasehold: a relay cannot connect to another relay; "+
				"give each relay the endpoints of members")
	}
	if r.calls.hasService(name) {
		return status.Errorf(codes.Unimplemented, "unknown method %s", name)
	}
	return status.Errorf(codes.Unimplemented, "unknown service in method %s", name)
}

// clientContext returns the context of a call, with the client's address, headers and certificate
// instead of the relay's.
func clientContext(ctx context.Context, call *pb.RelayCall) (context.Context, error) {
	md := make(metadata.MD, len(call.Headers))
	for _, h := range call.Headers {
		md.Append(h.Name, string(h.Value))
	}
	p := &peer.Peer{Addr: address(call.Address)}
	if len(call.Certificate) > 0 {
		c, err := x509.ParseCertificate(call.Certificate)
		if err != nil {
			return nil, status.Error(codes.InvalidArgument,
				fmt.Sprintf("leasehold: cannot parse the certificate forwarded by the relay: %v", err))
		}
		chain := []*x509.Certificate{c}
		p.AuthInfo = credentials.TLSInfo{
			State: tls.ConnectionState{
				PeerCertificates: chain, VerifiedChains: [][]*x509.Certificate{chain},
			},
			CommonAuthInfo: credentials.CommonAuthInfo{
				SecurityLevel: credentials.PrivacyAndIntegrity,
			},
		}
	}
	return peer.NewContext(metadata.NewIncomingContext(ctx, md), p), nil
}

// address is the address of a client, as seen by the relay.
type address string

// Network implements net.Addr.
func (address) Network() string { return "relay" }

// String implements net.Addr.
func (a address) String() string { return string(a) }
