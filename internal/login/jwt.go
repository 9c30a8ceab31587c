package login

import (
	"crypto"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// defaultTTL is the lifetime of JWTs if the option ttl is not set.
const defaultTTL = 5 * time.Minute

// claims are the claims in a token, the same as in etcd.
type claims struct {
	Username string `json:"username"`
	// Revision is the revision of users and roles at the time of the login.
	Revision *uint64 `json:"revision"`
	jwt.RegisteredClaims
}

// jsonWebTokens issues tokens that anyone with the public key can check.
type jsonWebTokens struct {
	method jwt.SigningMethod
	sign   any // nil if this member cannot sign
	verify any
	ttl    time.Duration
	now    func() time.Time
	parser *jwt.Parser
	times  *jwt.Validator // validates the claims of a token

	mu   sync.Mutex // guards the fields below
	seen seen[claims]
}

func newJWT(options map[string]string, now func() time.Time) (*jsonWebTokens, error) {
	j := &jsonWebTokens{ttl: defaultTTL, now: now, seen: newSeen[claims]()}
	var public, private []byte
	var err error
	for name, value := range options {
		switch name {
		case "ttl":
			j.ttl, err = time.ParseDuration(value)
			if err == nil && j.ttl <= 0 {
				err = errors.New("it must be above 0")
			}
		case "pub-key":
			public, err = readKey(value)
		case "priv-key":
			private, err = readKey(value)
		case "sign-method":
			if j.method = jwt.GetSigningMethod(value); j.method == nil || value == "none" {
				err = errors.New("it must be a supported algorithm, such as EdDSA, RS256, " +
					"ES256 or HS256")
			}
		default:
			err = errors.New("unknown option")
		}
		if err != nil {
			return nil, fmt.Errorf("--auth-token: option %s: %w", name, err)
		}
	}
	if j.method == nil {
		return nil, errors.New("--auth-token: jwt requires the option sign-method")
	}
	if err := j.takeKeys(public, private); err != nil {
		return nil, fmt.Errorf("--auth-token: %w", err)
	}
	// A token with a different signing method is rejected before the key is used. The most
	// important example is HS256 with our public key as the secret.
	rules := []jwt.ParserOption{
		jwt.WithValidMethods([]string{j.method.Alg()}), jwt.WithExpirationRequired(),
		jwt.WithTimeFunc(now),
	}
	j.parser, j.times = jwt.NewParser(rules...), jwt.NewValidator(rules...)
	return j, nil
}

// readKey reads a key file. As in etcd, an empty name means that no key is given.
func readKey(file string) ([]byte, error) {
	if file == "" {
		return nil, nil
	}
	return os.ReadFile(file)
}

// takeKeys parses the keys for the signing method. One or both keys can be given. For a symmetric
// method, the private key is the secret.
func (j *jsonWebTokens) takeKeys(public, private []byte) error {
	files, err := keyFiles{public, private}, error(nil)
	switch j.method.(type) {
	case *jwt.SigningMethodHMAC:
		if len(private) == 0 {
			return errors.New("missing key data: set priv-key to the file with the secret")
		}
		j.sign, j.verify = private, private
		return nil
	case *jwt.SigningMethodRSA, *jwt.SigningMethodRSAPSS:
		err = take(j, files, jwt.ParseRSAPublicKeyFromPEM, jwt.ParseRSAPrivateKeyFromPEM)
	case *jwt.SigningMethodECDSA:
		err = take(j, files, jwt.ParseECPublicKeyFromPEM, jwt.ParseECPrivateKeyFromPEM)
	case *jwt.SigningMethodEd25519:
		err = take(j, files, jwt.ParseEdPublicKeyFromPEM, jwt.ParseEdPrivateKeyFromPEM)
	}
	if err == nil && j.verify == nil {
		err = errors.New("missing key data: set pub-key or priv-key to a key file")
	}
	return err
}

// keyFiles holds the contents of the key files.
type keyFiles struct{ public, private []byte }

// take sets the keys of j. A key that can sign is also used to verify.
func take[Pub, Priv any](
	j *jsonWebTokens, p keyFiles, pub func([]byte) (Pub, error), priv func([]byte) (Priv, error),
) error {
	if len(p.private) > 0 {
		key, err := priv(p.private)
		if err != nil {
			return fmt.Errorf("option priv-key: %w", err)
		}
		j.sign, j.verify = key, any(key).(crypto.Signer).Public()
	}
	if len(p.public) == 0 {
		return nil
	}
	key, err := pub(p.public)
	if err != nil {
		return fmt.Errorf("option pub-key: %w", err)
	}
	other, ok := any(key).(interface{ Equal(crypto.PublicKey) bool })
	if j.sign != nil && (!ok || !other.Equal(j.verify)) {
		return errors.New("public and private keys don't match")
	}
	j.verify = key
	return nil
}

// Key implements Provider.
func (j *jsonWebTokens) Key(func() Users) []byte { return nil }

// Give implements Provider.
func (j *jsonWebTokens) Give(user string, u Users) (string, error) {
	if j.sign == nil {
		return "", ErrVerifyOnly
	}
	revision := u.Revision()
	c := claims{Username: user, Revision: &revision}
	c.ExpiresAt = jwt.NewNumericDate(j.now().Add(j.ttl))
	return jwt.NewWithClaims(j.method, c).SignedString(j.sign)
}

// Check implements Provider.
func (j *jsonWebTokens) Check(token string, _ Users) (Caller, error) {
	c, ok := j.find(token)
	if !ok {
		_, err := j.parser.ParseWithClaims(token, &c, func(*jwt.Token) (any, error) {
			return j.verify, nil
		})
		if err != nil || c.Username == "" || c.Revision == nil {
			return Caller{}, ErrInvalid
		}
		j.note(token, c)
	}
	return Caller{User: c.Username, Revision: *c.Revision, HasRevision: true}, nil
}

// find returns the claims of a token whose signature has already been verified, if the token is
// currently valid.
func (j *jsonWebTokens) find(token string) (claims, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	c := j.seen.find(token)
	if c == nil || j.times.Validate(c) != nil {
		return claims{}, false
	}
	return *c, true
}

// note caches the claims of a token whose signature is valid, and evicts expired tokens.
func (j *jsonWebTokens) note(token string, c claims) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seen.note(token, c, func(other *claims) bool { return !other.ExpiresAt.After(j.now()) })
}
