package listen

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/time/rate"

	"leasehold.dev/internal/direct"
)

// preface is how an HTTP/2 connection with prior knowledge begins. No HTTP/1 request can begin with
// it, because PRI is a reserved method (RFC 9113, 3.4).
var preface = []byte("PRI * HTTP/2.0")

// directly is how a connection to package direct begins. HTTP methods cannot contain a slash.
var directly = []byte(direct.Protocol + " ")

// defaultSniffTimeout is how long a new connection can take, including its TLS handshake, until its
// protocol is known.
const defaultSniffTimeout = 10 * time.Second

// refusalPause is the minimum time between two log lines about rejected connections.
const refusalPause = 5 * time.Second

// mostWaiting is the maximum number of connections that wait for this process, either for their
// turn in a TLS handshake or for a server to accept them. While this many are waiting, no more are
// accepted from the kernel. A connection waiting in the kernel costs this process nothing and does
// not count as a stranger, so a [Limit] does not close it.
const mostWaiting = 256

// MuxOptions configures [NewMux]. The zero value is usable.
type MuxOptions struct {
	// SniffTimeout limits the time from accepting a connection until its protocol is known. A
	// connection that takes longer is closed, so that half-open connections cannot accumulate. The
	// default is [defaultSniffTimeout].
	SniffTimeout time.Duration
	// Direct must be set if [Mux.Direct] is served as well.
	Direct bool
	// Logger logs why a connection was closed. A rejected TLS handshake is logged as a warning, at
	// most once per refusalPause. Everything else is logged at debug level. By default, nothing is
	// logged.
	Logger *slog.Logger
}

// Mux splits the connections of any number of listeners into three kinds: gRPC, streams without
// HTTP/2, and HTTP. Its methods are safe for concurrent use.
//
// Goroutines: one for each call to Serve (the caller's), and one for each accepted connection. The
// latter ends when the connection is handed over or closed, or when SniffTimeout has passed.
type Mux struct {
	opts   MuxOptions
	grpc   *queue
	direct *queue
	http   *queue
	done   chan struct{}
	wg     sync.WaitGroup // connections being sniffed

	refusals *refusals
	pace     *pace         // for connections being handed over
	waiting  chan struct{} // has a token for each waiting connection
	// handshakes has a token for each TLS handshake that is not waiting for its client. There are
	// fewer tokens than processors, because each handshake takes a millisecond of CPU time.
	handshakes chan struct{}

	mu      sync.Mutex
	closed  bool
	sources map[net.Listener]struct{}
	pending map[net.Conn]struct{}
}

// NewMux returns a Mux that has no listeners yet; see [Mux.Serve].
func NewMux(opts MuxOptions) *Mux {
	if opts.SniffTimeout <= 0 {
		opts.SniffTimeout = defaultSniffTimeout
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	m := &Mux{
		opts: opts, refusals: newRefusals(opts.Logger), pace: starts,
		handshakes: newTurns(),
		waiting:    make(chan struct{}, mostWaiting),
		done:       make(chan struct{}),
		sources:    make(map[net.Listener]struct{}),
		pending:    make(map[net.Conn]struct{}),
	}
	m.grpc = newQueue(m.done, "grpc")
	m.direct = newQueue(m.done, "direct")
	m.http = newQueue(m.done, "http")
	return m
}

// GRPC returns the listener for gRPC connections. It is for a grpc.Server that uses [Credentials].
// Closing it stops the whole Mux.
func (m *Mux) GRPC() net.Listener { return &front{queue: m.grpc, mux: m} }

// Direct returns the listener for connections that carry one stream each. It is for a direct.Server
// that uses [Credentials]. Closing it stops the whole Mux.
func (m *Mux) Direct() net.Listener { return &front{queue: m.direct, mux: m} }

// HTTP returns the listener for all other connections. It is for an http.Server. Encrypted
// connections are of type *tls.Conn, so that the server recognizes HTTP/2. Closing it stops the
// whole Mux.
func (m *Mux) HTTP() net.Listener { return &front{queue: m.http, mux: m} }

// Serve accepts connections from l until Close is called or l fails permanently. If conf is not
// nil, every connection uses TLS. Serve returns nil after Close, and closes l.
func (m *Mux) Serve(l net.Listener, conf *tls.Config) error {
	if conf == nil {
		return m.serve(l, m.route)
	}
	protocols := []string{"h2", "http/1.1"}
	if m.opts.Direct {
		protocols = append([]string{direct.Protocol}, protocols...)
	}
	conf = withALPN(conf, protocols)
	return m.serve(l, func(c net.Conn) { m.routeTLS(c, conf) })
}

// ServeHTTP is Serve for a port that serves only HTTP.
func (m *Mux) ServeHTTP(l net.Listener, conf *tls.Config) error {
	if conf == nil {
		return m.serve(l, func(c net.Conn) { m.give(m.http, c, c) })
	}
	conf = withALPN(conf, []string{"h2", "http/1.1"})
	return m.serve(l, func(c net.Conn) {
		if t, ok := m.handshake(&offer{Conn: c, mux: m}, conf); ok {
			m.give(m.http, c, t)
		}
	})
}

func (m *Mux) serve(l net.Listener, route func(net.Conn)) error {
	defer l.Close()
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil
	}
	m.sources[l] = struct{}{}
	m.mu.Unlock()
	var delay time.Duration
	for {
		if !m.mayAccept() {
			return nil
		}
		c, err := l.Accept()
		if err == nil {
			delay = 0
			m.start(c, route)
			continue
		}
		select {
		case <-m.done:
			return nil
		default:
		}
		if errors.Is(err, net.ErrClosed) || !isTemporary(err) {
			return err
		}
		// Either no file descriptor is available, or the peer has gone away. Neither is a reason to
		// stop serving. Wait, so that the loop does not spin.
		delay = min(max(2*delay, 5*time.Millisecond), time.Second)
		m.opts.Logger.Warn("accept failed", "error", err, "retry-in", delay)
		select {
		case <-m.done:
			return nil
		case <-time.After(delay):
		}
	}
}

