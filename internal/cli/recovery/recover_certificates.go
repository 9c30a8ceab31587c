package recovery

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"leasehold.dev/internal/cli/cluster"
)

// badCertificate is a certificate that is not valid now.
type badCertificate struct {
	Text       string // for display
	Address    string // of the listener that presented it
	File       string // or the file, if it is one of our own
	Flags      string // the member's flags that name its files
	Authority  bool
	SelfSigned bool
}

// lookAtCertificates returns the certificates that are not valid: those of all TLS ports of
// members, and those in our own files.
func (r *recovery) lookAtCertificates(s *cluster.State) []badCertificate {
	type port struct{ address, flags string }
	ports := make(map[port]bool)
	secure := r.spec.Secure.Cacert != "" || r.spec.Secure.Cert != ""
	for _, x := range s.Members {
		ep := x.Endpoint
		if strings.HasPrefix(x.URL, "https://") || x.URL == "" && secure {
			ports[port{ep, "--cert-file and --key-file"}] = true
		}
		for _, p := range x.Peers {
			if u, err := url.Parse(p); err == nil && u.Scheme == "https" {
				ports[port{u.Host, "--peer-cert-file and --peer-key-file"}] = true
			}
		}
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	out := r.ownCertificates()
	for p := range ports {
		wg.Go(func() {
			for _, c := range shownAt(p.address, r.Flags.DialTimeout) {
				if why := notValid(c, time.Now()); why != "" {
					mu.Lock()
					out = append(out, badCertificate{
						Text:    fmt.Sprintf("the certificate of %s %s", p.address, why),
						Address: p.address, Flags: p.flags, Authority: c.IsCA && !isSelfSigned(c),
						SelfSigned: isSelfSigned(c),
					})
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	slices.SortFunc(out, func(a, b badCertificate) int { return strings.Compare(a.Text, b.Text) })
	return out
}

// isSelfSigned reports whether c may be a certificate that a member generated.
func isSelfSigned(c *x509.Certificate) bool { return c.Issuer.String() == c.Subject.String() }

// notValid returns the reason why c is not valid at now, or "" if it is.
func notValid(c *x509.Certificate, now time.Time) string {
	day := func(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }
	switch {
	case now.After(c.NotAfter):
		return fmt.Sprintf("(%s) expired at %s", c.Subject, day(c.NotAfter))
	case now.Before(c.NotBefore):
		return fmt.Sprintf("(%s) is not valid before %s", c.Subject, day(c.NotBefore))
	}
	return ""
}

// shownAt returns the certificates that a listener presents. Nothing secret is sent to it, so it
// need not be trusted, and it may abort the handshake because it requires a client certificate.
func shownAt(address string, within time.Duration) (shown []*x509.Certificate) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil
	}
	defer conn.Close()
	_ = tls.Client(conn, &tls.Config{ // the error is in the certificates
		MinVersion: tls.VersionTLS12, InsecureSkipVerify: true,
		VerifyPeerCertificate: func(raw [][]byte, _ [][]*x509.Certificate) error {
			for _, der := range raw {
				if c, err := x509.ParseCertificate(der); err == nil {
					shown = append(shown, c)
				}
			}
			return nil
		},
	}).HandshakeContext(ctx)
	return shown
}

// ownCertificates checks the certificates in the files of our flags.
func (r *recovery) ownCertificates() (out []badCertificate) {
	for _, file := range []string{r.spec.Secure.Cert, r.spec.Secure.Cacert} {
		text, err := os.ReadFile(file)
		if file == "" || err != nil {
			continue // calls that need it report the error
		}
		valid := 0
		var bad []badCertificate
		for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
			c, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				continue
			}
			why := notValid(c, time.Now())
			if why == "" {
				valid++
				continue
			}
			bad = append(bad, badCertificate{
				Text: fmt.Sprintf("the certificate in %s %s", file, why), File: file, Authority: c.IsCA,
			})
		}
		if file == r.spec.Secure.Cert || valid == 0 { // an old authority may stay with a new one
			out = append(out, bad...)
		}
	}
	return out
}
