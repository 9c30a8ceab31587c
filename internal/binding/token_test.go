package binding

import (
	"bytes"
	"context"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"leasehold.dev/test/issuertest"
)

// rig holds bindings for an issuer named corp, whose subjects have the role app.
type rig struct {
	t testing.TB
	*issuertest.Issuer
	*Bindings
	path    string
	log     *lockedBuffer
	changes chan struct{} // receives a value after each change; it has a large buffer
}

// lockedBuffer records log output.
type lockedBuffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

// count returns how many times text occurs in the log.
func (l *lockedBuffer) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

// text returns a configuration file for the issuer, with additional settings.
func (r *rig) text(more string) string {
	return fmt.Sprintf("issuers: [{name: corp, url: %q, audiences: [other, %s]%s}]\n"+
		"bindings: [{issuer: corp, roles: [app]}]\n", r.URL, issuertest.Audience, more)
}

func newRig(t testing.TB, encrypted bool, more string) *rig {
	t.Helper()
	r := &rig{
		t: t, Issuer: issuertest.New(t, encrypted), path: filepath.Join(t.TempDir(), "auth.yaml"),
		log: new(lockedBuffer), changes: make(chan struct{}, 100),
	}
	write(t, r.path, r.text(more))
	return r
}

func (r *rig) open() {
	r.t.Helper()
	var err error
	r.Bindings, err = Open(r.path, Options{
		Log:     slog.New(slog.NewTextHandler(r.log, nil)),
		Changed: func() { r.changes <- struct{}{} },
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(r.Close)
}

// who returns the principal of a token, or "" if it is invalid.
func (r *rig) who(token string) string {
	r.t.Helper()
	e, ours, err := r.Bindings.Token(r.t.Context(), token)
	if !ours {
		r.t.Errorf("not recognized as the issuer's token: %s", token)
		return ""
	}
	if err != nil {
		return ""
	}
	p, _ := r.Identify(e)
	return p.Name
}

// TestTokens checks that a token is valid only if the issuer signed it, for this cluster and the
// current time. A real issuer signs a table of tokens, each with at most one defect.
func TestTokens(t *testing.T) {
	r := newRig(t, false, ", clock-leeway: 1m")
	r.AddRSA(t, "rsa")
	r.AddECDSA(t, "ec")
	r.open()
	stranger := issuertest.New(t, false)
	stranger.AddRSA(t, "rsa")
	stranger.AddECDSA(t, "ec")
	foreign := func(kid string) string {
		return stranger.Token(t, kid, "bob", jwt.MapClaims{"iss": r.URL})
	}
	after := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
	none := jwt.UnsafeAllowNoneSignatureType
	token := func(kid string, more jwt.MapClaims) string { return r.Issuer.Token(t, kid, "bob", more) }
	with := func(claim string, value any) string {
		return token("rsa", jwt.MapClaims{claim: value})
	}
	parts := func(token string) []string { return strings.Split(token, ".") }
	join := func(parts ...string) string { return strings.Join(parts, ".") }
	own := func(kid string, m jwt.SigningMethod, key any) string {
		return issuertest.Signed(t, kid, issuertest.Signer{Method: m, Key: key}, r.Claims("bob", nil))
	}
	public, err := x509.MarshalPKIXPublicKey(r.Public("rsa"))
	if err != nil {
		t.Fatal(err)
	}
	armored := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})
	modulus := r.Public("rsa").(*rsa.PublicKey).N.Bytes()
	whole := token("rsa", nil)
	p := parts(whole)
	signature := parts(with("x", 1))[2]
	for name, c := range map[string]struct {
		token string
		want  bool
	}{
		"RS256":                     {whole, true},
		"again":                     {whole, true},
		"ES256":                     {token("ec", nil), true},
		"no kid":                    {own("", jwt.SigningMethodES256, ecSigner(t)), false},
		"a list of audiences":       {with("aud", []string{"x", issuertest.Audience}), true},
		"the other audience":        {with("aud", "other"), true},
		"another audience":          {with("aud", "etcd"), false},
		"no audience":               {with("aud", nil), false},
		"expired":                   {with("exp", after(-2*time.Minute)), false},
		"expired within the leeway": {with("exp", after(-30*time.Second)), true},
		"never expires":             {with("exp", nil), false},
		"expires at a word":         {with("exp", "never"), false},
		"not yet valid":             {with("nbf", after(5*time.Minute)), false},
		"valid within the leeway":   {with("nbf", after(30*time.Second)), true},
		"valid for a while":         {with("nbf", after(-time.Hour)), true},
		"no subject":                {with("sub", nil), false},
		"an empty subject":          {with("sub", ""), false},
		"a subject of two lines":    {with("sub", "a\nb"), false},
		"a number for a subject":    {with("sub", 7), false},
		"another's key":             {foreign("rsa"), false},
		"another's key, ES256":      {foreign("ec"), false},
		"the other kid":             {own("ec", jwt.SigningMethodRS256, rsaSigner(t)), false},
		"alg none":                  {own("rsa", jwt.SigningMethodNone, none), false},
		"alg none without a kid":    {own("", jwt.SigningMethodNone, none), false},
		"HS256 with the public key": {own("rsa", jwt.SigningMethodHS256, armored), false},
		"HS256 with it in DER":      {own("rsa", jwt.SigningMethodHS256, public), false},
		"HS256 with the modulus":    {own("rsa", jwt.SigningMethodHS256, modulus), false},
		"HS256 with nothing":        {own("", jwt.SigningMethodHS256, []byte{}), false},
		"no signature":              {join(p[0], p[1], ""), false},
		"the signature of another":  {join(p[0], p[1], signature), false},
		"changed claims":            {join(p[0], parts(with("sub", "root"))[1], p[2]), false},
		"critical headers":          {critical(t, r), false},
	} {
		if got := r.who(c.token) == "corp:bob"; got != c.want {
			t.Errorf("%s: valid: %v", name, got)
		}
	}
	for name, token := range map[string]string{
		"another issuer":  stranger.Token(t, "rsa", "bob", nil),
		"a longer issuer": with("iss", r.URL+"/"),
		"no issuer":       with("iss", nil),
		"simple":          "AAAA", "empty": "", "dots": "..", "huge": strings.Repeat("a.", maxToken),
	} {
		if _, ours, err := r.Bindings.Token(t.Context(), token); ours || err != nil {
			t.Errorf("%s: recognized as the issuer's token, %v", name, err)
		}
	}
}

