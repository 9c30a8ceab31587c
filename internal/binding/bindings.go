package binding

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// pollInterval is how often files are checked for changes.
const pollInterval = time.Second

// Bindings holds the rules of a file, as last read without errors. A nil *Bindings has no rules.
type Bindings struct {
	path    string
	log     *slog.Logger
	changed func()
	dial    func(ctx context.Context, network, addr string) (net.Conn, error)
	now     atomic.Pointer[rules]

	ctx    context.Context // cancels fetches of keys
	cancel context.CancelFunc
	group  sync.WaitGroup // running fetches

	mu     sync.Mutex // guards the fields below, and writes to now
	text   []byte     // content of the file in effect
	loaded time.Time  // when text was read
	failed string     // why a newer version was rejected
}

// rules is the content of one version of the file.
type rules struct {
	*file
	byURL map[string]*issuer
}

// Options configures [Open].
type Options struct {
	// Log receives messages about the file and about keys. By default, nothing is logged.
	Log *slog.Logger
	// Changed is called when the rules change.
	Changed func()
	// Dial opens connections to issuers. By default, they use the machine's network.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Check validates a file and the files named in it. It does not contact issuers.
func Check(path string) error {
	b, err := Open(path, Options{})
	if err != nil {
		return err
	}
	b.Close()
	return nil
}

// Open reads a file. Issuers are contacted only by [Bindings.Run] and when a token arrives.
func Open(path string, o Options) (*Bindings, error) {
	b := &Bindings{path: path, log: o.Log, changed: o.Changed, dial: o.Dial}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	if b.changed == nil {
		b.changed = func() {}
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	f, text, err := readFile(path)
	if err == nil {
		err = b.apply(f)
	}
	if err != nil {
		b.Close()
		return nil, err
	}
	b.text, b.loaded = text, time.Now()
	return b, nil
}

// Close cancels fetches in flight.
func (b *Bindings) Close() {
	if b == nil {
		return
	}
	b.cancel()
	b.group.Wait()
}

// apply puts a file into effect. It keeps the issuers whose settings have not changed.
func (b *Bindings) apply(f *file) error {
	next := &rules{file: f, byURL: make(map[string]*issuer)}
	var old map[string]*issuer
	if r := b.now.Load(); r != nil {
		old = r.byURL
	}
	for i := range f.Issuers {
		s := &f.Issuers[i]
		if x := old[s.URL]; x != nil && x.sameAs(s) {
			next.byURL[s.URL] = x
			continue
		}
		k := &keySet{
			from: s, log: b.log, ctx: b.ctx, group: &b.group, dial: b.dial,
			limit: rate.NewLimiter(rate.Every(fetchInterval), fetchBurst),
		}
		if s.CAFile != "" {
			if _, err := readCA(s); err != nil {
				return fmt.Errorf("--auth-config: %s:%d: %w", b.path, s.Line, err)
			}
		}
		if s.KeysFile != "" {
			if err := k.readFile(); err != nil {
				return fmt.Errorf("--auth-config: %s:%d: %w", b.path, s.Line, err)
			}
		}
		next.byURL[s.URL] = newIssuer(s, k)
	}
	b.now.Store(next)
	return nil
}

// sameAs reports whether the issuer has the settings s.
func (i *issuer) sameAs(s *issuerSettings) bool {
	a, b := *i.issuerSettings, *s
	a.Line, b.Line = 0, 0
	return reflect.DeepEqual(a, b)
}

// Reload rereads the file. If the file has changed and has no errors, it takes effect. Otherwise,
// nothing changes, and any error is logged.
func (b *Bindings) Reload() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	f, text, err := readFile(b.path)
	switch {
	case err == nil && bytes.Equal(text, b.text) && b.failed == "":
		return
	case err == nil:
		err = b.apply(f)
	}
	if err != nil {
		if why := err.Error(); why != b.failed {
			b.failed = why
			b.log.Error("cannot reload the --auth-config file; the previous contents remain in "+
				"effect", "file", b.path, "error", why)
		}
		return
	}
	b.text, b.loaded, b.failed = text, time.Now(), ""
	b.log.Info("reloaded the --auth-config file", "file", b.path,
		"issuers", len(f.Issuers), "bindings", len(f.Bindings))
	b.changed()
}

// Run reloads changed files and refreshes old keys until ctx ends.
func (b *Bindings) Run(ctx context.Context) {
	if b == nil {
		return
	}
	look := time.NewTicker(pollInterval)
	defer look.Stop()
	for {
		for _, i := range b.now.Load().byURL {
			switch {
			case i.KeysFile != "":
				_ = i.keys.readFile() // the error has been logged
			case i.keys.due(time.Now()):
				i.keys.fetch()
			}
		}
		select {
		case <-look.C:
			b.Reload()
		case <-ctx.Done():
			return
		}
	}
}

// CommonNames reports whether a certificate's common name is taken as a user name if no rule
// matches.
func (b *Bindings) CommonNames() bool { return b == nil || b.now.Load().CommonNames }

// OfCertificates reports whether any rule applies to certificates.
func (b *Bindings) OfCertificates() bool {
	return slices.ContainsFunc(b.now.Load().Bindings, func(r rule) bool { return r.Issuer == "" })
}

// Token verifies a token. If the token was not issued by an issuer in the file, ours is false, and
// the token might be of a different type. If ours is true and the token is invalid, err contains
// the reason.
func (b *Bindings) Token(ctx context.Context, token string) (e *Evidence, ours bool, err error) {
	if b == nil {
		return nil, false, nil
	}
	if len(token) > maxToken || strings.Count(token, ".") != 2 {
		return nil, false, nil
	}
	r, sum := b.now.Load(), sha256.Sum256([]byte(token))
	for _, i := range r.byURL { // there are only a few
		if e := i.cached(sum); e != nil {
			return e, true, nil
		}
	}
	i := r.byURL[issuerOf(token)]
	if i == nil {
		return nil, false, nil
	}
	e, err = i.verify(ctx, token, sum)
	return e, true, err
}

// Identify returns the caller's principal according to the current rules. If the caller has none,
// ok is false.
func (b *Bindings) Identify(e *Evidence) (p Principal, ok bool) {
	if b == nil || !e.Expires.IsZero() && !time.Now().Before(e.Expires) {
		return Principal{}, false
	}
	r := b.now.Load()
	if e.issuer != "" {
		if i := r.byURL[e.url]; i == nil || i.Name != e.issuer {
			return Principal{}, false
		}
	}
	return r.identify(e)
}
