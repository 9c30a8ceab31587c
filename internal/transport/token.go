package transport

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// A token is a secret shared by all members of a cluster. The two ends of a connection prove to
// each other that they have the token, without sending it. Each sends a random nonce, and an HMAC
// over both nonces and its own role. With TLS, the HMAC also covers a number that only the two ends
// of this connection know (RFC 9266). So a process in the middle, which has one connection to each
// member, cannot pass on a proof from one connection to the other. Without TLS, it can. In that
// case the token keeps out only processes that can connect but not intercept, and protects nothing
// on the wire.
//
// The listener sends its proof to every process that connects. So if a token can be guessed, an
// attacker can use that proof to test guesses.

const (
	keyProof  = "leasehold-proof" // metadata key of each call, if there is a token
	nonceSize = 32

	// These prefixes of the HMAC make the proof for one role useless for the other.
	partCaller   = "leasehold member that calls"
	partListener = "leasehold member that listens"
)

// logPause is the minimum time between two log lines of the same kind. These lines can be caused by
// any member, or by any process that is not a member.
const logPause = 5 * time.Second

var (
	errNoProof = errors.New("transport: this member requires the cluster's token, but received " +
		"none; set --peer-token-file")
	errBadProof = errors.New("transport: the other member has a different token; --peer-token-file " +
		"must be the same for all members, and nothing between them may terminate TLS")
	errTokenless = errors.New("transport: the other member has no token; set the same " +
		"--peer-token-file there")
)

var challengeDesc = grpc.MethodDesc{MethodName: "Challenge", Handler: serveChallenge}

// A proof holds the data that the two ends of a connection use to prove that they have the token.
type proof struct {
	token              []byte
	listeners, callers []byte // nonces
	channel            []byte // see channelOf
}

// of returns the proof for one role.
func (p proof) of(part string) []byte {
	mac := hmac.New(sha256.New, p.token)
	for _, data := range [][]byte{[]byte(part), p.listeners, p.callers, p.channel} {
		mac.Write(data) // all except the last have a fixed length
	}
	return mac.Sum(nil)
}

// channelOf returns a number that only the two ends of a TLS connection know (RFC 9266). Without
// TLS, the result is empty.
func channelOf(info credentials.AuthInfo) ([]byte, error) {
	secured, ok := info.(credentials.TLSInfo)
	if !ok {
		return nil, nil
	}
	channel, err := secured.State.ExportKeyingMaterial("EXPORTER-Channel-Binding", []byte{}, 32)
	if err != nil {
		return nil, fmt.Errorf("transport: bind the token to the connection: %w", err)
	}
	return channel, nil
}

func newNonce() []byte {
	nonce := make([]byte, nonceSize)
	_, _ = rand.Read(nonce) // it never fails
	return nonce
}

// challenge makes the member at the other end of s prove that it has the token. After that, all
// calls on s carry this member's proof.
func challenge(ctx context.Context, s session, token []byte) error {
	var other peer.Peer
	own := newNonce()
	answer, err := s.unary(ctx, challengeDesc.MethodName, &blob{data: own}, grpc.Peer(&other))
	if err != nil {
		return err
	}
	if len(answer.data) < nonceSize {
		return errTokenless
	}
	p := proof{token: token, listeners: answer.data[:nonceSize], callers: own}
	if p.channel, err = channelOf(other.AuthInfo); err != nil {
		return err
	}
	*s.proof = hex.EncodeToString(p.of(partCaller))
	if !hmac.Equal(answer.data[nonceSize:], p.of(partListener)) {
		// so that the other member logs the failure
		_, _ = s.unary(ctx, describeDesc.MethodName, new(blob))
		return errBadProof
	}
	return nil
}