// ecSigner and rsaSigner return keys that do not belong to the issuer.
func ecSigner(t testing.TB) any {
	other := issuertest.New(t, false)
	other.AddECDSA(t, "x")
	return other.Key("x")
}

func rsaSigner(t testing.TB) any {
	other := issuertest.New(t, false)
	other.AddRSA(t, "x")
	return other.Key("x")
}

// critical returns a token with a "crit" header.
func critical(t testing.TB, r *rig) string {
	token := jwt.NewWithClaims(jwt.SigningMethodES256, r.Claims("bob", nil))
	token.Header["kid"], token.Header["crit"] = "ec", []string{"exp"}
	text, err := token.SignedString(r.Key("ec"))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestRotation checks that a new key of the issuer is accepted with the first token it signs. A
// removed key is rejected once the keys have been fetched again, even for tokens seen before.
func TestRotation(t *testing.T) {
	r := newRig(t, false, "")
	r.AddECDSA(t, "1")
	r.open()
	old := r.Issuer.Token(t, "1", "bob", nil)
	if r.who(old) == "" {
		t.Fatal("the first key is rejected")
	}
	r.AddRSA(t, "2")
	r.Drop("1")
	if r.who(old) == "" {
		t.Error("the keys were fetched for a known kid")
	}
	if r.who(r.Issuer.Token(t, "2", "bob", nil)) == "" {
		t.Error("the second key is rejected")
	}
	if r.who(old) != "" {
		t.Error("the dropped key is accepted")
	}
}

// TestUnknownKeyFlood checks that the issuer is contacted only a few times no matter what tokens
// clients send, and that valid tokens are accepted all the while.
func TestUnknownKeyFlood(t *testing.T) {
	r := newRig(t, false, "")
	r.AddECDSA(t, "1")
	r.open()
	other := issuertest.New(t, false)
	other.AddECDSA(t, "x")
	good := r.Issuer.Token(t, "1", "bob", nil)
	began := time.Now()
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			for m := range 100 {
				bad := issuertest.Signed(t, fmt.Sprint(n, "-", m), issuertest.Signer{
					Method: jwt.SigningMethodES256, Key: other.Key("x"),
				}, r.Claims("bob", nil))
				if r.who(bad) != "" {
					t.Error("a token with an unknown key is accepted")
				}
				if r.who(good) == "" {
					t.Error("a good token is rejected")
				}
			}
		})
	}
	all.Wait()
	// A fetch takes two requests.
	most := 2 * (fetchBurst + 1 + int(time.Since(began)/fetchInterval))
	if n := r.Asked(); n == 0 || n > most {
		t.Errorf("the issuer was contacted %d times, want 1 to %d", n, most)
	}
}

