package listen

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"leasehold.dev/internal/fault"
	"leasehold.dev/test/certs"
	"leasehold.dev/test/tier"
)

// lines is a log that a test can read line by line.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	select {
	case l <- string(p):
	default:
	}
	return len(p), nil
}

// TestRefusedHandshakes checks that both the member's log and the client's error explain why a
// connection was refused. The client's error is never just a broken connection. Each case is
// repeated because a reset may overtake the reason.
func TestRefusedHandshakes(t *testing.T) {
	tier.RealTime(t) // the server keeps reading a refused connection for a second
	a, stranger := certs.New(t), certs.New(t)
	good := serverOf(a)
	good.TrustedCAFile = a.Path("ca.pem")
	forServers := a.Issue("for-servers", func(c *x509.Certificate) {
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	})
	a.Issue("half")
	half := good
	half.CertFile, half.KeyFile = a.Path("half.pem"), a.Path("half.key")
	for name, c := range map[string]struct {
		opts   TLS
		client credentials.TransportCredentials
		answer string // part of the client's error
		logged string
		spoil  func() error
	}{
		"no certificate": {
			good, credentials.NewTLS(a.Client()), "certificate required",
			"didn't provide a certificate", nil,
		},
		"another authority": {
			good, credentials.NewTLS(a.Client(stranger.Issue("x"))),
			"unknown certificate authority", "unknown authority", nil,
		},
		"wrong usage": {
			good, credentials.NewTLS(a.Client(forServers)), "bad certificate",
			"incompatible key usage", nil,
		},
		"no TLS": {
			good, insecure.NewCredentials(), "looked like an HTTP/1.1 header",
			"does not look like a TLS handshake", nil,
		},
		"half a file": {
			half, credentials.NewTLS(a.Client()), "internal error", "half.pem",
			func() error { return os.Truncate(a.Path("half.pem"), 100) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			conf, err := c.opts.Server()
			if err != nil {
				t.Fatal(err)
			}
			if c.spoil != nil {
				if err := c.spoil(); err != nil {
					t.Fatal(err)
				}
			}
			log := make(lines, 1)
			p := openLogging(t, conf, slog.New(slog.NewTextHandler(log, nil)))
			for range 20 {
				if _, err := p.call(t, c.client); err == nil || !strings.Contains(err.Error(), c.answer) {
					t.Fatalf("the client is told: %v, want %q", err, c.answer)
				}
			}
			if line := <-log; !strings.Contains(line, c.logged) || !strings.Contains(line, "WARN") {
				t.Errorf("the log says %q, want %q", line, c.logged)
			}
		})
	}
}

// TestTLSHints checks that a client that uses TLS on a plain port, or the reverse, gets an error
// that explains what to change.
func TestTLSHints(t *testing.T) {
	a := certs.New(t)
	conf, err := serverOf(a).Server()
	if err != nil {
		t.Fatal(err)
	}
	for want, x := range map[string]struct {
		port   *tls.Config
		client credentials.TransportCredentials
	}{
		" use https://)": {conf, insecure.NewCredentials()},
		" use http://)":  {nil, credentials.NewTLS(a.Client())},
	} {
		_, err := openLogging(t, x.port, slog.New(slog.DiscardHandler)).call(t, x.client)
		if err == nil || !strings.HasSuffix(fault.TLSHint(err.Error()), want) {
			t.Errorf("of %v the hint is %q, want one with %q", err, fault.TLSHint(err.Error()), want)
		}
	}
	if got := fault.TLSHint("connection refused"); got != "" {
		t.Errorf("a hint %q where there is nothing to hint", got)
	}
}

// TestRefusalsAreBounded checks that refusals do not flood the log, which records how many it
// omitted.
func TestRefusalsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := newRefusals(slog.New(slog.NewTextHandler(&log, nil)))
		c, _ := net.Pipe()
		for range 100 {
			r.warn(c, errors.New("no"))
		}
		time.Sleep(refusalPause)
		r.warn(c, errors.New("no"))
		if got := log.String(); strings.Count(got, "\n") != 2 ||
			!strings.Contains(got, "refused-before-it=99") {
			t.Errorf("the log says %s", got)
		}
	})
}

// TestTrustedCARotation checks that listeners and dialers reload their CA file without a restart. A
// client whose certificate is no longer trusted cannot resume an earlier session.
func TestTrustedCARotation(t *testing.T) {
	before, after := certs.New(t), certs.New(t)
	ca := before.Write("trusted.pem", "CERTIFICATE", before.Cert.Raw)
	opts := serverOf(before)
	opts.TrustedCAFile = ca
	old := before.Client(before.Issue("old"))
	old.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	conf, err := opts.Server()
	if err != nil {
		t.Fatal(err)
	}
	dialer, err := TLS{TrustedCAFile: ca}.Client()
	if err != nil {
		t.Fatal(err)
	}
	p := open(t, conf)
	if who, err := p.call(t, credentials.NewTLS(old)); err != nil || who != "old" {
		t.Fatalf("before: %q, %v", who, err)
	}
	if err := os.Rename(after.Path("ca.pem"), ca); err != nil {
		t.Fatal(err)
	}
	if who, err := p.call(t, credentials.NewTLS(old)); err == nil {
		t.Errorf("after: %q is let in", who)
	}
	young := before.Client(after.Issue("new"))
	if who, err := p.call(t, credentials.NewTLS(young)); who != "new" {
		t.Errorf("after: %q, %v", who, err)
	}
	for name, c := range map[string]struct {
		opts TLS
		ok   bool
	}{"old": {serverOf(before), false}, "new": {serverOf(after), true}} {
		sc, err := c.opts.Server()
		if err != nil {
			t.Fatal(err)
		}
		fresh, err := Fresh(dialer)
		if err != nil {
			t.Fatal(err)
		}
		if got := meet(t, sc, fresh, "localhost"); (got.client == nil) != c.ok {
			t.Errorf("a dialer meets a listener with a certificate of the %s authority: %v",
				name, got.client)
		}
	}
}
