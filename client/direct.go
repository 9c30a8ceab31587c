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

// dialDirect is the dialer of New. The stream has a connection of its own, without HTTP/2, which
// costs the member a part of what one of gRPC does, unless something on the way there speaks
// nothing else: then it is one of gRPC.
func dialDirect(e endpoint, c *settings) (connection, error) {
	if c.GRPC || c.shared.ways.needsGRPC(&e) {
		return dialGRPC(e, c)
	}
	return &directConnection{endpoint: e, cfg: c}, nil
}

// ways are what is known of how endpoints are to be spoken to.
type ways struct {
	mu sync.Mutex
	of map[string]way // by the endpoint's text
}

// way is how to speak to one.
type way struct {
	grpc   bool      // it has said that it does not know the other protocol
	direct bool      // it has spoken that
	late   int       // how often it was connected to since and said nothing
	since  time.Time // when it began to need gRPC
}

const (
	// mostLate is how often an endpoint may say nothing until it is spoken to by gRPC: what is on
	// the way there may wait for something that it knows.
	mostLate = 3
	// forgetWay is after how long an endpoint that needs gRPC is asked again: it may be another
	// program by then, or less busy.
	forgetWay = time.Hour
)

func (w way) needsGRPC() bool { return w.grpc || !w.direct && w.late >= mostLate }

func (w *ways) needsGRPC(e *endpoint) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	of := w.of[e.text]
	if of.needsGRPC() && !of.since.IsZero() && time.Since(of.since) >= forgetWay {
		delete(w.of, e.text)
		return false
	}
	return of.needsGRPC()
}

// learn changes what is known of an endpoint.
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

// directConnection is a connection of one stream.
type directConnection struct {
	endpoint endpoint
	cfg      *settings
	instead  connection // of gRPC; nil unless it takes the place
}

// Open implements connection.
func (d *directConnection) Open(ctx context.Context) (pb.StreamService_OpenClient, error) {
	s, err := d.cfg.shared.openStream(ctx, d, d.open)
	if errors.Is(err, direct.ErrNotSpoken) {
		return d.openGRPC(ctx)
	}
	return s, err
}

// openGRPC opens the stream by gRPC. If that can be had, it is what this endpoint needs; but one
// that has spoken the other protocol before may have been about to end, and is asked again next
// time.
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
		return nil, direct.ErrNotSpoken // gRPC knows how to go there
	}
	raw, err := d.dial(ctx)
	if err != nil {
		return nil, err
	}
	s, err := direct.Open(ctx, raw, pb.StreamService_Open_FullMethodName, wire.Codec())
	switch {
	case err == nil:
		d.cfg.shared.ways.learn(&d.endpoint, func(w *way) { w.direct = true })
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded): // and not one that is not wanted
		d.cfg.shared.ways.learn(&d.endpoint, func(w *way) { w.late++ })
		return nil, fault.Cause(ctx)
	case ctx.Err() != nil:
		return nil, fault.Cause(ctx)
	case d.endpoint.tls == nil:
		return nil, direct.ErrNotSpoken // it may be reset; with TLS the protocol is agreed on
	default:
		return nil, err
	}
	return s, nil
}

// proxied reports whether the environment says that connections are made by a proxy.
func (d *directConnection) proxied() bool {
	_, address, network := strings.Cut(d.endpoint.target, "passthrough:///")
	if !network || d.cfg.Dial != nil {
		return false
	}
	to := &url.URL{Scheme: "https", Host: address}
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: to}) // as gRPC asks
	return proxy != nil || err != nil
}

// dial connects, by TLS if the endpoint has it.
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

// tlsFor returns a configuration that offers gRPC's protocol besides, so that a server without
// ours does not refuse the client before it can say so.
func tlsFor(c *tls.Config, network, address string) *tls.Config {
	c = c.Clone()
	c.NextProtos = []string{direct.Protocol, "h2"}
	if c.ServerName != "" {
		return c
	}
	c.ServerName = "localhost" // as gRPC has it for sockets of files
	if host, _, err := net.SplitHostPort(address); network == "tcp" && err == nil {
		c.ServerName = host
	}
	return c
}

// Close implements connection. The stream ends by its context.
func (d *directConnection) Close() error {
	if d.instead != nil {
		return d.instead.Close()
	}
	return nil
}

// Invoke implements grpc.ClientConnInterface, for logins. They are rare, so each has a connection.
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
