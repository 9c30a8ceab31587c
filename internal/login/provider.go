package login

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Errors about tokens.
var (
	// ErrInvalid means that a token is forged, has expired, or comes from a login that is no longer
	// valid.
	ErrInvalid = errors.New("login: invalid token")
	// ErrRefused means that the user does not exist or the password is wrong.
	ErrRefused = errors.New("login: unknown user or wrong password")
	// ErrVerifyOnly means that this member has no private key for signing tokens.
	ErrVerifyOnly = errors.New("login: token signing attempted with verify-only key")
	// ErrNoTokens means that this member does not issue tokens because --auth-token is empty.
	ErrNoTokens = errors.New("login: this member does not issue tokens")
)

// Caller is the user that a token identifies.
type Caller struct {
	User string
	// Revision is the revision of users and roles at the time of the login. Simple tokens have no
	// revision, because they are checked against the current users.
	Revision uint64
	// HasRevision reports whether the token has a revision.
	HasRevision bool
}

// Users provides access to the users in this member's current state, against which tokens are
// checked.
type Users interface {
	// Hash returns the hash of a user's password. It returns false if the user has none.
	Hash(user string) ([]byte, bool)
	// Revision returns the current revision of users and roles.
	Revision() uint64
	// Key returns the public key for simple tokens issued by a member, or "" if the member has
	// none.
	Key(member uint64) string
}

// Provider issues and checks tokens.
type Provider interface {
	// Give returns a token for a user whose password has been checked against u.
	Give(user string, u Users) (string, error)
	// Check returns the caller identified by a token. Its only error is ErrInvalid.
	Check(token string, u Users) (Caller, error)
	// Key returns the public key that all members need to check this member's next tokens. It
	// returns nil if they do not need a key or already have it. It calls the function now to get
	// the current users. If the members had a key and have dropped it, that key must never be used
	// again, so Key returns a new one.
	Key(now func() Users) []byte
}

// Options configures [Parse].
type Options struct {
	// Token is the value of --auth-token: "simple", "jwt,OPTION=VALUE,...", or empty for no tokens.
	Token string
	// TTL is the lifetime of simple tokens, measured from their last use.
	TTL time.Duration
	// Member is the ID of this member.
	Member uint64
	// Now returns the machine's time. The default is time.Now.
	Now func() time.Time
}

// Parse returns the Provider configured by o. It reads the key files named in o.Token.
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
			return "", nil, fmt.Errorf("--auth-token sets the option %s twice", name)
		}
		options[name] = value
	}
	return kind, options, nil
}

// none is a Provider that does not issue tokens.
type none struct{}

// Give implements Provider.
func (none) Give(string, Users) (string, error) { return "", ErrNoTokens }

// Check implements Provider.
func (none) Check(string, Users) (Caller, error) { return Caller{}, ErrInvalid }

// Key implements Provider.
func (none) Key(func() Users) []byte { return nil }
