// Package ui is the page for people at /ui/ of a client port. It serves files, and computes what
// package plan computes, which needs nothing of the cluster. All else that the page shows and does
// goes through the JSON API of package web, as the user who is logged in. So rights, the audit log
// and quotas hold for the page as for every other client.
//
// The files need no build. files/vendor has what others wrote, with its licences.
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

// prefix is the path below which a [Page] answers.
const prefix = "/ui/"

// index is what the path of the page itself answers.
const index = "index.html"

// These stand in the index for what the page offers, "on" or "off", and for what serves it,
// "member" or "relay".
const (
	acts   = "{{acts}}"
	server = "{{server}}"
)

// policy is what a browser may do for the page: load files of this member, and call it. No text of
// the cluster can become a script, a style, a form or a frame, even if a module is careless with
// it: browsers that know trusted types refuse to make HTML of any text.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// kinds are the types of the files, by the ends of their names. The tables of the machine are not
// asked, because a wrong one would keep the page from working.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
	".txt":  "text/plain; charset=utf-8",
}

// Page serves the page. Its methods may be called from any goroutine.
type Page struct {
	files    map[string]file
	planning chan struct{} // of capacity 1, filled while a plan is computed
}

// file is what a path answers.
type file struct {
	kind, tag string
	text      []byte
}

// Offer says what the page is to be.
type Offer struct {
	// ReadOnly offers nothing that changes anything. That is no protection: a user that has the
	// right to change something can do so without the page.
	ReadOnly bool
	// Relay is the page of a relay, which knows nothing of how the cluster is.
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

// ServeHTTP implements http.Handler. Browsers keep the files, and ask each time whether they have
// changed: so a page never mixes the modules of two releases for longer than it is open.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	protect(w.Header())
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
		return
	}
	if r.URL.Path+"/" == prefix {
		// Relative, because there may be a prefix before it that this member does not know.
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

// protect sets what every answer says to the browser, errors too.
func protect(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY") // for browsers that do not know frame-ancestors
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	h.Set("Cache-Control", "no-cache")
}
