package login

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"hash/maphash"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// world consists of users, members and a clock.
type world struct {
	hashes   map[string][]byte
	keys     map[uint64]string
	revision uint64
	now      time.Time
}

func newWorld() *world {
	return &world{
		hashes: map[string][]byte{"bob": []byte("hash of bob"), "eve": []byte("hash of eve")},
		keys:   make(map[uint64]string), revision: 7, now: time.Unix(1_800_000_000, 0),
	}
}

func (w *world) Hash(user string) ([]byte, bool) { h, ok := w.hashes[user]; return h, ok }
func (w *world) Revision() uint64                { return w.revision }
func (w *world) Key(member uint64) string        { return w.keys[member] }

// member starts a member that uses simple tokens with a TTL of ten seconds, and gives its key to
// the others.
func (w *world) member(t *testing.T, id uint64) *simple {
	t.Helper()
	p, err := Parse(Options{
		Token: "simple", TTL: 10 * time.Second, Member: id, Now: func() time.Time { return w.now },
	})
	if err != nil {
		t.Fatal(err)
	}
	w.publish(id, p)
	return p.(*simple)
}

// publish gives a member's key to all members, unless it has none or they already know it.
func (w *world) publish(id uint64, p Provider) {
	if key := p.Key(func() Users { return w }); key != nil {
		w.keys[id] = string(key)
	}
}

func give(t *testing.T, p Provider, user string, u Users) string {
	t.Helper()
	token, err := p.Give(user, u)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// want checks which user a token identifies; "" is none.
func want(t *testing.T, p Provider, token string, u Users, user string) {
	t.Helper()
	c, err := p.Check(token, u)
	if user == "" {
		if !errors.Is(err, ErrInvalid) || c != (Caller{}) {
			t.Errorf("a token that counts no more: %+v, %v", c, err)
		}
		return
	}
	if err != nil || c.User != user {
		t.Errorf("token of %s: %+v, %v", user, c, err)
	}
}

// TestSimpleRenewedByUse keeps a token valid beyond its TTL by using it, and then lets it expire.
func TestSimpleRenewedByUse(t *testing.T) {
	w := newWorld()
	p := w.member(t, 1)
	token := give(t, p, "bob", w)
	for range 5 {
		w.now = w.now.Add(9 * time.Second)
		want(t, p, token, w, "bob")
	}
	w.now = w.now.Add(10 * time.Second)
	want(t, p, token, w, "")
	want(t, p, token, w, "")
}

// TestSimpleInvalidated changes each of the things that a token's validity depends on, one at a
// time.
func TestSimpleInvalidated(t *testing.T) {
	for name, spoil := range map[string]func(*testing.T, *world){
		"password changed": func(_ *testing.T, w *world) { w.hashes["bob"] = []byte("another") },
		"user deleted":     func(_ *testing.T, w *world) { delete(w.hashes, "bob") },
		"member restarted": func(t *testing.T, w *world) { w.member(t, 1) },
		"auth disabled":    func(_ *testing.T, w *world) { clear(w.keys) },
	} {
		for _, seen := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, seen %v", name, seen), func(t *testing.T) {
				w := newWorld()
				p := w.member(t, 1)
				token := give(t, p, "bob", w)
				if seen {
					want(t, p, token, w, "bob")
				}
				spoil(t, w)
				want(t, p, token, w, "")
			})
		}
	}
}

// TestSimpleEndsWhenDisabled disables access control, which deletes the keys, and enables it again.
// Earlier tokens stay invalid.
func TestSimpleEndsWhenDisabled(t *testing.T) {
	w := newWorld()
	p := w.member(t, 1)
	before := give(t, p, "bob", w)
	want(t, p, before, w, "bob")
	clear(w.keys)
	want(t, p, before, w, "")
	w.publish(1, p)
	after := give(t, p, "bob", w)
	w.publish(1, p) // changes nothing
	want(t, p, before, w, "")
	want(t, p, after, w, "bob")
	want(t, w.member(t, 2), before, w, "")
}

// TestSimpleForged changes each character of a token, truncates it at each length, and signs it
// with another member's key.
func TestSimpleForged(t *testing.T) {
	w := newWorld()
	p := w.member(t, 1)
	token := give(t, p, "bob", w)
	for i := range len(token) {
		want(t, p, token[:i], w, "")
		for _, c := range []byte("Aa0_-=") {
			if token[i] != c {
				want(t, p, token[:i]+string(c)+token[i+1:], w, "")
			}
		}
	}
	want(t, p, token+"A", w, "")
	want(t, p, strings.Repeat("A", 1<<20), w, "")
	stranger, err := newSimple(Options{TTL: time.Hour, Member: 1, Now: p.now})
	if err != nil {
		t.Fatal(err)
	}
	want(t, p, give(t, stranger, "bob", w), w, "")
	if again := give(t, p, "bob", w); again == token {
		t.Error("two logins have the same token")
	}
	if n := p.seen.Len(); n != 0 {
		t.Errorf("%d forged tokens are remembered", n)
	}
	want(t, p, token, w, "bob")
}

