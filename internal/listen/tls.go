package listen

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// errTLS is wrapped by every error about TLS files or settings.
var errTLS = errors.New("listen: bad TLS configuration")

// TLS configures how one end of a connection identifies itself, and which peers it trusts. Use
// [TLS.Server] for a listener, and [TLS.Client] for a member that dials another member. The zero
// value means no TLS.
type TLS struct {
	// CertFile and KeyFile are PEM files. Both are reread at each handshake, so certificates can be
	// replaced without a restart.
	CertFile string
	KeyFile  string
	// ClientCertFile and ClientKeyFile, if set, are used instead when a member dials. They are for
	// CAs that sign a separate certificate for each purpose.
	ClientCertFile string
	ClientKeyFile  string
	// TrustedCAFile is a PEM bundle that is reread at each handshake. If it or ClientCertAuth is
	// set, clients must present a certificate that verifies against the bundle. The default is the
	// system's bundle. The same bundle is used to verify the certificate of a dialed listener.
	TrustedCAFile  string
	ClientCertAuth bool
	// CRLFile contains one revocation list in DER, or any number of them in PEM. It is reread at
	// each handshake.
	CRLFile string
	// AllowedHostnames and AllowedCNs, if not empty, restrict which clients are accepted. A
	// certificate must match one of the host names (SAN) and have one of the common names. Between
	// members, this applies to a listener's certificate as well.
	AllowedHostnames []string
	AllowedCNs       []string
	// Auto creates a self-signed certificate if CertFile and KeyFile are empty.
	Auto bool
	// CipherSuites contains names as in RFC 8446 and package tls. They do not apply to TLS 1.3. By
	// default, Go chooses.
	CipherSuites []string
	// MinVersion and MaxVersion are "TLS1.2" or "TLS1.3". The default for MinVersion is TLS1.2, and
	// the default for MaxVersion is the newest version.
	MinVersion string
	MaxVersion string
	// SelfSignedYears is how many years a certificate created by Auto is valid. The default is 1.
	SelfSignedYears int

	// selfSigned is set if CertFile was created by SelfSigned, so that no CA can verify it.
	selfSigned bool
}

// Enabled reports whether t enables TLS.
func (t TLS) Enabled() bool { return t.CertFile != "" || t.KeyFile != "" || t.Auto }

// Asked reports whether t contains any setting that would be ignored without TLS.
func (t TLS) Asked() bool {
	return t.Enabled() || t.TrustedCAFile != "" || t.ClientCertAuth || t.ClientCertFile != "" ||
		t.CRLFile != "" || len(t.AllowedHostnames) > 0 || len(t.AllowedCNs) > 0
}

// Validate returns an error for the first setting that is unknown or contradicts another setting.
// It does not read files.
func (t TLS) Validate() error {
	if (t.CertFile == "") != (t.KeyFile == "") {
		return fmt.Errorf("%w: a certificate file needs a key file, and vice versa "+
			"(certificate %q, key %q)", errTLS, t.CertFile, t.KeyFile)
	}
	if (t.ClientCertFile == "") != (t.ClientKeyFile == "") {
		return fmt.Errorf("%w: a client certificate file needs a client key file, and vice versa "+
			"(certificate %q, key %q)", errTLS, t.ClientCertFile, t.ClientKeyFile)
	}
	checked := len(t.AllowedCNs) > 0 || len(t.AllowedHostnames) > 0 || t.CRLFile != ""
	if t.Enabled() && checked && t.TrustedCAFile == "" && !t.ClientCertAuth {
		// Without a trusted CA file or ClientCertAuth, clients would never be asked for the
		// certificate to check.
		return fmt.Errorf("%w: allowed names and revocation lists need client certificates; "+
			"set a trusted CA file", errTLS)
	}
	_, err := t.base()
	return err
}

// base returns the part of the configuration that does not depend on files.
func (t TLS) base() (*tls.Config, error) {
	low, err := version(t.MinVersion)
	if err != nil {
		return nil, err
	}
	low = max(low, tls.VersionTLS12)
	high, err := version(t.MaxVersion)
	if err != nil {
		return nil, err
	}
	if high != 0 && low > high {
		return nil, fmt.Errorf("%w: minimum version %s is above maximum version %s",
			errTLS, t.MinVersion, t.MaxVersion)
	}
	suites, err := cipherSuites(t.CipherSuites)
	if err != nil {
		return nil, err
	}
	if low == tls.VersionTLS13 && len(suites) > 0 {
		return nil, fmt.Errorf("%w: cipher suites cannot be chosen when only TLS1.3 is allowed",
			errTLS)
	}
	return &tls.Config{MinVersion: low, MaxVersion: high, CipherSuites: suites}, nil
}