// TestFailingIssuer checks that if an issuer is unavailable or reports a different name, its known
// keys stay valid and the failure is logged once.
func TestFailingIssuer(t *testing.T) {
	r := newRig(t, false, "")
	r.AddECDSA(t, "1")
	r.Break(true)
	r.open()
	token := r.Issuer.Token(t, "1", "bob", nil)
	if r.who(token) != "" {
		t.Error("a token is accepted without a key")
	}
	r.Break(false)
	if r.who(token) == "" {
		t.Fatal("a token is rejected although the issuer is back")
	}
	r.Say("https://other.example.com")
	r.AddECDSA(t, "2")
	if r.who(r.Issuer.Token(t, "2", "bob", nil)) != "" {
		t.Error("the keys of a misnamed issuer are accepted")
	}
	if r.who(token) == "" {
		t.Error("the last keys are rejected")
	}
	if n := r.log.count("cannot fetch an issuer's keys"); n != 2 {
		t.Errorf("%d failures were logged, want 2", n)
	}
}

// TestKeysOverTLS checks that keys can be fetched over TLS with a private certificate authority,
// and that redirects are not followed.
func TestKeysOverTLS(t *testing.T) {
	r := newRig(t, true, "")
	r.AddECDSA(t, "1")
	ca := filepath.Join(t.TempDir(), "ca.pem")
	write(t, ca, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate()})))
	token := r.Issuer.Token(t, "1", "bob", nil)
	for more, want := range map[string]string{
		", ca-file: " + ca: "corp:bob", "": "", // unknown authority
		fmt.Sprintf(", ca-file: %s, keys-url: %s/keys", ca, r.URL):      "corp:bob",
		fmt.Sprintf(", ca-file: %s, keys-url: %s/elsewhere", ca, r.URL): "",
	} {
		write(t, r.path, r.text(more))
		r.open()
		if got := r.who(token); got != want {
			t.Errorf("with %q: got %q, want %q", more, got, want)
		}
	}
}

