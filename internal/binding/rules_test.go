package binding

import (
	"cmp"
	"crypto/x509"
	"net/url"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"

	"leasehold.dev/internal/access"
	"leasehold.dev/test/certs"
)

// fromCertificate returns the evidence from a certificate that has been signed and then parsed.
func fromCertificate(
	t testing.TB, hosts []string, change func(*x509.Certificate), ids ...string,
) *Evidence {
	t.Helper()
	var uris []*url.URL
	for _, id := range ids {
		u, err := url.Parse(id)
		if err != nil {
			t.Fatal(err)
		}
		uris = append(uris, u)
	}
	pair := certs.New(t).Issue("x", func(c *x509.Certificate) {
		c.Subject.CommonName, c.DNSNames, c.URIs = "", hosts, uris
		if change != nil {
			change(c)
		}
	})
	parsed := pair.Leaf
	e := OfCertificate(parsed)
	// SPIFFE's own library must find the same ID, or none.
	if id, err := x509svid.IDFromCert(parsed); change == nil && (err == nil) == e.spiffe.IsZero() ||
		!e.spiffe.IsZero() && id != e.spiffe {
		t.Errorf("the SPIFFE ID of %q is %q, but %q according to go-spiffe (%v)", ids, e.spiffe, id, err)
	}
	return e
}

func claims(issuer string, c map[string]any) *Evidence {
	subject, _ := c["sub"].(string)
	return &Evidence{issuer: issuer, url: issuer, subject: subject, claims: c}
}

