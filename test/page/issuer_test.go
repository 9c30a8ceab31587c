package page

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"
)

// issuer is a token issuer that members trust. It publishes its key through OpenID Connect
// discovery.
type issuer struct {
	*testing.T
	url string
	key *ecdsa.PrivateKey
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := key.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{T: t, key: key}
	reply := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(i.json(v)) // this fails if the member has stopped
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, map[string]any{"issuer": i.url, "jwks_uri": i.url + "/keys"})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, map[string]any{"keys": []any{map[string]any{
			"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": "k",
			"x": raw(public[1:33]), "y": raw(public[33:]), // skip the leading format byte
		}}})
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	i.url = s.URL
	return i
}

func raw(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func (i *issuer) json(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		i.Fatal(err)
	}
	return b
}

// token returns a token for a user, valid for an hour.
func (i *issuer) token(subject string, claims map[string]any) string {
	i.Helper()
	all := map[string]any{
		"iss": i.url, "sub": subject, "aud": "leasehold", "exp": time.Now().Add(time.Hour).Unix(),
	}
	for k, v := range claims {
		all[k] = v
	}
	text := raw(i.json(map[string]any{"alg": "ES256", "kid": "k"})) + "." + raw(i.json(all))
	hash := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, i.key, hash[:])
	if err != nil {
		i.Fatal(err)
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return text + "." + raw(signature)
}

// bound is the content of an --auth-config file that trusts an issuer.
const bound = `
issuers: [{name: corp, url: %q, audiences: [leasehold]}]
bindings:
  - {issuer: corp, claims: {sub: boss}, user: root}
`

// TestIssuerToken checks that a token from a trusted issuer logs in as the user bound to it, or
// with the roles of its bindings, until the binding is removed. Forged and unbound tokens are
// rejected with a message and are not stored.
func TestIssuerToken(t *testing.T) {
	corp, file := newIssuer(t), filepath.Join(t.TempDir(), "auth.yaml")
	alone := fmt.Sprintf(bound, corp.url)
	bind(t, file, alone+"  - {issuer: corp, claims: {groups: writers}, roles: [a]}\n")
	m := cluster(t, 1, "--bcrypt-cost", "4", "--auth-config", file)[0]
	m.put("a/key", "seen", nil)
	m.put("b/key", "not seen", nil)
	m.role("a", "a/")
	m.users(map[string]string{})
	p := open(t, m.url+"/ui/#/access")
	bob := corp.token("bob", map[string]any{"groups": []string{"readers", "writers"}})
	for why, wrong := range map[string]string{
		"invalid auth token": bob + "x", "permission denied": corp.token("eve", nil),
	} {
		p.fill("input[name=token]", wrong)
		p.click("button", "Use token")
		p.until("a refusal: "+why, "document.querySelector('form [role=alert]').textContent.includes("+
			quote(why)+")")
		p.kept(false)
	}
	p.useToken(" "+bob, "corp:bob")
	p.kept(true)
	p.fact("you are", "corp:bob")
	p.fact("known by", "token from an issuer, which is bound to roles")
	p.shows("read write: [a/, a0)")
	p.view("Keys")
	p.refused()
	p.fill("input[type=search]", "a/")
	p.click("button", "Go")
	p.click("ul.keys a", "key")
	p.value("seen")
	p.click("button", "Change the value")
	p.fill("dialog textarea[name=value]", "of bob")
	p.click("dialog button", "Put")
	p.value("of bob")

	bind(t, file, alone)
	p.until("that it is bound no more", "document.querySelector('[data-state=denied]')")
	p.loggedOut()
	p.kept(false)
	p.useToken(corp.token("boss", nil), "root")
	p.fact("you are", "root")
	p.fact("known by", "token from an issuer, which is bound to this user")
	p.view("Keys")
	p.shows("b/")
}
