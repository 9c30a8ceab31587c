package listen

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	pb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"leasehold.dev/test/certs"
)

// serverOf returns the options of a server whose certificate is signed by a.
func serverOf(a *certs.Authority) TLS {
	a.Issue("server")
	return TLS{CertFile: a.Path("server.pem"), KeyFile: a.Path("server.key")}
}

// named changes the common name of a certificate.
func named(name string) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.Subject.CommonName = name }
}

// port is a served port. It has gRPC health checks and an HTTP page that shows the protocol used.
type port struct {
	addr string
	cn   chan string // common name of each gRPC caller's certificate, or "plain"
}

func open(t *testing.T, conf *tls.Config) *port {
	t.Helper()
	return openLogging(t, conf, nil)
}

func openLogging(t *testing.T, conf *tls.Config, log *slog.Logger) *port {
	t.Helper()
	p := &port{cn: make(chan string, 16)}
	gs := grpc.NewServer(grpc.Creds(Credentials(nil, nil)), grpc.UnaryInterceptor(p.note))
	pb.RegisterHealthServer(gs, health.NewServer())
	hs := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
			w.Header().Set("X-Way", " by net/http")
			gs.ServeHTTP(w, r)
			return
		}
		_, _ = io.WriteString(w, r.Proto)
	})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.addr = l.Addr().String()
	m := NewMux(MuxOptions{Logger: log})
	done := make(chan error, 3)
	go func() { done <- m.Serve(l, conf) }()
	go func() { done <- gs.Serve(m.GRPC()) }()
	go func() { done <- hs.Serve(m.HTTP()) }()
	t.Cleanup(func() {
		gs.Stop()
		_ = hs.Close()
		_ = m.Close()
		for range cap(done) {
			if err := <-done; err != nil && !errors.Is(err, http.ErrServerClosed) &&
				!errors.Is(err, net.ErrClosed) {
				t.Errorf("server: %v", err)
			}
		}
	})
	return p
}

