package binding

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/golang-jwt/jwt/v5"
)

const (
	// maxToken is the maximum size of a token in bytes.
	maxToken = 16 << 10
	// maxVerified is the maximum number of verified tokens cached per issuer.
	maxVerified = 4096
)

// issuer verifies the tokens of one issuer.
type issuer struct {
	*issuerSettings
	keys   *keySet
	parser *jwt.Parser

	mu sync.Mutex // guards the fields below
	// verified caches the evidence from tokens, by token hash. The tokens were verified with the
	// keys in text.
	verified map[[sha256.Size]byte]*Evidence
	text     string
}

func newIssuer(s *issuerSettings, keys *keySet) *issuer {
	return &issuer{
		issuerSettings: s, keys: keys,
		parser: jwt.NewParser(
			jwt.WithValidMethods(s.Algorithms), jwt.WithIssuer(s.URL), jwt.WithAudience(s.Audiences...),
			jwt.WithLeeway(*s.Leeway), jwt.WithExpirationRequired(), jwt.WithStrictDecoding(),
		),
		verified: make(map[[sha256.Size]byte]*Evidence),
	}
}

// issuerOf returns the issuer named by a token, without verifying it, or "".
func issuerOf(token string) string {
	var c issuerClaim
	if _, _, err := jwt.NewParser().ParseUnverified(token, &c); err != nil {
		return ""
	}
	return c.Issuer
}

// issuerClaim decodes the only claim that is read before a token has been verified.
type issuerClaim struct {
	jwt.Claims `json:"-"` // unused
	Issuer     string     `json:"iss"`
}

// verify returns the evidence of a token with the given hash. It returns an error unless the issuer
// signed the token for this cluster and the token is currently valid.
func (i *issuer) verify(
	ctx context.Context, token string, sum [sha256.Size]byte,
) (*Evidence, error) {
	claims := jwt.MapClaims{}
	text := i.keys.version()
	_, err := i.parser.ParseWithClaims(token, claims, func(t *jwt.Token) (any, error) {
		return i.keysOf(ctx, t)
	})
	if err != nil {
		return nil, err
	}
	expires, err := claims.GetExpirationTime()
	if err != nil {
		return nil, err
	}
	subject, _ := claims[i.NameClaim].(string)
	if subject == "" || len(subject) > maxName || strings.ContainsFunc(subject, unicode.IsControl) {
		return nil, fmt.Errorf("the claim %s is not a valid name", i.NameClaim)
	}
	e := &Evidence{
		issuer: i.Name, url: i.URL, subject: subject, claims: claims,
		Expires: expires.Add(*i.Leeway),
	}
	i.cache(sum, e, text)
	return e, nil
}

// keysOf returns the keys that could have signed a token.
func (i *issuer) keysOf(ctx context.Context, t *jwt.Token) (any, error) {
	if _, ok := t.Header["crit"]; ok {
		return nil, errors.New("the token has unknown critical headers")
	}
	kid, _ := t.Header["kid"].(string)
	var set jwt.VerificationKeySet
	for _, key := range i.keys.find(ctx, kid, t.Method.Alg()) {
		set.Keys = append(set.Keys, key)
	}
	if len(set.Keys) == 0 {
		return nil, fmt.Errorf("the issuer has no key with ID %q for %s", truncate(kid),
			t.Method.Alg())
	}
	return set, nil
}

// version identifies the current set of keys.
func (k *keySet) version() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.text
}

// cached returns the evidence of a token that was verified with the current keys. It returns nil if
// there is none or the evidence has expired.
func (i *issuer) cached(sum [sha256.Size]byte) *Evidence {
	text := i.keys.version()
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.text != text {
		clear(i.verified)
		i.text = text
	}
	e := i.verified[sum]
	if e == nil || !time.Now().Before(e.Expires) {
		return nil
	}
	return e
}

// cache stores the evidence of a token that was verified with the keys in text.
func (i *issuer) cache(sum [sha256.Size]byte, e *Evidence, text string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.text != text {
		return // the token's key might no longer exist
	}
	if len(i.verified) >= maxVerified {
		clear(i.verified)
	}
	i.verified[sum] = e
}
