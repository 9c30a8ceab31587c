package server

import (
	"context"
	"time"

	"golang.org/x/time/rate"

	native "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/binding"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/login"
)

// refusalsEvery bounds how often the log says that a token of an issuer was refused: anybody can
// show one.
const refusalsEvery = time.Second

// openBindings reads the file of bindings, if there is one.
func (l *logins) openBindings(cfg Config) (err error) {
	if cfg.Access.BindingsFile == "" {
		return nil
	}
	l.refusals = &rate.Sometimes{Interval: refusalsEvery}
	l.bindings, err = binding.Open(cfg.Access.BindingsFile, binding.Options{
		Log: cfg.Logger, Changed: l.node.accessNews.tell, Dial: cfg.Host.Dialer(),
	})
	if err == nil && l.bindings.OfCertificates() && cfg.ClientTLS.TrustedCAFile == "" &&
		!cfg.ClientTLS.ClientCertAuth {
		cfg.Logger.Warn("there are bindings for certificates, but clients are not asked for one; "+
			"set --trusted-ca-file", "file", cfg.Access.BindingsFile)
	}
	return err
}

// bound returns whom the bindings know by some evidence.
func (l *logins) bound(e *binding.Evidence) (identified, bool) {
	p, ok := l.bindings.Who(e)
	if !ok {
		return identified{}, false
	}
	return identified{
		Caller: access.Caller{
			User: p.Name, Revision: l.node.View().Access.Revision(), Bound: p.Bound,
		},
		by: e,
	}, true
}

// issued returns whom a token of another issuer stands for. It is not ours if none has issued it.
func (l *logins) issued(ctx context.Context, token string) (who identified, ours bool, err error) {
	e, ours, err := l.bindings.Token(ctx, token)
	if !ours {
		return identified{}, false, nil
	}
	if err != nil {
		l.refusals.Do(func() {
			l.node.log.Warn("a token of an issuer was refused", "error", err, "caller", api.Caller(ctx))
		})
		return identified{}, true, login.ErrInvalid
	}
	if who, ok := l.bound(e); ok {
		return who, true, nil
	}
	l.refusals.Do(func() {
		l.node.log.Warn("a valid token of an issuer matches no binding",
			"subject", e.Subject(), "caller", api.Caller(ctx))
	})
	return identified{}, true, access.ErrPermissionDenied
}

// evidence tells by what a caller is known that was let in, and whether a binding says who it is.
func (l *logins) evidence(ctx context.Context) (by native.WhoAmIResponse_Evidence, bound bool) {
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

// bound is Caller for one whom the bindings know.
func (s *streamUser) bound(v *fsm.View) access.Caller {
	p, ok := s.logins.bindings.Who(s.by)
	if !ok || p.Name != s.name {
		return access.InvalidLogin
	}
	if known := s.boundTo.Load(); known != nil && known.Equal(p) {
		p = *known // so that a caller that stays the same is the same
	} else {
		s.boundTo.Store(&p)
	}
	return access.Caller{User: p.Name, Revision: v.Access.Revision(), Bound: p.Bound}
}

// wakeAtEnd has everybody look again who has something open when the token has ended that s stands
// for. It returns what calls that off.
func (s *streamUser) wakeAtEnd() (stop func()) {
	if s == nil || s.by == nil || s.by.Expires.IsZero() {
		return func() {}
	}
	t := time.AfterFunc(time.Until(s.by.Expires), s.logins.node.accessNews.tell)
	return func() { t.Stop() }
}
