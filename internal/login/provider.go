package login

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// These errors are what becomes of a token.
var (
	// ErrInvalid means that a token is forged, has ended, or is of a login that counts no more.
	ErrInvalid = errors.New("login: invalid token")
	// ErrRefused means that there is no such user, or that the password is another one.
	ErrRefused = errors.New("login: no such user or a wrong password")
	// ErrVerifyOnly means that this member has no private key to sign tokens with.
	ErrVerifyOnly = errors.New("login: token signing attempted with verify-only key")
	// ErrNoTokens means that this member gives no tokens, for --auth-token is empty.
	ErrNoTokens = errors.New("login: this member does not issue tokens")
)

// Caller is whom a token stands for.
type Caller struct {
	User string
	// Revision is that of users and roles when the user logged in. Simple tokens do not have one:
	// they are checked against the users as they are now.
	Revision uint64
	// HasRevision says that the token has a revision.
	HasRevision bool
}

// Users is what tokens are checked against: the users as a member knows them now.
type Users interface {
	// Hash returns the hash of a user's password. It is false for a user who has none.
	Hash(user string) ([]byte, bool)
	// Revision is that of the users and roles.
	Revision() uint64
	// Key returns the public key of a member's simple tokens, "" if it has none.
	Key(member uint64) string
}

// Provider gives and checks tokens.
type Provider interface {
	// Give returns a token for a user whose password was checked against u.
	Give(user string, u Users) (string, error)
	// Check returns whom a token stands for. Its error is ErrInvalid.
	Check(token string, u Users) (Caller, error)
	// Key returns the public key that all members need to check tokens that this one gives next, nil
	// if they need none or know it. It calls now for the users as they are. What they once knew and
	// do not know any more is never to be known again: then it is another key.
	Key(now func() Users) []byte
}

// Options is what [Parse] needs to know.
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

// Parse returns the Provider that o describes. It reads the files of keys that o names.
func Parse(o Options) (Provider, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	kind, options, err := split(o.Token)
	switch {
	case err != nil:
		return nil, err
	case kind == "simple" && o.TTL <= 0:
		return nil, fmt.Errorf("--auth-token-ttl %s is not above 0", o.TTL)
	case kind == "simple":
		return newSimple(o)
	case kind == "jwt":
		return newJWT(options, o.Now)
	case kind == "":
		return none{}, nil
	}
	return nil, fmt.Errorf("--auth-token %q is neither simple nor jwt", kind)
}

// split takes --auth-token to pieces.
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

// none gives no tokens.
type none struct{}

// Give implements Provider.
func (none) Give(string, Users) (string, error) { return "", ErrNoTokens }

// Check implements Provider.
func (none) Check(string, Users) (Caller, error) { return Caller{}, ErrInvalid }

// Key implements Provider.
func (none) Key(func() Users) []byte { return nil }
