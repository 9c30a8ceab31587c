package server

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"weak"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/api/etcd/v3electionpb"
	"leasehold.dev/internal/api/etcd/v3lockpb"
	"leasehold.dev/internal/api/relayed"
	"leasehold.dev/internal/audit"
	"leasehold.dev/internal/binding"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/intercept"
	"leasehold.dev/internal/listen"
	"leasehold.dev/internal/login"
)

// logins establish who calls: whom a token in the header of a call stands for, or else whom the
// certificate of the connection names, as in etcd. What callers may do is decided where it is done.
type logins struct {
	node      *node
	passwords *login.Passwords
	tokens    login.Provider
	attempts  attempts
	// certificates says that the common name of a verified certificate is a user.
	certificates bool
	// bindings say who callers are that were identified elsewhere.
	bindings *binding.Bindings
	refusals *rate.Sometimes // of tokens of issuers, in the log
}

// newLogins returns the logins at a member.
func newLogins(cfg Config, n *node) (*logins, error) {
	tokens, err := login.Parse(login.Options{
		Token: cfg.Access.Token, TTL: cfg.Access.TokenTTL, Member: n.member,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	l := &logins{
		node: n,
		passwords: login.NewPasswords(login.PasswordOptions{
			Cost: cfg.Access.BcryptCost, Least: cfg.Access.MinPassword,
			Failures: cfg.Access.MaxFailedLogins,
		}),
		tokens:       tokens,
		attempts:     newAttempts(n.metrics.Registry),
		certificates: cfg.ClientTLS.ClientCertAuth,
	}
	if err := l.openBindings(cfg); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return l, nil
}

// users is a view as package login sees it.
type users struct{ *fsm.View }

// Hash implements login.Users.
func (u users) Hash(user string) ([]byte, bool) {
	x, ok := u.Access.User(user)
	return x.Hash, ok && !x.NoPassword
}

// Revision implements login.Users.
func (u users) Revision() uint64 { return u.Access.Revision() }

// Key implements login.Users.
func (u users) Key(member uint64) string {
	m, _ := u.Member(member)
	return m.TokenKey
}

// LogIn implements etcd.Node.
func (n *node) LogIn(ctx context.Context, user, password string) (string, error) {
	if len(user) > login.MaxName {
		return "", login.ErrRefused // it would be in the log and, while it waits, in memory
	}
	if err := n.Confirm(ctx); err != nil {
		return "", err
	}
	for {
		v := n.View()
		if !v.Access.Enabled() {
			return "", access.ErrNotEnabled
		}
		// Nothing is told of a user that is not there, nor whether there is a password.
		hash, _ := users{v}.Hash(user)
		from := api.Address(ctx)
		right, err := n.logins.passwords.Check(ctx, login.Login{
			User: user, Password: password, Address: cmp.Or(listen.Site(from), from), Hash: hash,
		})
		n.logins.attempts.count(right, err)
		if err != nil {
			return "", err
		}
		if !right {
			n.log.Warn("a login was refused: no such user or a wrong password", "user", user,
				"caller", api.Caller(ctx))
			return "", login.ErrRefused
		}
		if err := n.publishTokenKey(ctx); err != nil {
			return "", err
		}
		now := n.View()
		if known, ok := (users{now}).Hash(user); !ok || !bytes.Equal(known, hash) ||
			!now.Access.Enabled() {
			continue // the password is another one since
		}
		return n.logins.tokens.Give(user, users{now})
	}
}

// publishTokenKey has all members know the key by which the tokens of this one are checked, if they
// do not know it yet.
func (n *node) publishTokenKey(ctx context.Context) error {
	key := n.logins.tokens.Key(func() login.Users { return users{n.View()} })
	if len(key) == 0 {
		return nil
	}
	res, err := n.propose(ctx, &fsm.SetMember{Member: fsm.Member{
		ID: n.member, TokenKey: string(key),
	}})
	return errors.Join(err, res.Err)
}

// HashPassword implements etcd.Node.
func (n *node) HashPassword(ctx context.Context, password string) ([]byte, error) {
	return n.logins.passwords.Hash(ctx, password)
}

// token returns the token in the headers of a call, in gRPC's or HTTP's form, "" if there is none.
func token(ctx context.Context) string {
	for _, name := range [...]string{
		rpctypes.TokenFieldNameGRPC, rpctypes.TokenFieldNameSwagger,
	} {
		if list := metadata.ValueFromIncomingContext(ctx, name); len(list) > 0 {
			return strings.TrimPrefix(list[0], "Bearer ")
		}
	}
	return ""
}

// certificate returns the verified certificate of the connection that a call came over, nil if
// there is none. The gateway has none: its callers must show a token.
func certificate(ctx context.Context) *x509.Certificate {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 || len(info.State.VerifiedChains[0]) == 0 {
		return nil
	}
	return info.State.VerifiedChains[0][0]
}

// identified is who makes a call.
type identified struct {
	access.Caller
	// by is why, for one that the bindings know.
	by *binding.Evidence
	// unbound is the certificate of a user by its common name: it counts while the bindings do not
	// bind it.
	unbound *binding.Evidence
	// byToken says that a token was verified, and no certificate counts.
	byToken bool
}

// certified returns whom the certificate of the connection stands for, nobody if there is none.
func (l *logins) certified(ctx context.Context) identified {
	c := certificate(ctx)
	if c == nil {
		return identified{}
	}
	e := binding.OfCertificate(c)
	if who, ok := l.bound(e); ok {
		return who
	}
	name := c.Subject.CommonName
	if name == "" || !l.certificates || !l.bindings.CommonNames() {
		return identified{}
	}
	return identified{
		Caller:  access.Caller{User: name, Revision: l.node.View().Access.Revision()},
		unbound: e,
	}
}

// caller returns who makes a call, nobody if there is neither token nor certificate. Its error is
// login.ErrInvalid, or access.ErrPermissionDenied for whom nothing binds.
func (l *logins) caller(ctx context.Context) (identified, error) {
	text := token(ctx)
	if text == "" {
		return l.certified(ctx), nil
	}
	if who, ours, err := l.issued(ctx, text); ours {
		who.byToken = err == nil
		return who, err
	}
	v := l.node.View()
	c, err := l.tokens.Check(text, users{v})
	if err != nil {
		// Another member may have given it only now.
		if l.node.Confirm(ctx) != nil {
			return identified{}, err
		}
		if v = l.node.View(); !v.Access.Enabled() {
			return identified{}, nil // nor is it any more
		}
		if c, err = l.tokens.Check(text, users{v}); err != nil {
			return identified{}, err
		}
	}
	if !c.HasRevision {
		c.Revision = v.Access.Revision()
	}
	return identified{
		Caller: access.Caller{User: c.User, Revision: c.Revision}, byToken: true,
	}, nil
}

// knows reports whether the caller of a call has logged in, as far as that is in memory. It is
// called before the call has a goroutine.
func (l *logins) knows(ctx context.Context) bool {
	v := l.node.View()
	if !v.Access.Enabled() {
		return true
	}
	text := token(ctx)
	if text == "" {
		return l.certified(ctx).User != ""
	}
	if e, ours, err := l.bindings.Token(ended, text); ours {
		if err != nil {
			return false
		}
		_, ok := l.bound(e)
		return ok
	}
	_, err := l.tokens.Check(text, users{v})
	return err == nil
}

// ended is a context for what must not wait.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// vouch notes that the caller of a call has logged in, or that there are no logins. A relay that
// asks is told so.
func vouch(ctx context.Context) {
	listen.Vouch(ctx)
	if len(metadata.ValueFromIncomingContext(ctx, relayed.KeyKnown)) > 0 {
		// At once: the first answer may be long in coming. A relay's call takes it.
		_ = grpc.SendHeader(ctx, metadata.Pairs(relayed.KeyKnown, "1"))
	}
}

// anybody reports whether a method is for callers that have not logged in: what logs them in, and
// what is not about the member's state.
func anybody(method string) bool {
	return method == etcdserverpb.Auth_Authenticate_FullMethodName ||
		strings.HasPrefix(method, "/grpc.")
}

// doors let calls in, and have those recorded that they do not let in.
type doors struct {
	*logins
	audit *audit.Recorder // nil if there is no audit log
}

// enter returns the context of a unary call with who makes it, and what is to be called when it
// ends, nil for nothing.
func (l doors) enter(
	ctx context.Context, req any, method string,
) (_ context.Context, leave func(), _ error) {
	if anybody(method) {
		return ctx, nil, nil
	}
	if !l.node.View().Access.Enabled() {
		vouch(ctx)
		return ctx, nil, nil
	}
	c, err := l.caller(ctx)
	if err != nil {
		return nil, nil, l.audit.Refused(ctx, req, method, api.Error(err))
	}
	if c == (identified{}) {
		return ctx, nil, nil
	}
	vouch(ctx)
	if !waits(method) {
		return api.WithIdentity(ctx, callUser{c.Caller, c.byToken}), nil, nil
	}
	s := l.stays(c)
	return api.WithIdentity(ctx, s), s.wakeAtEnd(), nil
}

// waits reports whether the calls of a method last for as long as somebody else holds what they
// wait for. Like a stream they go on when other users change, and leave the queue when they end.
func waits(method string) bool {
	return method == v3lockpb.Lock_Lock_FullMethodName ||
		method == v3electionpb.Election_Campaign_FullMethodName
}

// stream is an intercept.Stream.
func (l doors) stream(
	stream grpc.ServerStream, info *grpc.StreamServerInfo,
) (grpc.ServerStream, intercept.Leave, error) {
	if anybody(info.FullMethod) {
		return stream, nil, nil
	}
	s, err := l.open(stream.Context())
	if err == nil && (s != nil || !l.node.View().Access.Enabled()) {
		vouch(stream.Context())
	}
	if err != nil && (!info.IsClientStream || errors.Is(err, access.ErrPermissionDenied)) {
		return nil, nil, l.audit.Refused(stream.Context(), nil, info.FullMethod, api.Error(err))
	}
	if s == nil && err == nil {
		return stream, nil, nil
	}
	// A stream with more than one message is told at each of them: etcd's clients log in again
	// when they are told so of a watch, and not when they are told so of its stream.
	stop := s.wakeAtEnd()
	known := &knownStream{stream, api.WithIdentity(stream.Context(), s)}
	return known, func(err error) error {
		stop()
		return err
	}, nil
}

// open returns who opens a stream: nil for nobody, who is nobody for as long as it is open. With an
// error it returns one whose login does not count.
func (l *logins) open(ctx context.Context) (*streamUser, error) {
	if !l.node.View().Access.Enabled() {
		c := l.certified(ctx)
		if c.User == "" {
			return nil, nil
		}
		return &streamUser{logins: l, name: c.User, by: c.by, unbound: c.unbound}, nil
	}
	c, err := l.caller(ctx)
	if err != nil {
		return &streamUser{logins: l}, err
	}
	if c == (identified{}) {
		return nil, nil
	}
	return l.stays(c), nil
}

// knownBy is an identity that says by what the caller is known.
type knownBy interface {
	api.Identity
	// knownByToken reports whether a token was verified. One that a call has beside a certificate
	// while access control is not enabled is not.
	knownByToken() bool
}

// callUser is who makes a call that ends soon.
type callUser struct {
	who     access.Caller
	byToken bool
}

var _ knownBy = callUser{}

// Caller implements api.Identity.
func (c callUser) Caller() access.Caller { return c.who }

func (c callUser) knownByToken() bool { return c.byToken }

// stays returns who makes a call for as long as it lasts.
func (l *logins) stays(c identified) *streamUser {
	s := &streamUser{logins: l, byToken: c.byToken, unbound: c.unbound}
	v := l.node.View()
	switch {
	case c.by != nil:
		s.name, s.by = c.User, c.by
	case c.Revision >= v.Access.Revision():
		u, _ := v.Access.User(c.User)
		s.name, s.hash = c.User, u.Hash
	}
	return s
}

// streamUser is who has opened a stream, or makes a call that waits. A login counts for as long as
// the stream or the call lasts and the user has the password that it had at its beginning, even if
// the token has expired. A principal of the bindings counts until its token has expired, and while
// the bindings bind it to the same name. The common name of a certificate counts while the bindings
// do not bind the certificate.
type streamUser struct {
	logins  *logins
	name    string // empty if the login did not count
	byToken bool
	hash    []byte
	by      *binding.Evidence
	unbound *binding.Evidence // as in identified
	// counted are users by which the login counted. They never change, and a stream that is idle
	// must not keep them in memory.
	counted atomic.Pointer[weak.Pointer[access.State]]
	// boundTo is who by was the last time that was asked.
	boundTo atomic.Pointer[binding.Principal]
}

var _ knownBy = (*streamUser)(nil)

func (s *streamUser) knownByToken() bool { return s.byToken }

// Caller implements api.Identity.
func (s *streamUser) Caller() access.Caller {
	v := s.logins.node.View()
	if s.by != nil {
		return s.bound(v)
	}
	counts := s.name != ""
	if counts && s.unbound != nil && s.logins.bindings != nil {
		_, bound := s.logins.bindings.Who(s.unbound)
		counts = !bound && s.logins.bindings.CommonNames()
	}
	if counts && s.byToken && !s.countedBy(v.Access) {
		u, ok := v.Access.User(s.name)
		if counts = ok && bytes.Equal(u.Hash, s.hash); counts {
			by := weak.Make(v.Access)
			s.counted.Store(&by)
		}
	}
	if !counts {
		return access.InvalidLogin
	}
	return access.Caller{User: s.name, Revision: v.Access.Revision()}
}

// countedBy reports whether it is known that the login counts by some users.
func (s *streamUser) countedBy(users *access.State) bool {
	by := s.counted.Load()
	return by != nil && by.Value() == users
}

// knownStream is a stream of which is known who has opened it.
type knownStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (s *knownStream) Context() context.Context { return s.ctx }
