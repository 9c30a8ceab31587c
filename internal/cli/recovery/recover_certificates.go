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

// badCertificate is one that is not valid now.
type badCertificate struct {
	Text       string // for people
	Address    string // where it was shown
	File       string // or where it is, if it is one of ours
	Flags      string // of the member, that name its files
	Authority  bool
	SelfSigned bool
}

// lookAtCertificates returns those that are not valid: of all ports of members that speak TLS, and
// of our own files.
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

// isSelfSigned reports whether a certificate may be one that a member has made itself.
func isSelfSigned(c *x509.Certificate) bool { return c.Issuer.String() == c.Subject.String() }

// notValid says why a certificate is not valid at a time; empty if it is.
func notValid(c *x509.Certificate, now time.Time) string {
	day := func(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }
	switch {
	case now.After(c.NotAfter):
		return fmt.Sprintf("(%s) has expired at %s", c.Subject, day(c.NotAfter))
	case now.Before(c.NotBefore):
		return fmt.Sprintf("(%s) is not valid before %s", c.Subject, day(c.NotBefore))
	}
	return ""
}

// shownAt returns the certificates that a listener shows. Nothing is told to it, so it need not be
// trusted; and it may end the handshake for want of a certificate of ours.
func shownAt(address string, within time.Duration) (shown []*x509.Certificate) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil
	}
	defer conn.Close()
	_ = tls.Client(conn, &tls.Config{ // what went wrong is in what was shown
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

// ownCertificates returns those of the files that our flags name.
func (r *recovery) ownCertificates() (out []badCertificate) {
	for _, file := range []string{r.spec.Secure.Cert, r.spec.Secure.Cacert} {
		text, err := os.ReadFile(file)
		if file == "" || err != nil {
			continue // the call that needs it says so
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
		if file == r.spec.Secure.Cert || valid == 0 { // an old authority may stay beside a new one
			out = append(out, bad...)
		}
	}
	return out
}