func (p *port) note(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (any, error) {
	who := "plain"
	if from, ok := peer.FromContext(ctx); ok {
		if info, ok := from.AuthInfo.(credentials.TLSInfo); ok {
			who = "nobody"
			if certs := info.State.PeerCertificates; len(certs) > 0 {
				who = certs[0].Subject.CommonName
			}
		}
	}
	p.cn <- who
	return next(ctx, req)
}

// call makes a gRPC call and returns the caller's name as seen by the server. If the call did not
// go through gRPC's own server, the transport is appended.
func (p *port) call(t *testing.T, creds credentials.TransportCredentials) (string, error) {
	t.Helper()
	conn, err := grpc.NewClient(p.addr, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var header metadata.MD
	_, err = pb.NewHealthClient(conn).Check(t.Context(), &pb.HealthCheckRequest{},
		grpc.Header(&header))
	if err != nil {
		return "", err
	}
	return <-p.cn + strings.Join(header.Get("x-way"), ""), nil
}

// get fetches the page and returns the protocol that was used.
func (p *port) get(t *testing.T, scheme string, tr *http.Transport) (string, error) {
	t.Helper()
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Get(scheme + "://" + p.addr + "/")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// TestTLSPort checks that a single TLS port serves gRPC clients, including those that offer
// HTTP/1.1, and HTTP clients of both versions. Interceptors see client certificates in both cases.
func TestTLSPort(t *testing.T) {
	a := certs.New(t)
	opts := serverOf(a)
	opts.TrustedCAFile = a.Path("ca.pem")
	conf, err := opts.Server()
	if err != nil {
		t.Fatal(err)
	}
	p := open(t, conf)
	alice := a.Issue("alice")

	if who, err := p.call(t, credentials.NewTLS(a.Client(alice))); err != nil || who != "alice" {
		t.Errorf("gRPC that offers h2: %q, %v", who, err)
	}
	both := a.Client(alice)
	both.NextProtos = []string{"h2", "http/1.1"}
	if who, err := p.call(t, credentials.NewTLS(both)); err != nil || who != "alice by net/http" {
		t.Errorf("gRPC that offers h2 and http/1.1: %q, %v", who, err)
	}
	for want, tr := range map[string]*http.Transport{
		"HTTP/2.0": {TLSClientConfig: a.Client(alice), ForceAttemptHTTP2: true},
		"HTTP/1.1": {TLSClientConfig: a.Client(alice)},
	} {
		if proto, err := p.get(t, "https", tr); err != nil || proto != want {
			t.Errorf("page: %q, %v, want %s", proto, err, want)
		}
	}
	if _, err := p.call(t, credentials.NewTLS(a.Client())); err == nil {
		t.Error("a client without a certificate was let in")
	}
	if _, err := p.call(t, insecure.NewCredentials()); err == nil {
		t.Error("a plain client was let in")
	}
}

// TestClientCertificates checks that clients are accepted according to the files and revocation
// lists. Each row is one handshake.
func TestClientCertificates(t *testing.T) {
	a := certs.New(t)
	base := serverOf(a)
	alice, bob := a.Issue("alice"), a.Issue("bob")
	other := certs.New(t)
	mallory := other.Issue("mallory", named("alice"))
	ca := a.Path("ca.pem")
	crl := a.Revoke("crl.pem", bob)
	onlyAlice, bobsHost := []string{"x", "alice"}, []string{"bob.example"}
	for name, c := range map[string]struct {
		opts TLS
		cert *tls.Certificate
		ok   bool
	}{
		"nobody asks":         {TLS{}, nil, true},
		"CA alone asks":       {TLS{TrustedCAFile: ca}, nil, false},
		"signed":              {TLS{TrustedCAFile: ca}, &alice, true},
		"signed by another":   {TLS{TrustedCAFile: ca}, &mallory, false},
		"auth without CA":     {TLS{ClientCertAuth: true}, &alice, false},
		"not revoked":         {TLS{TrustedCAFile: ca, CRLFile: crl}, &alice, true},
		"revoked":             {TLS{TrustedCAFile: ca, CRLFile: crl}, &bob, false},
		"allowed common name": {TLS{TrustedCAFile: ca, AllowedCNs: onlyAlice}, &alice, true},
		"other common name":   {TLS{TrustedCAFile: ca, AllowedCNs: onlyAlice}, &bob, false},
		"allowed host":        {TLS{TrustedCAFile: ca, AllowedHostnames: bobsHost}, &bob, true},
		"other host":          {TLS{TrustedCAFile: ca, AllowedHostnames: bobsHost}, &alice, false},
		"allowed, unsigned":   {TLS{TrustedCAFile: ca, AllowedCNs: onlyAlice}, &mallory, false},
	} {
		c.opts.CertFile, c.opts.KeyFile = base.CertFile, base.KeyFile
		conf, err := c.opts.Server()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		client := a.Client()
		if c.cert != nil {
			client.Certificates = []tls.Certificate{*c.cert}
		}
		if _, err := handshake(t, conf, client); (err == nil) != c.ok {
			t.Errorf("%s: %v, want ok %t", name, err, c.ok)
		}
	}
}

// handshake performs a handshake and returns the server's certificate and the server's error.
func handshake(t *testing.T, server, client *tls.Config) (*x509.Certificate, error) {
	t.Helper()
	client = client.Clone()
	client.ServerName = "localhost"
	cc, sc := net.Pipe()
	defer cc.Close()
	defer sc.Close()
	tc := tls.Client(cc, client)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = tc.Read(make([]byte, 1)) // performs the handshake and reads alerts
	}()
	ts := tls.Server(sc, server)
	err := ts.HandshakeContext(t.Context())
	_ = ts.Close()
	_ = sc.Close()
	<-done
	certs := tc.ConnectionState().PeerCertificates
	if len(certs) == 0 {
		return nil, err
	}
	return certs[0], err
}

// TestSelfSigned checks that --auto-tls keeps its certificate across a restart and replaces an
// expired one.
func TestSelfSigned(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "fixtures")
	make1 := func() *x509.Certificate {
		opts, err := TLS{Auto: true}.SelfSigned(dir, []string{"10.1.2.3:2379", "host.example"})
		if err != nil {
			t.Fatal(err)
		}
		conf, err := opts.Server()
		if err != nil {
			t.Fatal(err)
		}
		cert, err := handshake(t, conf, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		return cert
	}
	first := make1()
	for _, host := range []string{"10.1.2.3", "host.example", "localhost", "127.0.0.1", "::1"} {
		if err := first.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
	if again := make1(); again.SerialNumber.Cmp(first.SerialNumber) != 0 {
		t.Error("a restart made another certificate")
	}
	expired := certs.New(t, func(c *x509.Certificate) {
		c.Subject.CommonName, c.NotAfter = "old", time.Now().Add(-time.Minute)
	})
	expired.Dir = dir
	expired.Write("cert.pem", "CERTIFICATE", expired.Cert.Raw)
	if again := make1(); again.Subject.CommonName == "old" || !time.Now().Before(again.NotAfter) {
		t.Error("the expired certificate was kept")
	}
	info, err := os.Stat(filepath.Join(dir, "key.pem"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("key file: %v, %v", info, err)
	}
}

// TestTLSErrors checks that an invalid setting or file is reported by name at startup.
func TestTLSErrors(t *testing.T) {
	a := certs.New(t)
	good := serverOf(a)
	with := func(change func(*TLS)) TLS {
		c := good
		change(&c)
		return c
	}
	empty := a.Write("empty.pem", "NOTHING", nil)
	for want, opts := range map[string]TLS{
		"no certificate":   {},
		"needs a key file": with(func(c *TLS) { c.KeyFile = "" }),
		"and vice versa":   with(func(c *TLS) { c.CertFile = "" }),
		"missing.pem":      with(func(c *TLS) { c.CertFile = a.Path("missing.pem") }),
		"private key does not": with(func(c *TLS) {
			a.Issue("x")
			c.KeyFile = a.Path("x.key")
		}),
		"missing-ca.pem":  with(func(c *TLS) { c.TrustedCAFile = a.Path("missing-ca.pem") }),
		"contains no PEM": with(func(c *TLS) { c.TrustedCAFile = empty }),
		"missing-crl": with(func(c *TLS) {
			c.ClientCertAuth, c.CRLFile = true, "missing-crl"
		}),
		"revocation list":        with(func(c *TLS) { c.ClientCertAuth, c.CRLFile = true, empty }),
		"unknown cipher suite":   with(func(c *TLS) { c.CipherSuites = []string{"ROT13"} }),
		`"TLS1.4" is not one of`: with(func(c *TLS) { c.MaxVersion = "TLS1.4" }),
		"is above maximum": with(func(c *TLS) {
			c.MinVersion, c.MaxVersion = "TLS1.3", "TLS1.2"
		}),
		"need client certificates": with(func(c *TLS) { c.AllowedCNs = []string{"x"} }),
		"only TLS1.3": with(func(c *TLS) {
			c.MinVersion, c.CipherSuites = "TLS1.3", []string{tls.CipherSuites()[0].Name}
		}),
	} {
		_, err := opts.Server()
		if !errors.Is(err, errTLS) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

// TestTLSVersions checks that the configured versions and cipher suites take effect, including
// suites with etcd's old names.
func TestTLSVersions(t *testing.T) {
	a := certs.New(t)
	opts := serverOf(a)
	opts.MaxVersion = "TLS1.2"
	opts.CipherSuites = []string{
		"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
	}
	conf, err := opts.Server()
	if err != nil {
		t.Fatal(err)
	}
	if conf.CipherSuites[0] != tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 {
		t.Errorf("suites %x", conf.CipherSuites)
	}
	client := a.Client()
	client.MinVersion = tls.VersionTLS13
	if _, err := handshake(t, conf, client); err == nil {
		t.Error("a TLS 1.3 client was let in")
	}
	client.MinVersion = tls.VersionTLS12
	if _, err := handshake(t, conf, client); err != nil {
		t.Error(err)
	}
}

// TestOldTLSIsRefused checks that TLS 1.1 is rejected regardless of the flags.
func TestOldTLSIsRefused(t *testing.T) {
	a := certs.New(t)
	conf, err := serverOf(a).Server()
	if err != nil {
		t.Fatal(err)
	}
	client := a.Client()
	client.MinVersion, client.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	if _, err := handshake(t, conf, client); err == nil {
		t.Error("a client of TLS 1.1 was let in")
	}
}
