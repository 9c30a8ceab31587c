package authn

import (
	"context"
	"crypto/x509"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	native "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/binding"
	"leasehold.dev/internal/listen"
	"leasehold.dev/internal/login"
)

// token returns the token in the headers of a call, in either the gRPC or the HTTP form, or "".
func token(ctx context.Context) string {
	for _, name := range [...]string{
		rpctypes.TokenFieldNameGRPC, rpctypes.TokenFieldNameSwagger,
	} {
		if list := listen.Header(ctx, name); len(list) > 0 {
			return strings.TrimPrefix(list[0], "Bearer ")
		}
	}
	return ""
}

// certificate returns the verified certificate of a call's connection, or nil. Calls through the
// gateway have no certificate, so their callers must use a token.
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

// identified is the identified caller of a call.
type identified struct {
	access.Caller
	// by is the evidence if the caller is a principal of the bindings.
	by *binding.Evidence
	// unbound is the certificate if the caller is identified by its common name. The caller is
	// valid as long as the bindings do not map the certificate.
	unbound *binding.Evidence
	// byToken is set if a token has been verified. In that case, the certificate is ignored.
	byToken bool
}

// certified returns the principal identified by the connection's certificate, or an anonymous
// caller.
func (l *Logins) certified(ctx context.Context) identified {
	c := certificate(ctx)
	if c == nil {
		return identified{}
	}
	e := binding.OfCertificate(c)
	if who, ok := l.bound(e); ok {
		return who
	}
	name := c.Subject.CommonName
	if name == "" || !l.commonNames || !l.bindings.CommonNames() {
		return identified{}
	}
	return identified{
		Caller:  access.Caller{User: name, Revision: l.member.View().Access.Revision()},
		unbound: e,
	}
}

// caller returns the caller of a call. With neither a token nor a certificate, the caller is
// anonymous. The error is login.ErrInvalid or, if no binding matches, access.ErrPermissionDenied.
func (l *Logins) caller(ctx context.Context) (identified, error) {
	text := token(ctx)
	if text == "" {
		return l.certified(ctx), nil
	}
	if who, ours, err := l.issued(ctx, text); ours {
		who.byToken = err == nil
		return who, err
	}
	v := l.member.View()
	c, err := l.tokens.Check(text, users{v})
	if err != nil {
		// Another member might have just issued the token.
		if l.member.Confirm(ctx) != nil {
			return identified{}, err
		}
		if v = l.member.View(); !v.Access.Enabled() {
			return identified{}, nil // access control has since been disabled
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

// IsLoggedIn reports, without I/O, whether the caller of a call is known to have logged in. It is
// called before the call has a goroutine.
func (l *Logins) IsLoggedIn(ctx context.Context) bool {
	v := l.member.View()
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

// ended is a context that has already ended, for calls that must not wait.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// bound returns the principal to which the bindings map the evidence.
func (l *Logins) bound(e *binding.Evidence) (identified, bool) {
	p, ok := l.bindings.Identify(e)
	if !ok {
		return identified{}, false
	}
	return identified{
		Caller: access.Caller{
			User: p.Name, Revision: l.member.View().Access.Revision(), Bound: p.Bound,
		},
		by: e,
	}, true
}

// issued returns the principal identified by the token of an external issuer. If no known issuer
// issued the token, ours is false.
func (l *Logins) issued(ctx context.Context, token string) (who identified, ours bool, err error) {
	e, ours, err := l.bindings.Token(ctx, token)
	if !ours {
		return identified{}, false, nil
	}
	if err != nil {
		l.refusedToken.Do(func() {
			l.log.Warn("rejected an issuer's token", "error", err, "caller", api.Caller(ctx))
		})
		return identified{}, true, login.ErrInvalid
	}
	if who, ok := l.bound(e); ok {
		return who, true, nil
	}
	l.refusedToken.Do(func() {
		l.log.Warn("a valid token from an issuer matches no binding",
			"subject", e.Subject(), "caller", api.Caller(ctx))
	})
	return identified{}, true, access.ErrPermissionDenied
}

// Evidence returns how the caller of an accepted call was identified, and whether a binding maps
// the caller.
func (l *Logins) Evidence(ctx context.Context) (by native.WhoAmIResponse_Evidence, bound bool) {
	c, err := l.caller(ctx)
	switch {
	case err != nil || c.User == "":
		return native.WhoAmIResponse_EVIDENCE_UNSPECIFIED, false
	case !c.byToken:
		by = native.WhoAmIResponse_EVIDENCE_CERTIFICATE
	case c.by != nil:
		by = native.WhoAmIResponse_EVIDENCE_ISSUER_TOKEN
	default:
		by = native.WhoAmIResponse_EVIDENCE_TOKEN
	}
	return by, c.by != nil
}