// serveChallenge answers with a nonce and a proof. If there is no token, the answer is empty.
func serveChallenge(
	srv any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor,
) (any, error) {
	t, ask := srv.(*Transport), new(blob)
	if err := decode(ask); err != nil {
		return nil, err
	}
	c := challengedBy(ctx)
	if c == nil {
		return new(blob), nil
	}
	if len(ask.data) != nonceSize {
		return nil, errors.New("transport: the challenge has no nonce")
	}
	p := proof{
		token: t.cfg.Way.Token, listeners: c.nonce, callers: ask.data, channel: c.channel,
	}
	want := hex.EncodeToString(p.of(partCaller))
	c.want.Store(&want)
	return &blob{data: append(bytes.Clone(c.nonce), p.of(partListener)...)}, nil
}

// proven returns an error unless the caller has proven that it has the token.
func (t *Transport) proven(ctx context.Context) error {
	if len(t.cfg.Way.Token) == 0 {
		return nil
	}
	err := errNoProof
	md, _ := metadata.FromIncomingContext(ctx)
	if given := md.Get(keyProof); len(given) == 1 {
		err = errBadProof
		c := challengedBy(ctx)
		if want := c.want.Load(); want != nil && hmac.Equal([]byte(given[0]), []byte(*want)) {
			return nil
		}
	}
	t.noProof.Do(func() {
		from := "unknown"
		if p, ok := peer.FromContext(ctx); ok {
			from = p.Addr.String()
		}
		t.log.Warn("rejected a call on a peer URL", "remote", from, "error", err)
	})
	return err
}

// A challenged is an accepted connection and its nonce.
type challenged struct {
	net.Conn
	nonce   []byte
	channel []byte
	want    atomic.Pointer[string] // the expected proof, once the caller has sent its nonce
}

// RemoteAddr implements net.Conn. The address lets a call find its connection.
func (c *challenged) RemoteAddr() net.Addr { return challengedAddr{c.Conn.RemoteAddr(), c} }

type challengedAddr struct {
	net.Addr
	conn *challenged
}

// Unwrap returns the plain address.
func (a challengedAddr) Unwrap() net.Addr { return a.Addr }

func challengedBy(ctx context.Context) *challenged {
	if p, ok := peer.FromContext(ctx); ok {
		if a, ok := p.Addr.(challengedAddr); ok {
			return a.conn
		}
	}
	return nil
}

// challenging assigns a nonce to each accepted connection.
type challenging struct {
	credentials.TransportCredentials
}

// ServerHandshake implements credentials.TransportCredentials.
func (c challenging) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return conn, info, err
	}
	channel, err := channelOf(info)
	return &challenged{Conn: conn, nonce: newNonce(), channel: channel}, info, err
}

// Clone implements credentials.TransportCredentials.
func (c challenging) Clone() credentials.TransportCredentials {
	return challenging{c.TransportCredentials.Clone()}
}

// proving returns options that make each call on a connection carry the proof, once there is one.
func proving(proof *string) []grpc.DialOption {
	with := func(ctx context.Context) context.Context {
		if *proof == "" {
			return ctx
		}
		return metadata.AppendToOutgoingContext(ctx, keyProof, *proof)
	}
	return []grpc.DialOption{
		grpc.WithUnaryInterceptor(func(
			ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
			call grpc.UnaryInvoker, opts ...grpc.CallOption,
		) error {
			return call(with(ctx), method, req, reply, cc, opts...)
		}),
		grpc.WithStreamInterceptor(func(
			ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
			open grpc.Streamer, opts ...grpc.CallOption,
		) (grpc.ClientStream, error) {
			return open(with(ctx), desc, cc, method, opts...)
		}),
	}
}

// calledUnary is the part of a unary call that say uses.
type calledUnary struct{ ctx context.Context }

// SetTrailer implements trailing.
func (c calledUnary) SetTrailer(md metadata.MD) { _ = grpc.SetTrailer(c.ctx, md) }

// unary calls a method once and returns the answer.
func (s session) unary(
	ctx context.Context, method string, ask *blob, opts ...grpc.CallOption,
) (*blob, error) {
	answer := new(blob)
	var trailer metadata.MD
	err := s.Invoke(ctx, "/"+serviceName+"/"+method, ask, answer,
		append(opts, grpc.Trailer(&trailer))...)
	if err != nil {
		return nil, parseRefusal(err, trailer)
	}
	return answer, nil
}
