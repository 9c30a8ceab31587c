package ui

import (
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"
)

// ask sends a request to the page.
func ask(p *Page, method, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w
}

// TestHeaders checks that every file and every error response states its type and its restrictions
// for the browser.
func TestHeaders(t *testing.T) {
	p := New(Offer{})
	paths := []string{prefix, "/ui", prefix + "nothing", prefix + "../ui.go"}
	for name := range p.files {
		paths = append(paths, prefix+name)
	}
	if len(paths) < 15 {
		t.Fatalf("only %d files", len(paths))
	}
	for _, at := range paths {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE"} {
			w := ask(p, method, at)
			for name, want := range map[string]string{
				"Content-Security-Policy":      policy,
				"X-Content-Type-Options":       "nosniff",
				"X-Frame-Options":              "DENY",
				"Referrer-Policy":              "no-referrer",
				"Cross-Origin-Opener-Policy":   "same-origin",
				"Cross-Origin-Resource-Policy": "same-origin",
				"Cache-Control":                "no-cache",
			} {
				if got := w.Header().Get(name); got != want {
					t.Errorf("%s %s: %s is %q, not %q", method, at, name, got, want)
				}
			}
			read := method == "GET" || method == "HEAD"
			if !read && (w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD") {
				t.Errorf("%s %s: %d", method, at, w.Code)
			}
		}
	}
	for name, f := range p.files {
		w := ask(p, "GET", prefix+name)
		if w.Code != http.StatusOK || w.Body.String() != string(f.text) ||
			w.Header().Get("Content-Type") != kinds[path.Ext(name)] {
			t.Errorf("%s: %d %s", name, w.Code, w.Header().Get("Content-Type"))
		}
	}
	for _, at := range []string{"nothing", "../ui.go", "files/index.html", "vendor/", "index.html/"} {
		if w := ask(p, "GET", prefix+at); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", at, w.Code)
		}
	}
}

// TestPolicy checks that the policy allows what the page needs and nothing that would help an
// attacker.
func TestPolicy(t *testing.T) {
	for _, want := range []string{
		"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'",
		"frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'",
		"require-trusted-types-for 'script'",
	} {
		if !strings.Contains("; "+policy+";", "; "+want+";") {
			t.Errorf("the policy does not say %s", want)
		}
	}
	for _, bad := range []string{"unsafe", "*", "data:", "blob:", "http"} {
		if strings.Contains(policy, bad) {
			t.Errorf("the policy says %s", bad)
		}
	}
}

// own returns the files that we wrote.
func own(t *testing.T) map[string]string {
	t.Helper()
	out := make(map[string]string)
	for name, f := range New(Offer{}).files {
		if !strings.HasPrefix(name, "vendor/") {
			out[name] = string(f.text)
		}
	}
	return out
}

// TestNothingInline checks that the files have no inline code, no external sources, and only
// relative addresses, and that they never turn text into HTML.
func TestNothingInline(t *testing.T) {
	bad := []*regexp.Regexp{
		regexp.MustCompile(`<script[^>]*>\s*[^<\s]`),
		regexp.MustCompile(`<style`),
		regexp.MustCompile(`\sstyle="`),
		regexp.MustCompile(`\son[a-z]+="`),
		regexp.MustCompile(`javascript:`),
		regexp.MustCompile(`(src|href|from|url)\s*[=(]?\s*["'](https?:)?//`),
		regexp.MustCompile(`(src|href)="/`),
		regexp.MustCompile(`(fetch|call|get|stream|import)\(["']/`),
		regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|dangerouslySet|srcdoc`),
		regexp.MustCompile(`document\.(write|cookie)`),
		regexp.MustCompile(`\beval\(|new Function|setTimeout\(["']|localStorage`),
	}
	for name, text := range own(t) {
		for _, re := range bad {
			if at := re.FindString(text); at != "" {
				t.Errorf("%s has %q", name, at)
			}
		}
	}
}

// TestReferences checks that every file referenced by a module or the index exists.
func TestReferences(t *testing.T) {
	p := New(Offer{})
	refs := regexp.MustCompile(`(?:from|src=|href=) ?"(\.?/?[\w./-]+\.(?:js|css|svg))"`)
	found := 0
	for name, text := range own(t) {
		for _, m := range refs.FindAllStringSubmatch(text, -1) {
			found++
			if to := path.Join(path.Dir(name), m[1]); p.files[to].text == nil {
				t.Errorf("%s names %s, which is not there", name, m[1])
			}
		}
	}
	if found < 30 {
		t.Errorf("only %d references were found", found)
	}
}

// TestSizes checks that a browser loads at most 150 KB, that our modules are short, and that
// licenses are served as text.
func TestSizes(t *testing.T) {
	total := 0
	for name, f := range New(Offer{}).files {
		if path.Ext(name) != ".txt" {
			total += len(f.text)
		}
	}
	if total > 150_000 {
		t.Errorf("%d bytes are loaded, more than 150,000", total)
	}
	for name, text := range own(t) {
		if n := strings.Count(text, "\n"); n > 500 {
			t.Errorf("%s has %d lines", name, n)
		}
		for i, line := range strings.Split(text, "\n") {
			if len([]rune(line)) > 120 && path.Ext(name) != ".svg" {
				t.Errorf("%s:%d is longer than 120 columns", name, i+1)
			}
		}
	}
}

// TestLicences checks that third-party code comes with its license.
func TestLicences(t *testing.T) {
	p := New(Offer{})
	for name, want := range map[string]string{
		"vendor/LICENSE-htm.txt": "Apache License", "vendor/LICENSE-preact.txt": "MIT License",
	} {
		if !strings.Contains(string(p.files[name].text), want) {
			t.Errorf("%s is not the %s", name, want)
		}
	}
}

// TestCache checks that a browser does not load a file again unless the release changes.
func TestCache(t *testing.T) {
	on, off := New(Offer{}), New(Offer{ReadOnly: true})
	tag := ask(on, "GET", prefix).Header().Get("ETag")
	if tag == "" {
		t.Fatal("the index has no tag")
	}
	if w := ask(on, "GET", prefix, "If-None-Match", tag); w.Code != http.StatusNotModified ||
		w.Body.Len() > 0 || w.Header().Get("Content-Security-Policy") != policy {
		t.Errorf("it was sent again: %d", w.Code)
	}
	if w := ask(off, "GET", prefix, "If-None-Match", tag); w.Code != http.StatusOK {
		t.Errorf("another index has the same tag: %d", w.Code)
	}
}

// TestOffer checks that the index states whether write operations are offered and whether a relay
// serves it, and nothing else.
func TestOffer(t *testing.T) {
	for o, want := range map[Offer][2]string{
		{}:                            {"on", "member"},
		{ReadOnly: true}:              {"off", "member"},
		{Relay: true}:                 {"on", "relay"},
		{ReadOnly: true, Relay: true}: {"off", "relay"},
	} {
		text := ask(New(o), "GET", prefix).Body.String()
		if !strings.Contains(text, `name="leasehold-acts" content="`+want[0]+`"`) ||
			!strings.Contains(text, `name="leasehold-server" content="`+want[1]+`"`) ||
			strings.Contains(text, "{{") {
			t.Errorf("%+v: %s", o, text)
		}
	}
}

// TestRedirect checks that behind a proxy with a path prefix, the path without the slash redirects
// to the page.
func TestRedirect(t *testing.T) {
	w := ask(New(Offer{}), "GET", "/ui")
	if w.Code != http.StatusPermanentRedirect || w.Header().Get("Location") != "ui/" {
		t.Errorf("%d to %q", w.Code, w.Header().Get("Location"))
	}
}
