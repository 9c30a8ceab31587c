package listen

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// queue is the inner half of a listener. It contains connections handed over by a Mux.
type queue struct {
	conns chan net.Conn
	done  <-chan struct{}
	addr  addr

	accepted chan struct{} // closed when a server first calls Accept
	accept   func()        // closes accepted
}

func newQueue(done <-chan struct{}, name addr) *queue {
	q := &queue{conns: make(chan net.Conn), done: done, addr: name, accepted: make(chan struct{})}
	q.accept = sync.OnceFunc(func() { close(q.accepted) })
	return q
}

// front is a net.Listener that accepts connections from a queue.
type front struct {
	*queue
	mux *Mux
}

// Accept implements net.Listener.
func (f *front) Accept() (net.Conn, error) {
	f.accept()
	select {
	case c := <-f.conns:
		f.mux.pace.wait()
		return c, nil
	case <-f.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (f *front) Close() error { return f.mux.Close() }

// Addr implements net.Listener. The address is only the name of the protocol. The listeners passed
// to the Mux have the ports.
func (f *front) Addr() net.Addr { return f.addr }

type addr string

// Network implements net.Addr.
func (a addr) Network() string { return "mux" }

// String implements net.Addr.
func (a addr) String() string { return string(a) }

// replay is a connection whose first bytes have already been read.
type replay struct {
	net.Conn
	head []byte
}

// Read implements net.Conn. Only one goroutine at a time may call it. Both servers comply.
func (r *replay) Read(p []byte) (int, error) {
	if len(r.head) == 0 {
		return r.Conn.Read(p)
	}
	n := copy(p, r.head)
	r.head = r.head[n:]
	if len(r.head) == 0 {
		r.head = nil
	}
	return n, nil
}

// Socket returns the underlying connection, so that package direct can wait for its data.
func (r *replay) Socket() net.Conn { return r.Conn }

// secured is a TLS connection that has completed its handshake.
type secured struct {
	net.Conn
	under net.Conn
	info  credentials.AuthInfo
}

// tlsInfo returns what the handshake revealed about the other end of a connection.
func tlsInfo(t *tls.Conn) credentials.AuthInfo {
	return credentials.TLSInfo{
		State:          t.ConnectionState(),
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
	}
}

// Socket returns the underlying connection, so that package direct can wait for its data.
func (s *secured) Socket() net.Conn { return s.under }

// Credentials returns the transport credentials for a grpc.Server behind a Mux. The Mux performs
// the handshake. The credentials return its result as [credentials.TLSInfo], so that interceptors
// see client certificates. Plain connections and connections within the process are reported as
// insecure.
//
// Each connection gets an account in requests and an account in answers, unless they are nil. If
// requests is not nil, the server must also have [Requests.Options].
func Credentials(requests *Requests, answers *Answers) credentials.TransportCredentials {
	return passOn{requests, answers}
}

type passOn struct {
	requests *Requests
	answers  *Answers
}

// ServerHandshake implements credentials.TransportCredentials.
func (p passOn) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	var info credentials.AuthInfo = plain{
		credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity},
	}
	if s, ok := c.(*secured); ok {
		c, info = s.Conn, s.info
	}
	out := &served{Conn: c, in: c, addr: remote{Addr: c.RemoteAddr()}}
	if _, ok := c.(insider); !ok && p.requests != nil {
		s := p.requests.sender(c.RemoteAddr().String(), func(error) {
			go c.Close() //nolint:errcheck // TLS may block on its closing message
		})
		out.in = &frames{conn: c, sender: s, pace: starts, skip: prefaceSize}
		out.addr.sender = s
	}
	if p.answers != nil {
		out.addr.account = p.answers.account(c)
	}
	return out, info, nil
}

// served is a connection together with its accounts.
type served struct {
	net.Conn
	in   io.Reader
	addr remote
}

// remote is the address of the other end of a connection, together with the connection's accounts.
type remote struct {
	net.Addr
	account *account // nil if responses are not counted
	sender  *sender  // nil if requests are not counted
}

// remoteOf returns where a call comes from.
func remoteOf(ctx context.Context) (r remote, ok bool) {
	p, there := peer.FromContext(ctx)
	if !there {
		return remote{}, false
	}
	for addr := p.Addr; ; {
		if r, ok = addr.(remote); ok {
			return r, true
		}
		inner, wraps := addr.(interface{ Unwrap() net.Addr })
		if !wraps {
			return remote{}, false
		}
		addr = inner.Unwrap()
	}
}

// RemoteAddr implements net.Conn.
func (c *served) RemoteAddr() net.Addr { return c.addr }

// Read implements net.Conn.
func (c *served) Read(p []byte) (int, error) { return c.in.Read(p) }

// Write implements net.Conn. It writes large data in pieces, and counts each piece as the client
// reads it.
func (c *served) Write(p []byte) (n int, err error) {
	const piece = 32 << 10
	a := c.addr.account
	if a == nil {
		return c.Conn.Write(p)
	}
	for {
		wrote, err := c.Conn.Write(p[n:min(n+piece, len(p))])
		n += wrote
		a.written.Add(int64(wrote))
		if err != nil || n == len(p) {
			return n, err
		}
	}
}

// Close implements net.Conn.
func (c *served) Close() error {
	err := c.Conn.Close()
	if c.addr.sender != nil {
		c.addr.sender.close()
	}
	if c.addr.account != nil {
		c.addr.account.close()
	}
	return err
}

// ClientHandshake implements credentials.TransportCredentials.
func (passOn) ClientHandshake(
	context.Context, string, net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("listen: these credentials are for servers only")
}

// Info implements credentials.TransportCredentials.
func (passOn) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone implements credentials.TransportCredentials.
func (p passOn) Clone() credentials.TransportCredentials { return p }

// OverrideServerName implements credentials.TransportCredentials.
func (passOn) OverrideServerName(string) error { return nil }

// Inside returns a listener for connections within this process. Their requests are not counted.
func Inside(l net.Listener) net.Listener { return inside{l} }

type inside struct{ net.Listener }

// insider is a connection within this process.
type insider struct{ net.Conn }

// Accept implements net.Listener.
func (l inside) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return insider{c}, nil
}

type plain struct{ credentials.CommonAuthInfo }

// AuthType implements credentials.AuthInfo.
func (plain) AuthType() string { return "insecure" }