// TestSimpleBounded uses more tokens than a member remembers. A forgotten token remains valid for
// as long as one that was never used.
func TestSimpleBounded(t *testing.T) {
	w := newWorld()
	p := w.member(t, 1)
	first := give(t, p, "bob", w)
	want(t, p, first, w, "bob")
	for i := range maxSeen {
		p.note(fmt.Sprint(i), use{at: w.now})
	}
	if n := p.seen.Len(); n != maxSeen {
		t.Errorf("%d of %d tokens are remembered", n, maxSeen)
	}
	want(t, p, first, w, "bob")
	w.now = w.now.Add(10 * time.Second)
	p.note("another", use{at: w.now})
	if n := p.seen.Len(); n != 1 {
		t.Errorf("%d tokens that have ended are remembered", n-1)
	}
}

// writeKeys writes a key pair and returns the names of the files.
func writeKeys(t *testing.T, private crypto.Signer) (pub, priv string) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, kind string, der []byte, err error) string {
		if err != nil {
			t.Fatal(err)
		}
		name = filepath.Join(dir, name)
		b := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	der, err := x509.MarshalPKIXPublicKey(private.Public())
	pub = write("pub.pem", "PUBLIC KEY", der, err)
	der, err = x509.MarshalPKCS8PrivateKey(private)
	return pub, write("priv.pem", "PRIVATE KEY", der, err)
}