// mayAccept waits until another connection is allowed to wait. It returns false after Close.
func (m *Mux) mayAccept() bool {
	select {
	case m.waiting <- struct{}{}:
		<-m.waiting
		return true
	case <-m.done:
		return false
	}
}

// isTemporary reports whether an accept error is temporary. net.Error's Temporary is deprecated
// except for this purpose, for which net/http uses it as well.
func isTemporary(err error) bool {
	for _, e := range []error{syscall.ENOBUFS, syscall.ENOMEM, syscall.EPROTO, syscall.EPERM} {
		if errors.Is(err, e) {
			return true // accept(2): kernel memory, network or firewall
		}
	}
	var t interface{ Temporary() bool }
	return errors.As(err, &t) && t.Temporary()
}

// start routes c in its own goroutine, with a deadline.
func (m *Mux) start(c net.Conn, route func(net.Conn)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		_ = c.Close()
		return
	}
	m.pending[c] = struct{}{}
	_ = c.SetDeadline(time.Now().Add(m.opts.SniffTimeout))
	m.wg.Go(func() {
		route(c)
		m.mu.Lock()
		delete(m.pending, c)
		m.mu.Unlock()
	})
}

// route determines the protocol of c, and passes c to the listener for that protocol.
func (m *Mux) route(c net.Conn) {
	head, start, err := sniff(c)
	if err != nil {
		m.drop(c, "the protocol of a connection could not be detected", err)
		return
	}
	q := m.http
	switch {
	case bytes.Equal(start, preface):
		q = m.grpc
	case bytes.Equal(start, directly) && m.opts.Direct:
		q = m.direct
	}
	m.give(q, c, &replay{Conn: c, head: head})
}

// routeTLS chooses a listener based on the protocols that the client offers in its hello. Streams
// without HTTP/2 have their own protocol name. gRPC libraries offer only h2, and get grpc-go's own
// fast HTTP/2. Clients that also offer http/1.1 (curl, browsers, Go's http.Client) get h2 from
// net/http, which serves JSON and passes gRPC requests to grpc.Server.ServeHTTP. That is slower,
// but correct for the few gRPC clients that offer both.
func (m *Mux) routeTLS(c net.Conn, conf *tls.Config) {
	o := &offer{Conn: c, mux: m}
	t, ok := m.handshake(o, conf)
	if !ok {
		return
	}
	switch {
	case t.ConnectionState().NegotiatedProtocol == direct.Protocol:
		m.give(m.direct, c, &secured{Conn: t, under: c, info: tlsInfo(t)})
		return
	case o.onlyH2:
		m.give(m.grpc, c, &secured{Conn: t, info: tlsInfo(t)})
		return
	}
	m.give(m.http, c, t)
}

// offer is a connection during a TLS handshake, together with the protocols that the client
// offered. The handshake has a turn whenever it is not waiting for the client.
type offer struct {
	net.Conn
	onlyH2 bool
	mux    *Mux
	over   bool // the handshake has ended
}

// Read implements net.Conn.
func (o *offer) Read(p []byte) (int, error) {
	defer o.pause()()
	return o.Conn.Read(p)
}

// Write implements net.Conn.
func (o *offer) Write(p []byte) (int, error) {
	defer o.pause()()
	return o.Conn.Write(p)
}

// pause ends the handshake's turn. It returns a function that waits for the next turn.
func (o *offer) pause() (resume func()) {
	if o.over {
		return func() {}
	}
	<-o.mux.handshakes
	return o.mux.turn
}

// turn waits for a handshake's turn.
func (m *Mux) turn() {
	m.waiting <- struct{}{}
	m.handshakes <- struct{}{}
	<-m.waiting
}

// withALPN returns a copy of conf that accepts these protocols and records which of them a client
// offered. The copy is made once per listener instead of once per connection, because it holds the
// keys for session tickets.
func withALPN(conf *tls.Config, protocols []string) *tls.Config {
	inner := conf.GetConfigForClient
	conf = conf.Clone()
	conf.NextProtos = protocols
	conf.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if o, ok := hello.Conn.(*offer); ok {
			o.onlyH2 = slices.Contains(hello.SupportedProtos, "h2") &&
				!slices.Contains(hello.SupportedProtos, "http/1.1")
		}
		if inner == nil {
			return nil, nil
		}
		fresh, err := inner(hello)
		if fresh != nil {
			fresh.NextProtos = conf.NextProtos
		}
		return fresh, err
	}
	return conf
}

