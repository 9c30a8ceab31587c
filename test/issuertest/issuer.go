// Package issuertest implements a token issuer for tests. It is a server with a discovery document
// and a key set. It has real keys, and issues tokens that are valid or invalid in whatever way a
// test needs.
package issuertest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"
)

// Audience is the audience of the tokens.
const Audience = "leasehold"

// Issuer is a running issuer.
type Issuer struct {
	// URL is the issuer's name in tokens.
	URL string

	server *httptest.Server
	mu     sync.Mutex               // guards the fields below
	keys   map[string]crypto.Signer // by kid
	asked  int
	broken bool
	said   string // issuer named by the discovery document, if different from URL
}

// New starts an issuer that has no keys. If encrypted is true, it uses TLS with a self-signed
// certificate.
func New(t testing.TB, encrypted bool) *Issuer {
	t.Helper()
	i, mux := newIssuer()
	if encrypted {
		i.server = httptest.NewTLSServer(mux)
	} else {
		i.server = httptest.NewServer(mux)
	}
	return i.started(t)
}

// On is like New without encryption, but uses the test's own listener.
func On(t testing.TB, l net.Listener) *Issuer {
	t.Helper()
	i, mux := newIssuer()
	i.server = &httptest.Server{Listener: l, Config: &http.Server{Handler: mux}}
	i.server.Start()
	return i.started(t)
}

func newIssuer() (*Issuer, *http.ServeMux) {
	i := &Issuer{keys: make(map[string]crypto.Signer)}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", i.answer(i.document))
	mux.HandleFunc("/keys", i.answer(i.KeySet))
	mux.Handle("/elsewhere", http.RedirectHandler("/keys", http.StatusFound))
	return i, mux
}

func (i *Issuer) started(t testing.TB) *Issuer {
	i.URL = i.server.URL
	t.Cleanup(i.server.Close)
	return i
}

func (i *Issuer) answer(text func() []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		i.mu.Lock()
		i.asked++
		broken := i.broken
		i.mu.Unlock()
		if broken {
			http.Error(w, "broken", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text())
	}
}

func (i *Issuer) document() []byte {
	i.mu.Lock()
	defer i.mu.Unlock()
	name := i.URL
	if i.said != "" {
		name = i.said
	}
	return encode(map[string]any{"issuer": name, "jwks_uri": i.URL + "/keys"})
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// KeySet returns the public keys as the issuer publishes them.
func (i *Issuer) KeySet() []byte {
	i.mu.Lock()
	defer i.mu.Unlock()
	var set jose.JSONWebKeySet
	for _, kid := range slices.Sorted(maps.Keys(i.keys)) {
		set.Keys = append(set.Keys, jose.JSONWebKey{
			Key: i.keys[kid].Public(), KeyID: kid, Algorithm: algorithm(i.keys[kid]), Use: "sig",
		})
	}
	return encode(set)
}

func algorithm(k crypto.Signer) string {
	if _, ok := k.(*rsa.PrivateKey); ok {
		return "RS256"
	}
	return "ES256"
}

// AddRSA generates a key for RS256 and publishes it.
func (i *Issuer) AddRSA(t testing.TB, kid string) {
	t.Helper()
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	i.add(t, kid, k, err)
}

// AddECDSA is AddRSA for ES256.
func (i *Issuer) AddECDSA(t testing.TB, kid string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	i.add(t, kid, k, err)
}

func (i *Issuer) add(t testing.TB, kid string, k crypto.Signer, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys[kid] = k
}

// Drop stops publishing a key.
func (i *Issuer) Drop(kid string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.keys, kid)
}

// Break specifies whether the issuer responds with errors.
func (i *Issuer) Break(broken bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.broken = broken
}

// Say changes the issuer named by the discovery document.
func (i *Issuer) Say(name string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.said = name
}

// Asked returns the number of requests that the issuer has received.
func (i *Issuer) Asked() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.asked
}

// Certificate returns the DER certificate of an issuer that uses TLS.
func (i *Issuer) Certificate() []byte { return i.server.Certificate().Raw }

// Claims returns the claims of a valid token that expires in an hour. The claims in more are added,
// or replace existing ones. A nil value removes a claim.
func (i *Issuer) Claims(subject string, more jwt.MapClaims) jwt.MapClaims {
	c := jwt.MapClaims{
		"iss": i.URL, "sub": subject, "aud": Audience, "exp": time.Now().Add(time.Hour).Unix(),
	}
	maps.Copy(c, more)
	maps.DeleteFunc(c, func(_ string, v any) bool { return v == nil })
	return c
}

// Token returns a token signed with the key kid.
func (i *Issuer) Token(t testing.TB, kid, subject string, more jwt.MapClaims) string {
	t.Helper()
	i.mu.Lock()
	k := i.keys[kid]
	i.mu.Unlock()
	by := Signer{jwt.GetSigningMethod(algorithm(k)), k}
	return Signed(t, kid, by, i.Claims(subject, more))
}

// Public returns the public part of a key.
func (i *Issuer) Public(kid string) crypto.PublicKey {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.keys[kid].Public()
}

// Signer is a key and a method to sign with it.
type Signer struct {
	Method jwt.SigningMethod
	Key    any
}

// Signed returns a token with the given claims.
func Signed(t testing.TB, kid string, by Signer, claims jwt.MapClaims) string {
	t.Helper()
	token := jwt.NewWithClaims(by.Method, claims)
	if kid != "" {
		token.Header["kid"] = kid
	}
	text, err := token.SignedString(by.Key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Key returns a private key.
func (i *Issuer) Key(kid string) crypto.Signer {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.keys[kid]
}
