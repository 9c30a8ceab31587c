package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/store"
	"leasehold.dev/test/certs"
	"leasehold.dev/test/harness"
	"leasehold.dev/test/tier"
)

// rotated holds the files of a member and its clients, which are replaced while they run.
type rotated struct {
	t   *testing.T
	dir string

	mu      sync.Mutex // guards the following fields, which clients use and expect
	trusted *x509.CertPool
	own     tls.Certificate
	member  *x509.Certificate
}

// replace writes a file as certificate renewal tools do: completely, under a temporary name first.
func (r *rotated) replace(name, from string) {
	r.t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		r.t.Fatal(err)
	}
	path := filepath.Join(r.dir, name)
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		r.t.Fatal(err)
	}
}

// trust makes the member and its clients trust the given authorities.
func (r *rotated) trust(list ...*certs.Authority) {
	r.t.Helper()
	var all []byte
	pool := x509.NewCertPool()
	for _, a := range list {
		pool.AddCert(a.Cert)
		all = append(all, pem.EncodeToMemory(
			&pem.Block{Type: "CERTIFICATE", Bytes: a.Cert.Raw})...)
	}
	file := filepath.Join(r.t.TempDir(), "all.pem")
	if err := os.WriteFile(file, all, 0o600); err != nil {
		r.t.Fatal(err)
	}
	r.replace("ca.pem", file)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trusted = pool
}

// issue issues certificates from an authority to the member and its clients. For a moment, the
// member's key does not match its certificate.
func (r *rotated) issue(a *certs.Authority) {
	r.t.Helper()
	member := a.Issue("member")
	r.replace("member.pem", a.Path("member.pem"))
	r.replace("member.key", a.Path("member.key"))
	own := a.Issue("client")
	r.mu.Lock()
	defer r.mu.Unlock()
	r.own, r.member = own, member.Leaf
}

// config returns the configuration of a client that uses the current certificates.
func (r *rotated) config() *tls.Config {
	return &tls.Config{
		// VerifyConnection verifies against the currently trusted authorities
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			if !s.PeerCertificates[0].Equal(r.member) {
				return errors.New("the member shows an old certificate")
			}
			_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{
				Roots: r.trusted, DNSName: "localhost",
			})
			return err
		},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			own := r.own
			return &own, nil
		},
	}
}

// TestRotations checks that certificates and CAs can be replaced without dropping sessions. During
// a hundred rotations under load, with a new CA every tenth time, open sessions lose neither a
// lease nor a write. A new client connects after each rotation.
func TestRotations(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	const rotations, clients = 100, 4
	r := &rotated{t: t, dir: t.TempDir()}
	now := certs.New(t)
	r.trust(now)
	r.issue(now)
	m := newMember(t, "--cert-file", filepath.Join(r.dir, "member.pem"),
		"--key-file", filepath.Join(r.dir, "member.key"),
		"--trusted-ca-file", filepath.Join(r.dir, "ca.pem"), "--client-cert-auth")
	secure := strings.Replace(m.url, "http://", "https://", 1)
	for i, a := range m.args {
		if a == m.url {
			m.args[i] = secure
		}
	}
	m.launch()
	connect := func() *client.Client {
		c, err := client.New(client.Config{
			Endpoints: []string{secure}, TLS: r.config(),
			// The client must not leave a member that is slow because the machine is busy.
			Silence: patience,
		})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	ctx := t.Context()
	loaded, end := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer end()
	var writes atomic.Int64
	var leases []*client.Lease
	var sessions []*client.Client
	for i := range clients {
		c := connect()
		defer c.Close()
		l, err := c.Grant(ctx, client.Grant{TTL: patience}) // allow slow renewals too
		if err != nil {
			t.Fatal(err, m.Tail())
		}
		leases, sessions = append(leases, l), append(sessions, c)
		all.Go(func() {
			for loaded.Err() == nil {
				_, err := c.Put(loaded, store.Put{Key: fmt.Sprint("k", i), Lease: l.ID()})
				if err != nil && loaded.Err() == nil {
					t.Errorf("client %d: %v", i, err)
					return
				}
				writes.Add(1)
			}
		})
	}
	for i := range rotations {
		if i%10 == 9 {
			next := certs.New(t)
			r.trust(now, next)
			r.issue(next)
			r.trust(next)
			now = next
		} else {
			r.issue(now)
		}
		c := connect()
		soon, cancel := context.WithTimeout(ctx, patience)
		_, err := c.Put(soon, store.Put{Key: "new"})
		cancel()
		if err != nil {
			t.Fatalf("after rotation %d a new client fails: %v", i, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		before := writes.Load()
		harness.Eventually(t, "a write of those that were connected", func() error {
			if writes.Load() == before {
				return fmt.Errorf("none since rotation %d", i)
			}
			return nil
		})
	}
	end()
	all.Wait()
	for i, c := range sessions {
		if n := c.Metrics(); n.Connects != 1 || n.Disconnects != 0 || n.Lost+n.Expired != 0 {
			t.Errorf("client %d: %+v", i, n)
		}
		if err := leases[i].Err(); err != nil {
			t.Errorf("lease %d: %v", i, err)
		}
	}
	// A certificate from an authority that is no longer trusted is rejected.
	r.mu.Lock()
	r.own = certs.New(t).Issue("client")
	r.mu.Unlock()
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	c := connect()
	defer c.Close()
	if _, err := c.Put(short, store.Put{Key: "new"}); err == nil {
		t.Error("a client of a stranger is let in")
	}
}