func (m *Mux) handshake(c *offer, conf *tls.Config) (*tls.Conn, bool) {
	t := tls.Server(c, conf)
	m.turn()
	err := t.HandshakeContext(context.Background()) // c has a deadline
	<-m.handshakes
	c.over = true
	switch {
	case err == nil:
		return t, true
	case isGone(err): // for example, a port scan or a program that has ended
		m.drop(c, "TLS handshake failed", err)
	default:
		m.refusals.warn(c, err)
		if plain := (tls.RecordHeaderError{}); errors.As(err, &plain) && plain.Conn != nil {
			_, _ = io.WriteString(c, wantsTLS) // the client might be gone
		}
		linger(c)
	}
	return nil, false
}

// refusals logs rejected connections. A client that keeps retrying must not fill the log.
type refusals struct {
	log      *slog.Logger
	pause    rate.Sometimes
	unlogged atomic.Int64 // connections rejected since the last log line
}

func newRefusals(log *slog.Logger) *refusals {
	return &refusals{log: log, pause: rate.Sometimes{Interval: refusalPause}}
}

// warn logs why c was rejected, and how many earlier rejections were not logged.
func (r *refusals) warn(c net.Conn, why error) {
	r.unlogged.Add(1)
	r.pause.Do(func() {
		r.log.Warn("refused a connection", "remote", c.RemoteAddr().String(),
			"local", c.LocalAddr().String(), "error", why, "refused-before-it", r.unlogged.Swap(0)-1)
	})
}

// wantsTLS is the response to a client that does not use TLS on a TLS port. With it, an HTTP/2
// client can at least report that this is not HTTP/2, instead of reporting a broken connection.
const wantsTLS = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n" +
	"Connection: close\r\n\r\nthis port speaks TLS: use https://\n"

// isGone reports whether a client has closed the connection.
func isGone(err error) bool {
	for _, gone := range []error{
		io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE,
	} {
		if errors.Is(err, gone) {
			return true
		}
	}
	return false
}

// lingerTime and lingerBytes limit how long and how much is read from a rejected connection.
const (
	lingerTime  = time.Second
	lingerBytes = 1 << 20
)

// linger closes a connection after the reason has been sent to its client. A TLS 1.3 client has
// already sent more data by that time. Closing the connection with unread bytes would reset it, and
// the client would never see the reason.
func linger(c net.Conn) {
	defer c.Close() //nolint:errcheck // nothing is lost
	_ = c.SetDeadline(time.Now().Add(lingerTime))
	for o, ok := c.(*offer); ok; o, ok = c.(*offer) {
		c = o.Conn
	}
	half, ok := c.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, c, lingerBytes)
}

// give clears the deadline and passes conn, which wraps raw, to q.
func (m *Mux) give(q *queue, raw, conn net.Conn) {
	_ = raw.SetDeadline(time.Time{})
	// A member serves pages before it serves calls. Until it serves calls, waiting gRPC connections
	// must not block others.
	select {
	case <-q.accepted:
	case <-m.done:
	}
	select {
	case m.waiting <- struct{}{}:
		defer func() { <-m.waiting }()
	case <-m.done:
	}
	select {
	case q.conns <- conn:
	case <-m.done:
		_ = raw.Close()
	}
}

func (m *Mux) drop(c net.Conn, why string, err error) {
	_ = c.Close()
	m.opts.Logger.Debug(why, "remote", c.RemoteAddr().String(), "error", err)
}

// Close closes the listeners and every connection that has not been handed over yet, and waits for
// their goroutines. Connections that have been handed over belong to the servers that accepted
// them. Close can be called more than once.
func (m *Mux) Close() error {
	m.mu.Lock()
	if !m.closed {
		m.closed = true
		close(m.done)
		for l := range m.sources {
			_ = l.Close()
		}
		for c := range m.pending {
			// a time in the past, to wake the sniffing goroutine
			_ = c.SetDeadline(time.Unix(1, 0))
		}
	}
	m.mu.Unlock()
	m.wg.Wait()
	return nil
}

// sniff reads from c until it is clear whether c begins with the HTTP/2 preface, with the first
// bytes of a stream without HTTP/2, or with neither. It returns the bytes that it has read and the
// matching start, or nil for neither.
func sniff(c net.Conn) (head, start []byte, err error) {
	buf := make([]byte, 0, len(preface))
	for {
		n, err := c.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		maybe := false
		for _, start := range [...][]byte{preface, directly} {
			if bytes.HasPrefix(buf, start) {
				return buf, start, nil
			}
			maybe = maybe || bytes.HasPrefix(start, buf)
		}
		if !maybe {
			return buf, nil, nil
		}
		if err != nil {
			return nil, nil, err
		}
	}
}
