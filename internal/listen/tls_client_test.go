package listen

import (
	"crypto/tls"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"leasehold.dev/test/certs"
)

// dial performs a handshake between two ends at host. It returns the common names that each end
// saw, or the dialer's error joined with the listener's.
func dial(t *testing.T, host string, server, client TLS) (names [2]string, err error) {
	t.Helper()
	sc, err := server.Server()
	if err != nil {
		t.Fatal(err)
	}
	cc, err := client.Client()
	if err != nil {
		t.Fatal(err)
	}
	p := meet(t, sc, cc, host)
	if err = errors.Join(p.client, p.server); err != nil {
		return names, err
	}
	return p.names, nil
}

// TestClientVerifies checks that both ends of a connection between members verify each other
// against the same files and lists. Each row is one handshake.
func TestClientVerifies(t *testing.T) {
	a, stranger := certs.New(t), certs.New(t)
	ca := a.Path("ca.pem")
	one := serverOf(a) // server.pem, common name "server"
	one.TrustedCAFile = ca
	a.Issue("dialer")
	revoked := a.Revoke("crl.pem", a.Issue("gone"))
	gone := TLS{CertFile: a.Path("gone.pem"), KeyFile: a.Path("gone.key"), TrustedCAFile: ca}
	liar := serverOf(stranger)
	liar.TrustedCAFile = ca
	with := func(change func(*TLS)) TLS {
		c := one
		change(&c)
		return c
	}
	for name, c := range map[string]struct {
		host           string
		server, client TLS
		want           string // part of the error; "" means no error
		seen           string // the common name seen by the listener
	}{
		"same certificate": {"localhost", one, one, "", "server"},
		"own certificate to dial with": {"localhost", one, with(func(c *TLS) {
			c.ClientCertFile, c.ClientKeyFile = a.Path("dialer.pem"), a.Path("dialer.key")
		}), "", "dialer"},
		"by address":             {"127.0.0.1", one, one, "", "server"},
		"another host":           {"elsewhere.example", one, one, "not elsewhere.example", ""},
		"another address":        {"127.0.0.2", one, one, "127.0.0.2", ""},
		"listener of a stranger": {"localhost", liar, one, "unknown authority", ""},
		"dialer of a stranger":   {"localhost", one, liar, "unknown authority", ""},
		"system's authorities": {"localhost", one, with(func(c *TLS) {
			c.TrustedCAFile = ""
		}), "unknown authority", ""},
		"allowed name": {"localhost", one, with(func(c *TLS) {
			c.AllowedCNs = []string{"x", "server"}
		}), "", "server"},
		"other name": {"localhost", one, with(func(c *TLS) {
			c.AllowedCNs = []string{"x"}
		}), `common name "server" is not allowed`, ""},
		"other host name": {"localhost", one, with(func(c *TLS) {
			c.AllowedHostnames = []string{"x.example"}
		}), "contains no allowed host", ""},
		"revoked listener": {"localhost", gone, with(func(c *TLS) {
			c.CRLFile = revoked
		}), "is revoked", ""},
		"no certificate to show": {"localhost", one, TLS{TrustedCAFile: ca}, "certificate", ""},
	} {
		names, err := dial(t, c.host, c.server, c.client)
		if c.want == "" && (err != nil || names[0] != c.seen) {
			t.Errorf("%s: the listener saw %q, %v, want %q", name, names[0], err, c.seen)
		}
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: error %v, want one with %q", name, err, c.want)
		}
	}
}

// TestClientSelfSigned checks that members with self-signed certificates accept each other without
// verification. Certificates named in the settings are verified even with Auto.
func TestClientSelfSigned(t *testing.T) {
	made := func(t *testing.T) TLS {
		opts, err := TLS{Auto: true}.SelfSigned(filepath.Join(t.TempDir(), "f"), nil)
		if err != nil {
			t.Fatal(err)
		}
		return opts
	}
	one, two := made(t), made(t)
	if _, err := dial(t, "10.0.0.1", one, two); err != nil {
		t.Error(err)
	}
	named := serverOf(certs.New(t))
	named.Auto = true
	named, err := named.SelfSigned(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dial(t, "localhost", one, named); err == nil {
		t.Error("a self-signed listener was believed by one with a real certificate")
	}
}

// TestClientRotation checks that a dialer's certificate can be replaced without a restart.
func TestClientRotation(t *testing.T) {
	a := certs.New(t)
	opts := serverOf(a)
	opts.TrustedCAFile = a.Path("ca.pem")
	sc, err := opts.Server()
	if err != nil {
		t.Fatal(err)
	}
	cc, err := opts.Client()
	if err != nil {
		t.Fatal(err)
	}
	if got := meet(t, sc, cc, "localhost"); got.names != [2]string{"server", "server"} {
		t.Errorf("before: %+v", got)
	}
	a.Issue("server", named("renewed"))
	if got := meet(t, sc, cc, "localhost"); got.names != [2]string{"renewed", "renewed"} {
		t.Errorf("after: %+v", got)
	}
}

// TestClientErrors checks that a dialer's invalid settings and files are reported at startup.
func TestClientErrors(t *testing.T) {
	a := certs.New(t)
	good := serverOf(a)
	for want, change := range map[string]func(*TLS){
		"needs a client key file": func(c *TLS) { c.ClientCertFile = c.CertFile },
		"missing.pem": func(c *TLS) {
			c.ClientCertFile, c.ClientKeyFile = a.Path("missing.pem"), c.KeyFile
		},
		"missing-ca.pem": func(c *TLS) { c.TrustedCAFile = a.Path("missing-ca.pem") },
		"missing-crl": func(c *TLS) {
			c.ClientCertAuth, c.CRLFile = true, "missing-crl"
		},
		"unknown cipher suite": func(c *TLS) { c.CipherSuites = []string{"ROT13"} },
	} {
		c := good
		change(&c)
		if _, err := c.Client(); !errors.Is(err, errTLS) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
	if conf, err := (TLS{}).Client(); err != nil || conf.GetClientCertificate != nil {
		t.Errorf("nothing to show: %v", err)
	}
}

// ends is the outcome of a handshake.
type ends struct {
	client, server error
	names          [2]string // the names seen by the listener and by the dialer
}

// meet performs a handshake over a loopback connection, followed by one byte from the listener. In
// TLS 1.3, only then does the dialer learn whether the listener accepted it.
func meet(t *testing.T, server, client *tls.Config, host string) (e ends) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := l.Accept()
		if err != nil {
			e.server = err
			return
		}
		defer conn.Close()
		if e.server = conn.(*tls.Conn).Handshake(); e.server != nil {
			return
		}
		if certs := conn.(*tls.Conn).ConnectionState().PeerCertificates; len(certs) > 0 {
			e.names[0] = certs[0].Subject.CommonName
		}
		_, e.server = conn.Write([]byte{1})
	}()
	client = client.Clone()
	client.ServerName = host
	conn, err := tls.Dial("tcp", l.Addr().String(), client)
	if err == nil {
		_, err = conn.Read(make([]byte, 1))
		e.names[1] = conn.ConnectionState().PeerCertificates[0].Subject.CommonName
		_ = conn.Close()
	}
	<-done
	e.client = err
	return e
}