// TestRun checks that a changed file takes effect promptly and as a whole. An error in it or in
// keys-file leaves the bindings unchanged. A subject that is no longer bound has no principal.
func TestRun(t *testing.T) {
	r := newRig(t, false, "")
	r.AddECDSA(t, "1")
	keys := filepath.Join(t.TempDir(), "keys.json")
	write(t, keys, string(r.KeySet()))
	more := ", keys-file: " + keys
	write(t, r.path, r.text(more))
	first := r.Issuer.Token(t, "1", "bob", nil)
	r.AddECDSA(t, "2")
	second, set := r.Issuer.Token(t, "2", "bob", nil), string(r.KeySet())
	synctest.Test(t, func(t *testing.T) {
		r.open()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go r.Run(ctx)
		look := func() { time.Sleep(2 * pollInterval) }
		e, _, err := r.Bindings.Token(t.Context(), first)
		if err != nil {
			t.Fatal(err)
		}
		is := func(want string) {
			t.Helper()
			look()
			p, _ := r.Identify(e)
			got := p.Name
			if p.Bound != nil {
				got += ":" + strings.Join(p.Bound.Roles, " ")
			}
			if got != want {
				t.Errorf("bob is %q, want %q", got, want)
			}
		}
		is("corp:bob:app")
		write(t, r.path, strings.Replace(r.text(more), "app", "reader", 1))
		is("corp:bob:reader")
		for _, bad := range []string{
			"", "issuers: [", strings.Replace(r.text(more), "roles", "role", 1),
			strings.Replace(r.text(", keys-file: nowhere"), "app", "x", 1),
		} {
			write(t, r.path, bad)
			is("corp:bob:reader")
			is("corp:bob:reader")
		}
		if n := r.log.count("cannot reload"); n != 4 {
			t.Errorf("%d errors were logged, want 4", n)
		}
		eve := strings.Replace(r.text(more), "roles: [app]", "claims: {sub: eve}, user: u", 1)
		write(t, r.path, eve)
		is("")
		write(t, r.path, strings.ReplaceAll(r.text(more), "corp", "new"))
		is("")
		write(t, r.path, strings.Replace(r.text(more), "url: \"", "url: \"x", 1))
		is("")
		write(t, r.path, r.text(more))
		is("corp:bob:app")
		if n := len(r.changes); n != 5 {
			t.Errorf("Changed was called %d times, want 5", n)
		}

		if r.who(second) != "" {
			t.Error("a key is accepted that is not in the file")
		}
		write(t, keys, "{")
		if look(); r.who(first) == "" {
			t.Error("a broken keys-file removed the keys")
		}
		write(t, keys, set)
		if look(); r.who(second) == "" {
			t.Error("the new keys-file is not in force")
		}
	})
}

// TestEvidenceEnds checks that the evidence provided by a token expires with it.
func TestEvidenceEnds(t *testing.T) {
	r := newRig(t, false, ", clock-leeway: 20s")
	r.AddECDSA(t, "1")
	keys := filepath.Join(t.TempDir(), "keys.json")
	write(t, keys, string(r.KeySet()))
	write(t, r.path, r.text(", clock-leeway: 20s, keys-file: "+keys))
	synctest.Test(t, func(t *testing.T) {
		r.open()
		token := r.Issuer.Token(t, "1", "bob", jwt.MapClaims{"exp": time.Now().Add(time.Minute).Unix()})
		e, _, err := r.Bindings.Token(t.Context(), token)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(79 * time.Second)
		if _, ok := r.Identify(e); !ok || r.who(token) == "" {
			t.Error("the evidence expired early")
		}
		time.Sleep(time.Second)
		if _, ok := r.Identify(e); ok || r.who(token) != "" {
			t.Error("the evidence is valid after its expiry")
		}
	})
}

// TestUnknownKeyTypes checks that a key set may contain keys of unknown types (RFC 7517, section
// 5).
func TestUnknownKeyTypes(t *testing.T) {
	r := newRig(t, false, "")
	r.AddECDSA(t, "1")
	foreign := []string{
		`{"kty": "OKP", "crv": "Ed448", "kid": "a", "x": "AAAA"}`,
		`{"kty": "EC", "crv": "secp256k1", "kid": "b", "x": "AAAA", "y": "AAAA", "alg": "ES256K"}`,
		`{"kty": "AKP", "kid": "c", "alg": "ML-DSA-44", "pub": "AAAA"}`, `7`,
	}
	list := func(keys ...string) []byte {
		return []byte(`{"keys": [` + strings.Join(keys, ", ") + `]}`)
	}
	own := strings.TrimSuffix(strings.TrimPrefix(string(r.KeySet()), `{"keys":[`), `]}`)
	keys, err := parseKeys(list(append(foreign, own)...))
	if err != nil || len(keys) != 1 || keys[0].KeyID != "1" {
		t.Errorf("%v, %v", keys, err)
	}
	if _, err := parseKeys(list(foreign...)); err == nil {
		t.Error("a set without any usable key is accepted")
	}
}