// TestRules checks that each rule matches exactly what it describes.
func TestRules(t *testing.T) {
	f, err := parse([]byte(`
issuers:
  - {name: corp, url: corp, keys-file: k, audiences: [a]}
  - {name: other, url: other, keys-file: k, audiences: [a]}
bindings:
  - {spiffe: spiffe://d.org/api, user: api}
  - {spiffe: spiffe://d.org/prod/*, roles: [prod, all]}
  - {spiffe: spiffe://d.org/prod/db, roles: [db]}
  - {spiffe: spiffe://whole.org/*, roles: [whole]}
  - {dns: a.example.com, roles: [a]}
  - {dns: "*.b.example.com", roles: [b]}
  - {issuer: corp, claims: {sub: root}, user: root}
  - {issuer: corp, claims: {groups: ops, verified: "true"}, roles: [ops]}
  - {issuer: corp, claims: {sub: "system:prod:*"}, roles: [prod]}
  - {issuer: other, roles: [any]}
`))
	if err != nil {
		t.Fatal(err)
	}
	svid := func(id string) *Evidence {
		return fromCertificate(t, nil, nil, spiffeid.RequireFromString(id).URL().String())
	}
	hosts := func(names ...string) *Evidence { return fromCertificate(t, names, nil) }
	both := fromCertificate(t, []string{"a.example.com"}, nil, "spiffe://x/y")
	type m = map[string]any
	uris := func(ids ...string) *Evidence { return fromCertificate(t, nil, nil, ids...) }
	corp := func(claim m) *Evidence {
		claim["sub"] = cmp.Or(claim["sub"], any("x"))
		return claims("corp", claim)
	}
	for name, c := range map[string]struct {
		e    *Evidence
		want string // "" means no principal
	}{
		"exact":              {svid("spiffe://d.org/api"), "user api"},
		"below it":           {svid("spiffe://d.org/api/x"), ""},
		"another domain":     {svid("spiffe://d.com/api"), ""},
		"another case":       {svid("spiffe://d.org/API"), ""},
		"below a path":       {svid("spiffe://d.org/prod/a/b"), "spiffe://d.org/prod/a/b: all prod"},
		"two rules":          {svid("spiffe://d.org/prod/db"), "spiffe://d.org/prod/db: all db prod"},
		"the path itself":    {svid("spiffe://d.org/prod"), ""},
		"a longer path":      {svid("spiffe://d.org/production"), ""},
		"a domain":           {svid("spiffe://whole.org/x"), "spiffe://whole.org/x: whole"},
		"below a domain":     {svid("spiffe://x.whole.org/x"), ""},
		"a longer domain":    {svid("spiffe://whole.org.evil/x"), ""},
		"two IDs":            {uris("spiffe://d.org/api", "spiffe://d.org/prod/a"), ""},
		"an ID and a URI":    {uris("spiffe://d.org/api", "https://x/y"), ""},
		"no ID":              {uris("https://d.org/api"), ""},
		"an ID with a query": {uris("spiffe://d.org/api?x"), ""},
		"a port":             {uris("spiffe://d.org:1/api"), ""},
		"dots":               {uris("spiffe://d.org/prod/../api"), ""},
		"escaped":            {uris("spiffe://d.org/prod%2fa"), ""},
		"host":               {hosts("a.example.com"), "dns:a.example.com: a"},
		"the first name":     {hosts("z.org", "A.example.com"), "dns:z.org: a"},
		"host of a domain":   {hosts("x.b.example.com"), "dns:x.b.example.com: b"},
		"host of two rules":  {hosts("x.b.example.com", "a.example.com"), "dns:x.b.example.com: a b"},
		"deeper":             {hosts("y.x.b.example.com"), ""},
		"the domain itself":  {hosts("b.example.com"), ""},
		"a host for all":     {hosts("*.b.example.com"), ""},
		"an ID beside it":    {both, "spiffe://x/y: a"},
		"no evidence":        {hosts(), ""},
		"an authority": {fromCertificate(t, nil, func(c *x509.Certificate) {
			c.IsCA, c.BasicConstraintsValid = true, true
		}, "spiffe://d.org/api"), ""},
		"one that signs": {fromCertificate(t, nil, func(c *x509.Certificate) {
			c.KeyUsage |= x509.KeyUsageCertSign
		}, "spiffe://d.org/api"), ""},
		"subject to a user":    {corp(m{"sub": "root"}), "user root"},
		"of another issuer":    {claims("other", m{"sub": "root"}), "other:root: any"},
		"of an unknown issuer": {claims("none", m{"sub": "root"}), ""},
		"all claims":           {corp(m{"groups": []any{"a", "ops"}, "verified": true}), "corp:x: ops"},
		"one of the claims":    {corp(m{"groups": []any{"ops"}, "verified": false}), ""},
		"the other":            {corp(m{"verified": true}), ""},
		"a list in a list":     {corp(m{"groups": []any{[]any{"ops"}}, "verified": true}), ""},
		"an object":            {corp(m{"groups": m{"ops": 1}, "verified": true}), ""},
		"text for a bool":      {corp(m{"groups": "ops", "verified": "true"}), "corp:x: ops"},
		"a beginning":          {corp(m{"sub": "system:prod:a"}), "corp:system:prod:a: prod"},
		"a longer one":         {corp(m{"sub": "system:product"}), ""},
		"too long a name":      {claims("other", m{"sub": strings.Repeat("x", maxName)}), ""},
	} {
		p, ok := f.identify(c.e)
		got := ""
		switch {
		case ok && p.Bound == nil:
			got = "user " + p.Name
		case ok:
			got = p.Name + ": " + strings.Join(p.Bound.Roles, " ")
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// TestIssuerNames checks that principals of different types cannot have the same name, no matter
// what an issuer calls its subjects.
func TestIssuerNames(t *testing.T) {
	for _, name := range []string{"dns", "spiffe", "", "A", "a:b", "a/b"} {
		s := issuerSettings{Name: name, URL: "https://x", Audiences: []string{"a"}}
		if s.setDefaults(); s.check() == nil {
			t.Errorf("an issuer named %q was accepted", name)
		}
	}
}

func TestPrincipalEqual(t *testing.T) {
	p := Principal{"p", &access.Bound{Roles: []string{"a"}}}
	for _, c := range []struct {
		q    Principal
		want bool
	}{
		{Principal{"p", &access.Bound{Roles: []string{"a"}}}, true},
		{Principal{"p", &access.Bound{Roles: []string{"b"}}}, false},
		{Principal{"q", p.Bound}, false},
		{Principal{"p", nil}, false},
	} {
		if p.Equal(c.q) != c.want || c.q.Equal(p) != c.want {
			t.Errorf("%v and %v", p, c.q)
		}
	}
}
