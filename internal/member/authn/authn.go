// Package authn authenticates callers: the user of a token in a header of the call, or else of the
// certificate of its connection, as in etcd. It logs users in, and applies the bindings of external
// identities. Package access decides what a caller may do.
package authn

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/binding"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/listen"
	"leasehold.dev/internal/login"
)

// Config configures logins.
type Config struct {
	MemberID  uint64
	Tokens    login.Options
	Passwords login.PasswordOptions
	// CommonNames makes the common name of a verified certificate a user, as in etcd.
	CommonNames bool
	// BindingsFile contains the bindings of external identities; "" for none. Certificates is set
	// if clients are asked for certificates. Dial connects to issuers.
	BindingsFile string
	Certificates bool
	Dial         func(ctx context.Context, network, address string) (net.Conn, error)
	Logger       *slog.Logger
	Metrics      prometheus.Registerer
}

// Member is the member that users log in to.
type Member interface {
	View() *fsm.View
	// Confirm returns when the view is no older than the call.
	Confirm(context.Context) error
	// ProposeOwn proposes a command on behalf of the member itself.
	ProposeOwn(context.Context, fsm.Command) (fsm.Result, error)
}

// Logins authenticates callers. It is safe for concurrent use.
type Logins struct {
	member       Member
	memberID     uint64
	changes      *Changes
	passwords    *login.Passwords
	tokens       login.Provider
	attempts     attempts
	bindings     *binding.Bindings // nil for none
	commonNames  bool
	log          *slog.Logger
	refusedToken rate.Sometimes // limits log lines
}

// refusedTokenEvery bounds how often a rejected token of an issuer is logged: anyone can send one.
const refusedTokenEvery = time.Second

// New returns the logins at a member. It announces changes of the bindings.
func New(c Config, member Member, changes *Changes) (*Logins, error) {
	tokens, err := login.Parse(c.Tokens)
	if err != nil {
		return nil, err
	}
	l := &Logins{
		member: member, memberID: c.MemberID, changes: changes,
		passwords: login.NewPasswords(c.Passwords), tokens: tokens,
		attempts: newAttempts(c.Metrics), commonNames: c.CommonNames, log: c.Logger,
		refusedToken: rate.Sometimes{Interval: refusedTokenEvery},
	}
	if c.BindingsFile == "" {
		return l, nil
	}
	l.bindings, err = binding.Open(c.BindingsFile, binding.Options{
		Log: c.Logger, Changed: changes.Announce, Dial: c.Dial,
	})
	if err == nil && l.bindings.OfCertificates() && !c.Certificates {
		c.Logger.Warn("bindings for certificates are configured, but clients are not asked "+
			"for certificates; set --trusted-ca-file", "file", c.BindingsFile)
	}
	return l, err
}

// Bindings returns the bindings, nil if there are none. l may be nil.
func (l *Logins) Bindings() *binding.Bindings {
	if l == nil {
		return nil
	}
	return l.bindings
}

// users adapts a view for package login.
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

// LogIn checks a password and returns a token. A refusal does not reveal whether the user exists.
func (l *Logins) LogIn(ctx context.Context, user, password string) (string, error) {
	if len(user) > login.MaxName {
		return "", login.ErrRefused // it would be in the log and, while it waits, in memory
	}
	if err := l.member.Confirm(ctx); err != nil {
		return "", err
	}
	for {
		v := l.member.View()
		if !v.Access.Enabled() {
			return "", access.ErrNotEnabled
		}
		// The caller must not learn whether the user exists or has a password.
		hash, _ := users{v}.Hash(user)
		from := api.Address(ctx)
		right, err := l.passwords.Check(ctx, login.Login{
			User: user, Password: password, Address: cmp.Or(listen.Site(from), from), Hash: hash,
		})
		l.attempts.count(right, err)
		if err != nil {
			return "", err
		}
		if !right {
			l.log.Warn("a login was refused: no such user or a wrong password", "user", user,
				"caller", api.Caller(ctx))
			return "", login.ErrRefused
		}
		if err := l.publishTokenKey(ctx); err != nil {
			return "", err
		}
		now := l.member.View()
		if known, ok := (users{now}).Hash(user); !ok || !bytes.Equal(known, hash) ||
			!now.Access.Enabled() {
			continue // the password has changed in the meantime
		}
		return l.tokens.Give(user, users{now})
	}
}

// publishTokenKey replicates the key that checks the tokens of this member, unless it has been.
func (l *Logins) publishTokenKey(ctx context.Context) error {
	key := l.tokens.Key(func() login.Users { return users{l.member.View()} })
	if len(key) == 0 {
		return nil
	}
	res, err := l.member.ProposeOwn(ctx, &fsm.SetMember{Member: fsm.Member{
		ID: l.memberID, TokenKey: string(key),
	}})
	return errors.Join(err, res.Err)
}

// HashPassword returns the hash of a new password.
func (l *Logins) HashPassword(ctx context.Context, password string) ([]byte, error) {
	return l.passwords.Hash(ctx, password)
}
