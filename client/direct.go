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

// dialDirect is New's dialer. The stream gets a connection of its own without HTTP/2, which costs
// the member much less than gRPC. It falls back to gRPC if a proxy in between supports nothing
// else.
func dialDirect(e endpoint, c *settings) (connection, error) {
	if c.GRPC || c.shared.ways.needsGRPC(&e) {
		return dialGRPC(e, c)
	}
	return &directConnection{endpoint: e, cfg: c}, nil
}

// ways remembers which protocol each endpoint needs.
type ways struct {
	mu sync.Mutex
	of map[string]way // by the endpoint's text
}

// way is what the client has learned about one endpoint.
type way struct {
	grpc   bool      // rejected the direct protocol
	direct bool      // has used the direct protocol
	late   int       // connections since then without any response
	since  time.Time // when it began to need gRPC
}

const (
	// maxUnanswered is how many connections without a response are allowed before gRPC is used: a
	// proxy in between may be waiting for a protocol that it understands.
	maxUnanswered = 3
	// gRPCTime is how long the result is valid for an endpoint that needs gRPC: by then another
	// program may listen there, or it may be less busy.
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

// learn updates what the client has learned about an endpoint.
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
	instead  connection // the gRPC connection used in its place, or nil
}

// Open implements connection.
func (d *directConnection) Open(ctx context.Context) (pb.StreamService_OpenClient, error) {
	s, err := d.cfg.shared.openStream(ctx, d, d.open)
	if errors.Is(err, direct.ErrNotSpoken) {
		return d.openGRPC(ctx)
	}
	return s, err
}

// openGRPC opens the stream with gRPC. If that succeeds, the endpoint needs gRPC. But an endpoint
// that has used the direct protocol may just have been shutting down; it is tried again next time.
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
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded): // but not if the attempt was canceled
		d.cfg.shared.ways.learn(&d.endpoint, func(w *way) { w.late++ })
		return nil, fault.Cause(ctx)
	case ctx.Err() != nil:
		return nil, fault.Cause(ctx)
	case d.endpoint.tls == nil:
		return nil, direct.ErrNotSpoken // perhaps reset for it; TLS negotiates it
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
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: to}) // like gRPC
	return proxy != nil || err != nil
}

// dial connects, with TLS if the endpoint uses it.
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

// tlsFor returns a configuration that also offers gRPC's protocol, so that a server without the
// direct protocol completes the handshake.
func tlsFor(c *tls.Config, network, address string) *tls.Config {
	c = c.Clone()
	c.NextProtos = []string{direct.Protocol, "h2"}
	if c.ServerName != "" {
		return c
	}
	c.ServerName = "localhost" // as gRPC does for Unix sockets
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

// Invoke implements grpc.ClientConnInterface for logins. They are rare, so each uses a new
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
