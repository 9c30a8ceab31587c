package binding

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// good is a file that uses every setting.
const good = `common-names: false
issuers:
  - name: corp
    url: https://login.example.com
    audiences: [leasehold, other]
    keys-url: https://login.example.com/keys
    algorithms: [ES256, RS256]
    clock-leeway: 10s
    refresh: 1m
    name-claim: email
bindings:
  - spiffe: spiffe://example.org/api
    user: api
  - spiffe: spiffe://example.org/prod/*
    roles: [app, reader]
  - dns: "*.workers.example.org"
    roles: [worker]
  - issuer: corp
    claims: {groups: ops, verified: "true"}
    roles: [root]
`

// TestParseErrors checks that a file is parsed strictly, and that each error names the line and
// suggests a fix.
func TestParseErrors(t *testing.T) {
	f, err := parse([]byte(good))
	if err != nil || f.CommonNames || len(f.Issuers) != 1 || len(f.Bindings) != 4 ||
		f.Issuers[0].Line != 3 || f.Bindings[3].Claims["verified"] != "true" {
		t.Fatalf("%+v, %v", f, err)
	}
	for _, c := range []struct{ before, after, want string }{
		{
			"refresh: 1m", "refrseh: 1m",
			`:9: unknown setting "refrseh" in an element of issuers; did you mean "refresh"?`,
		},
		{
			"bindings:", "bindnigs:",
			`:11: unknown setting "bindnigs" in the file; did you mean "bindings"?`,
		},
		{"user: api", "user: api\n    user: b", ":14: user is already set, on line 13"},
		{"common-names: false", `common-names: "no"`, ":1: common-names must be true or false"},
		{
			"common-names: false", "common-names: false\ncommon-names: true",
			":2: common-names is already set",
		},
		{"user: api", "user: 7", ":13: user must be text"},
		{"user: api", "user: [api]", ":13: user must be a single value"},
		{"user: api", "user: api\n    roles: [a]", ":12: a binding needs either a user or roles"},
		{"user: api", "user:", ":12: a binding needs either a user or roles"},
		{"roles: [worker]", "roles: []", ":16: a binding's roles must not be empty"},
		{"roles: [worker]", `roles: [""]`, ":16: a binding's roles must not be empty"},
		{"roles: [worker]", "roles: worker", ":17: roles must be a list"},
		{"issuer: corp", "issuer: crop", `:18: issuer "crop" is not defined; did you mean "corp"?`},
		{"  - issuer: corp\n", "  - dns: a\n", ":18: claims require an issuer"},
		{"  - dns:", "  - issuer: corp\n    dns:", ":16: a binding needs exactly one of"},
		{"spiffe://example.org/api", "https://example.org/api", ":12: spiffe"},
		{"spiffe://example.org/prod/*", "spiffe://example.org/pro*", ":14: spiffe"},
		{"*.workers", "*work", ":16: dns"},
		{"name: corp", "name: dns", ":3: an issuer's name must"},
		{"name: corp", "name: a:b", ":3: an issuer's name must"},
		{"audiences: [leasehold, other]", "audiences: []", ":3: issuer corp needs audiences"},
		{"    audiences: [leasehold, other]\n", "", ":3: issuer corp needs audiences"},
		{
			"https://login.example.com/keys", "http://login.example.com/keys",
			"must begin with https://",
		},
		{
			"keys-url: https", "keys-file: k\n    keys-url: https",
			":3: issuer corp has both keys-url and keys-file",
		},
		{"ES256, RS256", "HS256", `:3: issuer corp: algorithm "HS256"`},
		{"ES256, RS256", "none", `:3: issuer corp: algorithm "none"`},
		{
			"clock-leeway: 10s", "clock-leeway: 1h",
			":3: clock-leeway of issuer corp must be between 0s and 5m",
		},
		{"clock-leeway: 10s", "clock-leeway: 10", ":8: clock-leeway must be a duration"},
		{
			"refresh: 1m", "refresh: 1s",
			":3: the refresh interval of issuer corp must be at least 10s",
		},
		{
			"bindings:", "  - {name: corp, url: x, keys-file: k, audiences: [a]}\nbindings:",
			":11: the issuer on line 3",
		},
		{good, "", ": it contains no bindings"},
		{good, "bindings: []", ": it contains no bindings"},
		{good, "- a", ":1: the file must contain settings"},
		{good, "bindings: [", ":1: not YAML"},
		{"common-names: false", "<<: {common-names: true}", `:1: unknown setting "<<"`},
	} {
		_, err := parse([]byte(strings.Replace(good, c.before, c.after, 1)))
		if err == nil || !strings.Contains(err.Error(), c.want) ||
			c.want[0] == ':' && !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%q instead of %q: %v, want %s", c.after, c.before, err, c.want)
		}
	}
}

// TestCheck checks that an error names the file, and that files referenced by it are checked as
// well.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "auth.yaml")
	if err := Check(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("missing file: %v", err)
	}
	with := func(text string) error {
		write(t, path, text)
		return Check(path)
	}
	if err := with(good); err != nil {
		t.Error(err)
	}
	for text, want := range map[string]string{
		"bindings: [{user: a}]": path + ":1: a binding needs exactly one of",
		strings.Replace(good, "keys-url: https:/", "keys-file: /nowhere", 1): path +
			":3: keys-file of issuer corp",
		strings.Replace(good, "refresh: 1m", "ca-file: "+path, 1): path +
			":3: ca-file of issuer corp",
	} {
		if err := with(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// FuzzParse checks that parse never panics and accepts only valid bindings.
func FuzzParse(f *testing.F) {
	f.Add(good)
	f.Add("a: &a [*a]\nbindings: *a")
	f.Fuzz(func(t *testing.T, text string) {
		x, err := parse([]byte(text))
		if err != nil {
			if !strings.HasPrefix(err.Error(), ":") {
				t.Errorf("the error has no line number: %v", err)
			}
			return
		}
		for _, r := range x.Bindings {
			if (r.User == "") == (len(r.Roles) == 0) {
				t.Errorf("a binding without user or roles: %+v", r)
			}
		}
	})
}
