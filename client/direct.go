package client

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/direct"
	"leasehold.dev/internal/fault"
	"leasehold.dev/internal/wire"
)

// dialDirect is New's dialer. The stream uses a dedicated connection without HTTP/2, which costs
// the member much less than gRPC. dialDirect falls back to gRPC if an intermediate proxy does not
// support the direct protocol.
func dialDirect(e endpoint, c *settings) (connection, error) {
	if c.GRPC || c.shared.ways.needsGRPC(&e) {
		return dialGRPC(e, c)
	}
	return &directConnection{endpoint: e, cfg: c}, nil
}

// ways records which protocol each endpoint needs.
type ways struct {
	mu sync.Mutex
	of map[string]way // keyed by the endpoint's text
}

// way holds what the client knows about one endpoint.
type way struct {
	grpc   bool      // the endpoint rejected the direct protocol
	direct bool      // the endpoint has used the direct protocol
	late   int       // connections that received no response; irrelevant once direct is set
	since  time.Time // when the client switched to gRPC
}

const (
	// maxUnanswered is the number of connections without a response after which the client uses
	// gRPC. An intermediate proxy may be waiting for a protocol that it understands.
	maxUnanswered = 3
	// gRPCTime is how long the client keeps using gRPC for an endpoint before it tries the direct
	// protocol again. By then, another program may be listening there, or the same one may be less
	// busy.
	gRPCTime = time.Hour
)

func (w way) needsGRPC() bool { return w.grpc || !w.direct && w.late >= maxUnanswered }

func (w *ways) needsGRPC(e *endpoint) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	of := w.of[e.text]
	if of.needsGRPC() && !of.since.IsZero() && time.Since(of.since) >= gRPCTime {
		delete(w.of, e.text)
		return false
	}
	return of.needsGRPC()
}

// learn updates what the client knows about an endpoint.
func (w *ways) learn(e *endpoint, change func(*way)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	of := w.of[e.text]
	before := of.needsGRPC()
	change(&of)
	if of.needsGRPC() && !before {
		of.since = time.Now()
	}
	if w.of == nil {
		w.of = make(map[string]way)
	}
	w.of[e.text] = of
}

// directConnection is a connection with a single stream.
type directConnection struct {
	endpoint endpoint
	cfg      *settings
	instead  connection // the gRPC connection used instead, or nil
}

// Open implements connection.
func (d *directConnection) Open(ctx context.Context) (pb.StreamService_OpenClient, error) {
	s, err := d.cfg.shared.openStream(ctx, d, d.open)
	if errors.Is(err, direct.ErrNotSpoken) {
		return d.openGRPC(ctx)
	}
	return s, err
}

// openGRPC opens the stream with gRPC. If that succeeds, the client uses gRPC for this endpoint
// from now on. The exception is an endpoint that has used the direct protocol before. It may simply
// have been shutting down, so the next attempt uses the direct protocol again.
func (d *directConnection) openGRPC(ctx context.Context) (pb.StreamService_OpenClient, error) {
	conn, err := dialGRPC(d.endpoint, d.cfg)
	if err != nil {
		return nil, err
	}
	s, err := conn.Open(ctx)
	if err != nil {
		return nil, fault.Join(err, conn.Close())
	}
	d.instead = conn
	d.cfg.shared.ways.learn(&d.endpoint, func(w *way) { w.grpc = !w.direct })
	return s, nil
}

func (d *directConnection) open(ctx context.Context) (grpc.ClientStream, error) {
	if d.proxied() {
		return nil, direct.ErrNotSpoken // gRPC can use the proxy
	}
	raw, err := d.dial(ctx)
	if err != nil {
		return nil, err
	}
	s, err := direct.Open(ctx, raw, pb.StreamService_Open_FullMethodName, wire.Codec())
	switch {
	case err == nil:
		d.cfg.shared.ways.learn(&d.endpoint, func(w *way) { w.direct = true })
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded): // cancellation does not count
		d.cfg.shared.ways.learn(&d.endpoint, func(w *way) { w.late++ })
		return nil, fault.Cause(ctx)
	case ctx.Err() != nil:
		return nil, fault.Cause(ctx)
	case d.endpoint.tls == nil:
		// The server may have reset the connection because it does not support the protocol. This
		// cannot happen with TLS, which negotiates the protocol.
		return nil, direct.ErrNotSpoken
	default:
		return nil, err
	}
	return s, nil
}

// proxied reports whether the environment configures a proxy for the endpoint.
func (d *directConnection) proxied() bool {
	_, address, network := strings.Cut(d.endpoint.target, "passthrough:///")
	if !network || d.cfg.Dial != nil {
		return false
	}
	to := &url.URL{Scheme: "https", Host: address}
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: to}) // same rule as gRPC
	return proxy != nil || err != nil
}

// dial connects to the endpoint, using TLS if configured.
func (d *directConnection) dial(ctx context.Context) (c net.Conn, err error) {
	network, address := "unix", strings.TrimPrefix(d.endpoint.target, "unix:")
	if _, of, ok := strings.Cut(d.endpoint.target, "passthrough:///"); ok {
		network, address = "tcp", of
	}
	secure, err := d.cfg.tlsFor(d.endpoint)
	if err != nil {
		return nil, err
	}
	if d.cfg.Dial != nil {
		c, err = d.cfg.Dial(ctx, d.endpoint.text)
	} else {
		c, err = new(net.Dialer).DialContext(ctx, network, address)
	}
	if err != nil || secure == nil {
		return c, err
	}
	secured := tls.Client(c, tlsFor(secure, network, address))
	err = secured.HandshakeContext(ctx)
	if err == nil && secured.ConnectionState().NegotiatedProtocol != direct.Protocol {
		err = direct.ErrNotSpoken
	}
	if err != nil {
		return nil, fault.Join(err, c.Close())
	}
	return secured, nil
}

// tlsFor returns a configuration that also offers gRPC's protocol, so that the handshake succeeds
// with servers that do not support the direct protocol.
func tlsFor(c *tls.Config, network, address string) *tls.Config {
	c = c.Clone()
	c.NextProtos = []string{direct.Protocol, "h2"}
	if c.ServerName != "" {
		return c
	}
	c.ServerName = "localhost" // for a Unix socket, as in gRPC
	if host, _, err := net.SplitHostPort(address); network == "tcp" && err == nil {
		c.ServerName = host
	}
	return c
}

// Close implements connection. The stream ends with its context.
func (d *directConnection) Close() error {
	if d.instead != nil {
		return d.instead.Close()
	}
	return nil
}

// Invoke implements grpc.ClientConnInterface for logins. Logins are rare, so each uses a new
// connection.
func (d *directConnection) Invoke(
	ctx context.Context, method string, in, out any, options ...grpc.CallOption,
) error {
	conn, err := dialGRPC(d.endpoint, d.cfg)
	if err != nil {
		return err
	}
	err = conn.(grpcConnection).Invoke(ctx, method, in, out, options...)
	return fault.Join(err, conn.Close())
}

// NewStream implements grpc.ClientConnInterface.
func (d *directConnection) NewStream(
	context.Context, *grpc.StreamDesc, string, ...grpc.CallOption,
) (grpc.ClientStream, error) {
	return nil, errors.ErrUnsupported
}
