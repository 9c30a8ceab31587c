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
	// fetchTimeout is for the discovery document and the keys.
	fetchTimeout = 10 * time.Second
	// fetchInterval and fetchBurst bound how often an issuer is asked, whatever tokens callers show.
	fetchInterval = 10 * time.Second
	fetchBurst    = 3
	// retryInterval is how soon an issuer is asked again that did not answer well.
	retryInterval = 15 * time.Second
	// maxResponse bounds what an issuer may answer.
	maxResponse = 1 << 20
)

// keySet is the public keys of an issuer.
type keySet struct {
	from  *issuerSettings
	log   *slog.Logger
	ctx   context.Context // ends with the member
	group *sync.WaitGroup // of fetches
	limit *rate.Limiter
	dial  func(ctx context.Context, network, addr string) (net.Conn, error) // nil: the machine's

	mu       sync.Mutex // guards what follows
	keys     []jose.JSONWebKey
	text     string        // they were read from it
	next     time.Time     // when they are to be fetched again
	fetching chan struct{} // nil unless they are just being fetched
	failed   string        // why they could not be had the last time
}

// find returns the keys that a token with a kid may be signed with, by an algorithm. If there is
// none it asks the issuer, if that may be asked again, and waits for the answer.
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

// lookupLocked returns the keys that are known, and whether the issuer needs not be asked for others.
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

// due reports whether the keys are to be fetched again.
func (k *keySet) due(now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.from.KeysFile == "" && !now.Before(k.next)
}

// fetch begins to fetch the keys, unless that is under way or comes too soon. It returns what is
// closed in the end, nil if nothing is under way.
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

// take takes what was read, or notes why there is nothing. Then the keys stay as they were.
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
			k.log.Warn("cannot fetch the keys of an issuer; the previous ones stay in force",
				"issuer", k.from.Name, "keys", len(k.keys), "error", why)
		}
		return
	}
	k.next, k.failed = time.Now().Add(k.from.Refresh), ""
	if string(text) != k.text {
		k.keys, k.text = keys, string(text)
		k.log.Info("the keys of an issuer have changed", "issuer", k.from.Name, "keys", len(keys))
	}
}

// truncate bounds a text that somebody else has written a part of.
func truncate(text string) string { return text[:min(len(text), 300)] }

// readFile takes the keys from their file.
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

// download reads the keys from where the settings say, or the issuer.
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
		return nil, fmt.Errorf("%s answers %s", from, answer.Status)
	}
	return io.ReadAll(answer.Body)
}

// client returns what asks the issuer. It follows nobody elsewhere: that could be one without TLS.
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
		return nil, fmt.Errorf("ca-file of issuer %s: %s holds no PEM certificate", s.Name, s.CAFile)
	}
	return pool, nil
}

// bounded bounds the answers of an http.RoundTripper.
type limitedTransport struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b limitedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		answer.Body = http.MaxBytesReader(nil, answer.Body, maxResponse)
	}
	return answer, err
}

// parseKeys returns the public keys of a set that are for signatures. It ignores keys that it does
// not understand (RFC 7517, section 5).
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
		return nil, errors.New("there is no public key for signatures in the key set")
	}
	return keys, nil
}
