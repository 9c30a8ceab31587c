package transport

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"net/url"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"leasehold.dev/internal/listen"
)

const (
	// dialTimeout bounds the TCP handshake. helloTimeout bounds the entire time until a stream is
	// accepted. A stopped process can still accept the connection, but never the stream.
	dialTimeout  = time.Second
	helloTimeout = 3 * time.Second

	// A member has one stream to another member, or two while it sends a snapshot. The headers of a
	// stream contain the member's identity and URLs.
	maxStreams    = 64
	maxHeaderList = 16 << 10
	// strangerBytes bounds the incomplete requests on a connection until the connection is known to
	// belong to a member.
	strangerBytes = 1 << 20

	bufferSize = 128 << 10
	windowSize = 4 << 20
)

// session is one connection that is used by gRPC.
type session struct {
	*grpc.ClientConn
	conn net.Conn
	// proof is sent with each call. It is empty if there is no token.
	proof *string
}

func (s session) close() {
	_ = s.ClientConn.Close()
	_ = s.conn.Close() // in case gRPC has never used it
}

// connect opens a connection to u. It dials the connection itself, because gRPC does not reveal
// exactly how dialing failed, and retries later than needed.
func connect(ctx context.Context, u url.URL, way Way) (session, error) {
	conf, creds := way.TLS, insecure.NewCredentials()
	if listen.IsTLS(u) {
		if conf == nil {
			return session{}, fmt.Errorf("transport: %s needs a TLS configuration", u.String())
		}
		fresh, err := listen.Fresh(conf)
		if err != nil {
			return session{}, err
		}
		creds = credentials.NewTLS(fresh)
	}
	network, addr := listen.Address(u)
	dial := way.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	conn, err := dial(ctx, network, addr)
	if err != nil {
		return session{}, err
	}
	var taken atomic.Bool
	proof := new(string)
	options := append(append(clientOptions, proving(proof)...),
		grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			if taken.Swap(true) {
				return nil, errors.New("transport: connection lost")
			}
			return conn, nil
		}))
	if conf == nil || conf.ServerName == "" {
		host := "localhost" // a socket file has no host name, but its certificate needs one
		if network == "tcp" {
			host = addr
		}
		options = append(options, grpc.WithAuthority(host))
	}
	cc, err := grpc.NewClient("passthrough:///member", options...)
	if err != nil {
		_ = conn.Close()
		return session{}, err
	}
	s := session{cc, conn, proof}
	if len(way.Token) > 0 {
		if err := challenge(ctx, s, way.Token); err != nil {
			s.close()
			return session{}, err
		}
	}
	return s, nil
}

// clientOptions has no spare capacity, so connect appends to a copy.
var clientOptions = func() []grpc.DialOption {
	o := []grpc.DialOption{
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableHealthCheck(),
		grpc.WithDisableRetry(), // otherwise gRPC retains what it has sent
		grpc.WithIdleTimeout(0),
		grpc.WithReadBufferSize(bufferSize),
		grpc.WithWriteBufferSize(bufferSize),
		grpc.WithStaticStreamWindowSize(windowSize),
		grpc.WithStaticConnWindowSize(windowSize),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.DefaultConfig, MinConnectTimeout: helloTimeout,
		}),
		// For snapshots. On a message stream, missing "alive" messages reveal a dead connection
		// earlier.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: 10 * time.Second, Timeout: 5 * time.Second,
		}),
		grpc.WithDefaultCallOptions(
			grpc.ForceCodecV2(codec{}),
			grpc.MaxCallRecvMsgSize(maxFrame), grpc.MaxCallSendMsgSize(math.MaxInt32),
		),
	}
	return o[:len(o):len(o)]
}()

// serverOptions returns the options for the server in Serve.
func (t *Transport) serverOptions() []grpc.ServerOption {
	strangers := listen.NewStrangers(strangerBytes, t.log)
	creds := listen.Credentials(strangers, nil)
	if len(t.cfg.Way.Token) > 0 {
		creds = challenging{creds}
	}
	return append(strangers.Options(nil),
		grpc.Creds(creds),
		grpc.ForceServerCodecV2(codec{}),
		grpc.MaxRecvMsgSize(maxFrame),
		grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(maxHeaderList),
		grpc.WriteBufferSize(bufferSize),
		grpc.StaticStreamWindowSize(windowSize),
		grpc.StaticConnWindowSize(windowSize),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: 5 * time.Second, Timeout: 5 * time.Second,
		}),
		grpc.WaitForHandlers(true),
		grpc.StreamInterceptor(t.cfg.Panics.Stream),
	)
}

// isRefused reports whether err means that no process listens at u. Over TCP, the remote kernel
// refuses the connection immediately.
func isRefused(err error, u url.URL) bool {
	network, _ := listen.Address(u)
	return errors.Is(err, syscall.ECONNREFUSED) ||
		network == "unix" && errors.Is(err, fs.ErrNotExist)
}
