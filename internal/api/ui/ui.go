// Package ui is the page for people at /ui/ of a client port. It serves files, and runs the
// computations of package plan, which need nothing from the cluster. Everything else goes through
// the JSON API of package web, as the logged-in user. So permissions, the audit log and quotas
// apply to the page as to every other client.
//
// The files need no build. files/vendor has third-party files, with their licenses.
package ui

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed files
var files embed.FS

// prefix is the path of a [Page].
const prefix = "/ui/"

// index is the file for the path of the page itself.
const index = "index.html"

// Placeholders in the index: whether the page offers changes ("on" or "off"), and which kind of
// server serves it ("member" or "relay").
const (
	acts   = "{{acts}}"
	server = "{{server}}"
)

// policy limits what a browser may do for the page: it may load files from this member, and call
// it. No text from the cluster can become a script, a style, a form or a frame, even if a module is
// careless with it: browsers with support for trusted types refuse to make HTML of any text.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// kinds maps file extensions to content types. The machine's own tables are not used, because a
// wrong one would break the page.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
	".txt":  "text/plain; charset=utf-8",
}

// Page serves the page. Its methods are safe for concurrent use.
type Page struct {
	files    map[string]file
	planning chan struct{} // capacity 1, filled while a plan is computed
}

// file is the answer for a path.
type file struct {
	kind, tag string
	text      []byte
}

// Offer configures the page.
type Offer struct {
	// ReadOnly omits everything that makes changes. This protects nothing: a user with permission
	// to change something can do so without the page.
	ReadOnly bool
	// Relay is set for the page of a relay, which does not have the state of the cluster.
	Relay bool
}

// New returns the page.
func New(o Offer) *Page {
	p := &Page{files: make(map[string]file), planning: make(chan struct{}, 1)}
	words := []string{acts, "on", server, "member"}
	if o.ReadOnly {
		words[1] = "off"
	}
	if o.Relay {
		words[3] = "relay"
	}
	fill := strings.NewReplacer(words...)
	err := fs.WalkDir(files, "files", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		if path.Base(name) == index {
			text = []byte(fill.Replace(string(text)))
		}
		kind, ok := kinds[path.Ext(name)]
		if !ok {
			return fmt.Errorf("%s has no type", name)
		}
		hash := sha256.Sum256(text)
		p.files[strings.TrimPrefix(name, "files/")] = file{
			kind: kind, text: text,
			tag: `"` + base64.RawURLEncoding.EncodeToString(hash[:16]) + `"`,
		}
		return nil
	})
	if err != nil { // the files are in the binary
		panic(fmt.Errorf("ui: %w", err))
	}
	return p
}

// ServeHTTP implements http.Handler. Browsers cache the files, and ask each time whether they have
// changed, so an open page does not mix modules of two releases for long.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	protect(w.Header())
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
		return
	}
	if r.URL.Path+"/" == prefix {
		// Relative, because there may be a prefix that this member does not know.
		w.Header().Set("Location", strings.TrimPrefix(prefix, "/"))
		w.WriteHeader(http.StatusPermanentRedirect)
		return
	}
	name := strings.TrimPrefix(r.URL.Path, prefix)
	if name == "" {
		name = index
	}
	if kind, ok := strings.CutPrefix(name, plans); ok {
		p.servePlan(w, r, kind)
		return
	}
	f, ok := p.files[name]
	if !ok {
		http.Error(w, "The page has no such file.", http.StatusNotFound)
		return
	}
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Set("ETag", f.tag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.text))
}

// protect sets the security headers of every answer, including errors.
func protect(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY") // for browsers that do not support frame-ancestors
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	h.Set("Cache-Control", "no-cache")
}