func rsaKey(t *testing.T) crypto.Signer {
	t.Helper()
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func ecKey(t *testing.T) crypto.Signer {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func edKey(t *testing.T) crypto.Signer {
	t.Helper()
	_, k, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func (w *world) parse(t *testing.T, token string) Provider {
	t.Helper()
	p, err := Parse(Options{Token: token, Now: func() time.Time { return w.now }})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestJWT signs with each type of key, and verifies on a member that has only the public key.
func TestJWT(t *testing.T) {
	for method, key := range map[string]func(*testing.T) crypto.Signer{
		"RS256": rsaKey, "PS384": rsaKey, "ES256": ecKey, "EdDSA": edKey,
	} {
		t.Run(method, func(t *testing.T) {
			w := newWorld()
			pub, priv := writeKeys(t, key(t))
			signer := w.parse(t, "jwt,pub-key="+pub+",priv-key="+priv+",sign-method="+method+",ttl=10s")
			alone := w.parse(t, "jwt,priv-key="+priv+",sign-method="+method)
			verifier := w.parse(t, "jwt,pub-key="+pub+",sign-method="+method)
			token := give(t, signer, "bob", w)
			for _, p := range []Provider{signer, alone, verifier} {
				want(t, p, token, w, "bob")
				if c, _ := p.Check(token, w); c.Revision != 7 || !c.HasRevision {
					t.Errorf("a token of revision 7: %+v", c)
				}
			}
			if _, err := verifier.Give("bob", w); !errors.Is(err, ErrVerifyOnly) {
				t.Errorf("signed with a public key: %v", err)
			}
			w.now = w.now.Add(10 * time.Second)
			want(t, verifier, token, w, "")
		})
	}
}

// TestJWTSecret signs with a secret that all members share.
func TestJWTSecret(t *testing.T) {
	w, file := newWorld(), filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("a secret of 32 bytes or more, so"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := w.parse(t, "jwt,priv-key="+file+",sign-method=HS256")
	token := give(t, p, "bob", w)
	want(t, p, token, w, "bob")
	w.now = w.now.Add(5 * time.Minute) // the default
	want(t, p, token, w, "")
}

// TestJWTForged signs tokens in ways that a member must reject: with no method, with the public key
// as an HS256 secret, with another key, and with missing claims.
func TestJWTForged(t *testing.T) {
	w, key := newWorld(), rsaKey(t)
	pub, priv := writeKeys(t, key)
	p := w.parse(t, "jwt,pub-key="+pub+",priv-key="+priv+",sign-method=RS256")
	public, err := os.ReadFile(pub)
	if err != nil {
		t.Fatal(err)
	}
	soon := w.now.Unix() + 60
	good := jwt.MapClaims{"username": "root", "revision": 7, "exp": soon}
	sign := func(m jwt.SigningMethod, key any, c jwt.Claims) string {
		token, err := jwt.NewWithClaims(m, c).SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	want(t, p, sign(jwt.SigningMethodRS256, key, good), w, "root")
	for name, token := range map[string]string{
		"none":           sign(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, good),
		"public key":     sign(jwt.SigningMethodHS256, public, good),
		"another method": sign(jwt.SigningMethodRS512, key, good),
		"another key":    sign(jwt.SigningMethodRS256, rsaKey(t), good),
		"no end": sign(jwt.SigningMethodRS256, key,
			jwt.MapClaims{"username": "root", "revision": 7}),
		"no user": sign(jwt.SigningMethodRS256, key, jwt.MapClaims{"revision": 7, "exp": soon}),
		"no revision": sign(jwt.SigningMethodRS256, key,
			jwt.MapClaims{"username": "root", "exp": soon}),
		"negative revision": sign(jwt.SigningMethodRS256, key,
			jwt.MapClaims{"username": "root", "revision": -1, "exp": soon}),
		"not yet": sign(jwt.SigningMethodRS256, key, jwt.MapClaims{
			"username": "root", "revision": 7, "exp": soon, "nbf": w.now.Unix() + 30,
		}),
		"empty": "", "dots": "..", "no JSON": base64.RawURLEncoding.EncodeToString([]byte("x")) + ".x.x",
	} {
		t.Run(name, func(t *testing.T) { want(t, p, token, w, "") })
	}
}

// TestParse checks that unusable options are rejected with a reason.
func TestParse(t *testing.T) {
	pub, priv := writeKeys(t, rsaKey(t))
	other, _ := writeKeys(t, rsaKey(t))
	for token, text := range map[string]string{
		"plain":                                 "neither simple nor jwt",
		"jwt":                                   "requires the option sign-method",
		"jwt,pub-key=" + pub:                    "requires the option sign-method",
		"jwt,sign-method=none":                  "sign-method: it must be",
		"jwt,sign-method=RS257":                 "sign-method: it must be",
		"jwt,sign-method=RS256":                 "missing key data",
		"jwt,sign-method=HS256,pub-key=" + pub:  "missing key data",
		"jwt,sign-method=ES256,pub-key=" + pub:  "pub-key",
		"jwt,sign-method=RS256,priv-key=" + pub: "priv-key",
		"jwt,sign-method=RS256,pub-key=" + other + ",priv-key=" + priv: "don't match",
		"jwt,sign-method=RS256,pub-key=/nowhere":                       "/nowhere",
		"jwt,sign-method=RS256,ttl=5,pub-key=" + pub:                   "option ttl",
		"jwt,sign-method=RS256,ttl=-5s,pub-key=" + pub:                 "above 0",
		"jwt,sign-method=RS256,pubkey=" + pub:                          "unknown option",
		"jwt,sign-method":                                              "not of the form",
		"jwt,ttl=5s,ttl=5s":                                            "ttl twice",
	} {
		if _, err := Parse(Options{Token: token}); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v, wanted: %s", token, err, text)
		}
	}
	if _, err := Parse(Options{Token: "simple"}); err == nil {
		t.Error("simple tokens without a TTL")
	}
	p, err := Parse(Options{})
	if err != nil {
		t.Fatal(err)
	}
	want(t, p, "x", newWorld(), "")
	if _, err := p.Give("bob", newWorld()); !errors.Is(err, ErrNoTokens) {
		t.Errorf("a token of a member that gives none: %v", err)
	}
}

// TestJWTSeen checks a token that has been seen before. It expires on time, and expired tokens are
// forgotten. A token with the same claims and a false signature is rejected.
func TestJWTSeen(t *testing.T) {
	w, key := newWorld(), edKey(t)
	_, priv := writeKeys(t, key)
	p := w.parse(t, "jwt,priv-key="+priv+",sign-method=EdDSA,ttl=10s").(*jsonWebTokens)
	token := give(t, p, "bob", w)
	for range 2 {
		want(t, p, token, w, "bob")
		want(t, p, token[:len(token)-12]+"AAAAAAAAAAAA", w, "")
	}
	if n := p.seen.Len(); n != 1 {
		t.Errorf("%d tokens are remembered", n)
	}
	w.now = w.now.Add(9 * time.Second)
	want(t, p, token, w, "bob")
	w.now = w.now.Add(time.Second)
	want(t, p, token, w, "")
	want(t, p, give(t, p, "eve", w), w, "eve")
	if n := p.seen.Len(); n != 1 {
		t.Errorf("%d tokens are remembered, one of them has ended", n)
	}
}

// TestJWTExpiresDuringCheck makes a token expire after its times are checked but before it is
// remembered, while no other token is remembered.
func TestJWTExpiresDuringCheck(t *testing.T) {
	w, key := newWorld(), edKey(t)
	_, priv := writeKeys(t, key)
	token := give(t, w.parse(t, "jwt,priv-key="+priv+",sign-method=EdDSA,ttl=10s"), "bob", w)
	start := w.now
	for looks := range 3 {
		ends := start.Add(10 * time.Second)
		p, err := Parse(Options{
			Token: "jwt,priv-key=" + priv + ",sign-method=EdDSA",
			Now: func() time.Time {
				if looks--; looks < 0 {
					return ends
				}
				return start
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = p.Check(token, w) // may succeed, because the token expires during the call
		looks = 0
		want(t, p, token, w, "")
	}
}

// TestSeenByHash gives two tokens the same hash and checks that they are not confused.
func TestSeenByHash(t *testing.T) {
	s := newSeen[string]()
	never := func(*string) bool { return false }
	s.note("a", "alice", never)
	x, _ := s.Get(maphash.String(s.seed, "a"))
	s.Add(maphash.String(s.seed, "b"), x)
	if who := s.find("b"); who != nil {
		t.Errorf("the token of %s is taken for another", *who)
	}
	if who := s.find("a"); who == nil || *who != "alice" {
		t.Error("a token is not found")
	}
}
