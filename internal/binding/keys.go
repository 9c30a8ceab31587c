package binding

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"golang.org/x/time/rate"
)

const (
	// fetchTimeout covers both the discovery document and the keys.
	fetchTimeout = 10 * time.Second
	// fetchInterval and fetchBurst limit how often an issuer is contacted, no matter which tokens
	// clients send.
	fetchInterval = 10 * time.Second
	fetchBurst    = 3
	// retryInterval is the delay after a failed fetch.
	retryInterval = 15 * time.Second
	// maxResponse limits the size of an issuer's responses.
	maxResponse = 1 << 20
)

// keySet is the set of public keys of an issuer.
type keySet struct {
	from  *issuerSettings
	log   *slog.Logger
	ctx   context.Context // ends when the member stops
	group *sync.WaitGroup // running fetches
	limit *rate.Limiter
	dial  func(ctx context.Context, network, addr string) (net.Conn, error) // nil means the default

	mu       sync.Mutex // guards the fields below
	keys     []jose.JSONWebKey
	text     string        // document from which keys were parsed
	next     time.Time     // when to fetch the keys again
	fetching chan struct{} // closed when the fetch in flight ends; nil if there is none
	failed   string        // error from the last fetch, or "" if it succeeded
}

// find returns the keys that could have signed a token with the given kid and algorithm. If the kid
// is unknown, it fetches the keys again and waits for the result, unless they were fetched too
// recently.
func (k *keySet) find(ctx context.Context, kid, algorithm string) []crypto.PublicKey {
	k.mu.Lock()
	found, ok := k.lookupLocked(kid, algorithm)
	k.mu.Unlock()
	if ok || k.from.KeysFile != "" {
		return found
	}
	if done := k.fetch(); done != nil {
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	found, _ = k.lookupLocked(kid, algorithm)
	return found
}

// lookupLocked returns the matching keys. It also reports whether the kid is known, which means
// that the keys do not have to be fetched.
func (k *keySet) lookupLocked(kid, algorithm string) (found []crypto.PublicKey, ok bool) {
	for _, key := range k.keys {
		if kid != "" && key.KeyID != kid {
			continue
		}
		ok = true
		if key.Algorithm == "" || key.Algorithm == algorithm {
			found = append(found, key.Key)
		}
	}
	return found, ok
}

// due reports whether it is time to fetch the keys again.
func (k *keySet) due(now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.from.KeysFile == "" && !now.Before(k.next)
}

// fetch starts fetching the keys, unless a fetch is already in flight or the last one was too
// recent. It returns a channel that is closed when the fetch ends, or nil if none is in flight.
func (k *keySet) fetch() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fetching != nil || k.ctx.Err() != nil || !k.limit.Allow() {
		return k.fetching
	}
	done := make(chan struct{})
	k.fetching = done
	k.group.Go(func() {
		text, err := k.download()
		k.update(text, err)
		k.mu.Lock()
		defer k.mu.Unlock()
		k.fetching = nil
		close(done)
	})
	return done
}

// update replaces the keys. If err is set, it records the error and keeps the old keys.
func (k *keySet) update(text []byte, err error) {
	var keys []jose.JSONWebKey
	if err == nil {
		keys, err = parseKeys(text)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		k.next = time.Now().Add(retryInterval)
		if why := truncate(err.Error()); why != k.failed && k.ctx.Err() == nil {
			k.failed = why
			k.log.Warn("cannot fetch an issuer's keys; the previous ones remain in effect",
				"issuer", k.from.Name, "keys", len(k.keys), "error", why)
		}
		return
	}
	k.next, k.failed = time.Now().Add(k.from.Refresh), ""
	if string(text) != k.text {
		k.keys, k.text = keys, string(text)
		k.log.Info("an issuer's keys have changed", "issuer", k.from.Name, "keys", len(keys))
	}
}

// truncate limits the length of text that partly comes from other systems.
func truncate(text string) string { return text[:min(len(text), 300)] }

// readFile reads the keys from their file.
func (k *keySet) readFile() error {
	text, err := os.ReadFile(k.from.KeysFile)
	if err == nil {
		_, err = parseKeys(text)
	}
	if err != nil {
		err = fmt.Errorf("keys-file of issuer %s: %s: %w", k.from.Name, k.from.KeysFile, err)
	}
	k.update(text, err)
	return err
}

// download fetches the keys from the configured URL or, by default, from the URL in the discovery
// document.
func (k *keySet) download() ([]byte, error) {
	ctx, cancel := context.WithTimeout(k.ctx, fetchTimeout)
	defer cancel()
	client, err := k.client()
	if err != nil {
		return nil, err
	}
	from := k.from.KeysURL
	if from == "" {
		p, err := oidc.NewProvider(oidc.ClientContext(ctx, client), k.from.URL)
		if err != nil {
			return nil, err
		}
		var document struct {
			KeysURL string `json:"jwks_uri"`
		}
		if err := p.Claims(&document); err != nil {
			return nil, err
		}
		from = document.KeysURL
		if err := checkURL(from); err != nil {
			return nil, fmt.Errorf("jwks_uri of the discovery document: %w", err)
		}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s returned %s", from, answer.Status)
	}
	return io.ReadAll(answer.Body)
}

// client returns the HTTP client for the issuer. It does not follow redirects, because they could
// lead to a server without TLS.
func (k *keySet) client() (*http.Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableKeepAlives = true
	if k.dial != nil {
		transport.DialContext = k.dial
	}
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if k.from.CAFile != "" {
		pool, err := readCA(k.from)
		if err != nil {
			return nil, err
		}
		transport.TLSClientConfig.RootCAs = pool
	}
	return &http.Client{
		Transport:     limitedTransport{transport},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

func readCA(s *issuerSettings) (*x509.CertPool, error) {
	text, err := os.ReadFile(s.CAFile)
	if err != nil {
		return nil, fmt.Errorf("ca-file of issuer %s: %w", s.Name, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("ca-file of issuer %s: %s contains no PEM certificate", s.Name, s.CAFile)
	}
	return pool, nil
}

// limitedTransport limits the size of responses.
type limitedTransport struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b limitedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		answer.Body = http.MaxBytesReader(nil, answer.Body, maxResponse)
	}
	return answer, err
}

// parseKeys returns the public signing keys in a key set. It ignores keys that it does not
// understand (RFC 7517, section 5).
func parseKeys(text []byte) ([]jose.JSONWebKey, error) {
	var set struct{ Keys []json.RawMessage }
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, fmt.Errorf("not a JSON Web Key Set: %w", err)
	}
	var keys []jose.JSONWebKey
	for _, text := range set.Keys {
		var key jose.JSONWebKey
		if err := key.UnmarshalJSON(text); err != nil || key.Use != "" && key.Use != "sig" {
			continue
		}
		switch key.Key.(type) {
		case *rsa.PublicKey, *ecdsa.PublicKey, ed25519.PublicKey:
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("the key set has no public signing key")
	}
	return keys, nil
}