// Server returns the configuration for a listener. It reads all files once, so that a wrong path is
// reported at startup and not at the first connection.
func (t TLS) Server() (*tls.Config, error) {
	if err := t.Validate(); err != nil {
		return nil, err
	}
	conf, err := t.base()
	if err != nil {
		return nil, err
	}
	if t.CertFile == "" {
		return nil, fmt.Errorf("%w: no certificate; set a certificate and a key file, "+
			"or enable a self-signed one", errTLS)
	}
	if _, err := keyPair(t.CertFile, t.KeyFile); err != nil {
		return nil, err
	}
	conf.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return keyPair(t.CertFile, t.KeyFile)
	}
	if t.TrustedCAFile == "" && !t.ClientCertAuth {
		return conf, nil
	}
	conf.ClientAuth = tls.RequireAndVerifyClientCert
	if t.TrustedCAFile != "" {
		if conf.ClientCAs, err = readPool(t.TrustedCAFile); err != nil {
			return nil, err
		}
		conf.GetConfigForClient = t.trusting(conf, func(c *tls.Config, p *x509.CertPool) {
			c.ClientCAs = p
		})
	}
	if t.CRLFile != "" {
		if _, err := readCRL(t.CRLFile); err != nil {
			return nil, err
		}
	}
	conf.VerifyConnection = t.verify
	return conf, nil
}

// trusting returns a function that copies conf with the current contents of TrustedCAFile.
func (t TLS) trusting(
	conf *tls.Config, set func(*tls.Config, *x509.CertPool),
) func(*tls.ClientHelloInfo) (*tls.Config, error) {
	return func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pool, err := readPool(t.TrustedCAFile)
		if err != nil {
			return nil, err
		}
		fresh := conf.Clone()
		set(fresh, pool)
		return fresh, nil
	}
}

func keyPair(cert, key string) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("%w: certificate %s with key %s: %w", errTLS, cert, key, err)
	}
	return &pair, nil
}

// verify runs after the certificate chain has been verified. Unlike VerifyPeerCertificate, it is
// also called for resumed sessions, because a certificate that has since been revoked must not be
// accepted.
func (t TLS) verify(state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return nil
	}
	leaf := state.PeerCertificates[0]
	if t.CRLFile != "" {
		revoked, err := readCRL(t.CRLFile)
		if err != nil {
			return err
		}
		for _, cert := range state.PeerCertificates {
			if _, bad := revoked[cert.SerialNumber.String()]; bad {
				return fmt.Errorf("listen: certificate %s is revoked", cert.SerialNumber)
			}
		}
	}
	if len(t.AllowedCNs) > 0 && !slices.Contains(t.AllowedCNs, leaf.Subject.CommonName) {
		return fmt.Errorf("listen: common name %q is not allowed", leaf.Subject.CommonName)
	}
	matches := func(host string) bool { return leaf.VerifyHostname(host) == nil }
	if len(t.AllowedHostnames) > 0 && !slices.ContainsFunc(t.AllowedHostnames, matches) {
		return fmt.Errorf("listen: the certificate of %q contains no allowed host",
			leaf.Subject.CommonName)
	}
	return nil
}

func readPool(file string) (*x509.CertPool, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%w: trusted CA: %w", errTLS, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%w: trusted CA: %s contains no PEM certificate", errTLS, file)
	}
	return pool, nil
}

// readCRL returns the serial numbers that the lists in file revoke.
func readCRL(file string) (map[string]struct{}, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%w: revocation list: %w", errTLS, err)
	}
	lists := [][]byte{data}
	if block, rest := pem.Decode(data); block != nil {
		lists = nil
		for ; block != nil; block, rest = pem.Decode(rest) {
			lists = append(lists, block.Bytes)
		}
		if len(bytes.TrimSpace(rest)) > 0 {
			return nil, fmt.Errorf("%w: revocation list %s: the data after list %d is not PEM",
				errTLS, file, len(lists))
		}
	}
	revoked := make(map[string]struct{})
	for _, der := range lists {
		list, err := x509.ParseRevocationList(der)
		if err != nil {
			return nil, fmt.Errorf("%w: revocation list %s: %w", errTLS, file, err)
		}
		for _, e := range list.RevokedCertificateEntries {
			revoked[e.SerialNumber.String()] = struct{}{}
		}
	}
	return revoked, nil
}

// version parses "TLS1.2" or "TLS1.3". For an empty string it returns 0, which lets Go choose.
func version(s string) (uint16, error) {
	switch s {
	case "":
		return 0, nil
	case "TLS1.2":
		return tls.VersionTLS12, nil
	case "TLS1.3":
		return tls.VersionTLS13, nil
	}
	return 0, fmt.Errorf("%w: version %q is not one of TLS1.2, TLS1.3", errTLS, s)
}

func cipherSuites(names []string) ([]uint16, error) {
	known := make(map[string]uint16)
	for _, s := range slices.Concat(tls.CipherSuites(), tls.InsecureCipherSuites()) {
		known[s.Name] = s.ID
		// Go, and therefore etcd, originally used these short names for the CHACHA20 suites.
		if short, ok := strings.CutSuffix(s.Name, "_POLY1305_SHA256"); ok {
			known[short+"_POLY1305"] = s.ID
		}
	}
	var ids []uint16
	for _, name := range names {
		id, ok := known[name]
		if !ok {
			return nil, fmt.Errorf("%w: unknown cipher suite %q; names look like %s",
				errTLS, name, tls.CipherSuites()[0].Name)
		}
		ids = append(ids, id)
	}
	return ids, nil
}
