// Package ui serves the web page under /ui/ on a client port. It serves files and runs the
// computations of package plan, which do not need any data from the cluster. For everything else,
// the page uses the JSON API of package web as the logged-in user. Therefore, permissions, the
// audit log and quotas apply to the page as they do to any other client.
//
// The files do not need a build step. files/vendor contains third-party files with their licenses.
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

// prefix is the path under which a [Page] is served.
const prefix = "/ui/"

// index is the file served at the page's own path.
const index = "index.html"

// Placeholders in the index file. acts is replaced by "on" or "off" and determines whether the page
// has controls that make changes. server is replaced by the type of the server, "member" or
// "relay".
const (
	acts   = "{{acts}}"
	server = "{{server}}"
)

// policy restricts what a browser lets the page do. The page can load files from this member and
// call its API. Text from the cluster can never become a script, style, form or frame, even if a
// module handles it carelessly. Browsers that support trusted types refuse to create HTML from any
// text.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// kinds maps file extensions to content types. The machine's own tables are not used, because an
// incorrect entry would break the page.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
	".txt":  "text/plain; charset=utf-8",
}

// Page serves the page. It is safe for concurrent use.
type Page struct {
	files    map[string]file
	planning chan struct{} // capacity 1; full while a plan is being computed
}

// file is the response for a path.
type file struct {
	kind, tag string
	text      []byte
}

// Offer determines what the page offers.
type Offer struct {
	// ReadOnly omits all controls that make changes. It is not a security measure: a user with
	// permission to make a change can do so without the page.
	ReadOnly bool
	// Relay must be set if a relay serves the page. A relay does not have the cluster's state.
	Relay bool
}

// New returns a page.
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
			return fmt.Errorf("%s has an unknown file type", name)
		}
		hash := sha256.Sum256(text)
		p.files[strings.TrimPrefix(name, "files/")] = file{
			kind: kind, text: text,
			tag: `"` + base64.RawURLEncoding.EncodeToString(hash[:16]) + `"`,
		}
		return nil
	})
	if err != nil { // impossible, because the files are embedded in the binary
		panic(fmt.Errorf("ui: %w", err))
	}
	return p
}

// ServeHTTP implements http.Handler. Browsers cache the files but check each time whether they have
// changed. Therefore, an open page does not mix modules from different releases for long.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	protect(w.Header())
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
		return
	}
	if r.URL.Path+"/" == prefix {
		// Use a relative path, because a proxy may add a prefix that this member does not know.
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
		http.Error(w, "File not found.", http.StatusNotFound)
		return
	}
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Set("ETag", f.tag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.text))
}

// protect sets the security headers on every response, including errors.
func protect(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY") // for browsers without support for frame-ancestors
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	h.Set("Cache-Control", "no-cache")
}
