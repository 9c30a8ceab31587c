package login

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Errors about tokens.
var (
	// ErrInvalid means that a token is forged, has expired, or is from a login that is no longer
	// valid.
	ErrInvalid = errors.New("login: invalid token")
	// ErrRefused means that the user does not exist, or that the password is wrong.
	ErrRefused = errors.New("login: no such user or a wrong password")
	// ErrVerifyOnly means that this member has no private key for signing tokens.
	ErrVerifyOnly = errors.New("login: token signing attempted with verify-only key")
	// ErrNoTokens means that this member issues no tokens, because --auth-token is empty.
	ErrNoTokens = errors.New("login: this member does not issue tokens")
)

// Caller is the user that a token identifies.
type Caller struct {
	User string
	// Revision is the revision of users and roles at the login. Simple tokens have none: they are
	// checked against the current users.
	Revision uint64
	// HasRevision reports whether the token has a revision.
	HasRevision bool
}

// Users are the users, in this member's current state, that tokens are checked against.
type Users interface {
	// Hash returns the hash of a user's password. It returns false for a user without one.
	Hash(user string) ([]byte, bool)
	// Revision returns the revision of the users and roles.
	Revision() uint64
	// Key returns the public key of a member's simple tokens, or "" if it has none.
	Key(member uint64) string
}

// Provider issues and checks tokens.
type Provider interface {
	// Give returns a token for a user whose password has been checked against u.
	Give(user string, u Users) (string, error)
	// Check returns the caller that a token identifies. Its error is ErrInvalid.
	Check(token string, u Users) (Caller, error)
	// Key returns the public key that all members need to check the next tokens of this one, or nil
	// if they need none or have it already. It calls now for the current users. A key that they
	// once had and have dropped must never be used again: in that case, Key returns a new one.
	Key(now func() Users) []byte
}

// Options configures [Parse].
type Options struct {
	// Token is --auth-token: "simple", "jwt,OPTION=VALUE,...", or empty for none.
	Token string
	// TTL is the lifetime of simple tokens, counted from their last use.
	TTL time.Duration
	// Member is the ID of this member.
	Member uint64
	// Now is a clock of the machine. Default: time.Now.
	Now func() time.Time
}

// Parse returns the Provider described by o. It reads the key files that o names.
func Parse(o Options) (Provider, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	kind, options, err := split(o.Token)
	switch {
	case err != nil:
		return nil, err
	case kind == "simple" && o.TTL <= 0:
		return nil, fmt.Errorf("--auth-token-ttl must be above 0, not %s", o.TTL)
	case kind == "simple":
		return newSimple(o)
	case kind == "jwt":
		return newJWT(options, o.Now)
	case kind == "":
		return none{}, nil
	}
	return nil, fmt.Errorf("--auth-token %q is neither simple nor jwt", kind)
}

// split parses --auth-token.
func split(text string) (string, map[string]string, error) {
	kind, rest, more := strings.Cut(text, ",")
	options := make(map[string]string)
	for more {
		var pair string
		pair, rest, more = strings.Cut(rest, ",")
		name, value, ok := strings.Cut(pair, "=")
		if !ok || strings.Contains(value, "=") {
			return "", nil, fmt.Errorf("--auth-token: %q is not of the form option=value", pair)
		}
		if _, twice := options[name]; twice {
			return "", nil, fmt.Errorf("--auth-token has the option %s twice", name)
		}
		options[name] = value
	}
	return kind, options, nil
}

// none issues no tokens.
type none struct{}

// Give implements Provider.
func (none) Give(string, Users) (string, error) { return "", ErrNoTokens }

// Check implements Provider.
func (none) Check(string, Users) (Caller, error) { return Caller{}, ErrInvalid }

// Key implements Provider.
func (none) Key(func() Users) []byte { return nil }
