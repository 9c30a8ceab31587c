// Package authn authenticates callers. As in etcd, the caller is the user named by a token in a
// header of the call or, without a token, by the connection's certificate. The package also logs
// users in, and applies the bindings of external identities. Package access decides what a caller
// is allowed to do.
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
	// CommonNames means that the common name of a verified certificate is treated as a user name,
	// as in etcd.
	CommonNames bool
	// BindingsFile contains the bindings of external identities. It is "" if there are none.
	// Certificates is set if clients are asked for certificates. Dial connects to issuers.
	BindingsFile string
	Certificates bool
	Dial         func(ctx context.Context, network, address string) (net.Conn, error)
	Logger       *slog.Logger
	Metrics      prometheus.Registerer
}

// Member is the member that users log in to.
type Member interface {
	View() *fsm.View
	// Confirm returns once the view is at least as recent as the time at which Confirm was called.
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
	bindings     *binding.Bindings // nil if there are none
	commonNames  bool
	log          *slog.Logger
	refusedToken rate.Sometimes // limits log lines
}

// refusedTokenEvery is the minimum interval between log lines about rejected tokens from issuers.
// It is needed because anyone can send such a token.
const refusedTokenEvery = time.Second

// New returns the logins of a member. Changes to the bindings are announced through changes.
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

// Bindings returns the bindings, or nil if there are none. It can be called on a nil Logins.
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

// LogIn checks a password and returns a token. If the login is rejected, the error does not reveal
// whether the user exists.
func (l *Logins) LogIn(ctx context.Context, user, password string) (string, error) {
	if len(user) > login.MaxName {
		// otherwise, the name would be logged, and kept in memory while the login waits
		return "", login.ErrRefused
	}
	if err := l.member.Confirm(ctx); err != nil {
		return "", err
	}
	for {
		v := l.member.View()
		if !v.Access.Enabled() {
			return "", access.ErrNotEnabled
		}
		// The caller must not be able to find out whether the user exists or has a password.
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
			l.log.Warn("rejected a login: unknown user or wrong password", "user", user,
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

// publishTokenKey replicates the key with which this member's tokens are checked, unless it has
// already been replicated.
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
