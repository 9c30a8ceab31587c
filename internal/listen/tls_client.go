package listen

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"

	"google.golang.org/grpc/credentials"
)

// Client returns the configuration with which a member dials another member. It presents
// ClientCertFile or, if that is not set, CertFile, and rereads it at each handshake. It trusts a
// listener if three conditions hold: the certificate can be verified with the trusted CA file (by
// default, the system's CAs), it contains the dialed host name, and AllowedCNs, AllowedHostnames
// and CRLFile do not exclude it. All files are read once, so that a wrong path is reported at
// startup. See [Fresh] for how later connections reread the trusted CA file.
//
// If the certificate was created by [TLS.SelfSigned], the listener's certificate is not verified,
// because each member has signed its own certificate. The connection is encrypted, but vulnerable
// to a man in the middle, as with etcd's --peer-auto-tls.
func (t TLS) Client() (*tls.Config, error) {
	if err := t.Validate(); err != nil {
		return nil, err
	}
	conf, err := t.base()
	if err != nil {
		return nil, err
	}
	if err := t.showCertificate(conf); err != nil {
		return nil, err
	}
	if t.TrustedCAFile != "" {
		if conf.RootCAs, err = readPool(t.TrustedCAFile); err != nil {
			return nil, err
		}
		conf.GetConfigForClient = t.trusting(conf, func(c *tls.Config, p *x509.CertPool) {
			c.RootCAs = p
		})
	}
	if t.CRLFile != "" {
		if _, err := readCRL(t.CRLFile); err != nil {
			return nil, err
		}
	}
	conf.InsecureSkipVerify = t.selfSigned
	conf.VerifyConnection = t.verify
	return conf, nil
}

// Fresh returns the configuration for another connection of a client that dials with conf, which
// [TLS.Client] returned. It trusts the current contents of the trusted CA file. This is needed
// because package tls calls GetConfigForClient at each handshake of a listener, but never for a
// client.
func Fresh(conf *tls.Config) (*tls.Config, error) {
	if conf.GetConfigForClient == nil {
		return conf, nil
	}
	return conf.GetConfigForClient(nil)
}

// Reloading returns the credentials for a client that trusts the certificates in a file. The file
// is reread at each handshake, so it can be replaced.
func Reloading(conf *tls.Config, file string) credentials.TransportCredentials {
	return reloading{credentials.NewTLS(conf), conf, file}
}

type reloading struct {
	credentials.TransportCredentials
	conf *tls.Config
	file string
}

// ClientHandshake implements credentials.TransportCredentials.
func (r reloading) ClientHandshake(
	ctx context.Context, authority string, raw net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	pool, err := readPool(r.file)
	if err != nil {
		return nil, nil, err
	}
	fresh := r.conf.Clone()
	fresh.RootCAs = pool
	return credentials.NewTLS(fresh).ClientHandshake(ctx, authority, raw)
}

// Clone implements credentials.TransportCredentials.
func (r reloading) Clone() credentials.TransportCredentials { return Reloading(r.conf, r.file) }

// showCertificate configures conf to present the certificate, if there is one.
func (t TLS) showCertificate(conf *tls.Config) error {
	cert, key := t.CertFile, t.KeyFile
	if t.ClientCertFile != "" {
		cert, key = t.ClientCertFile, t.ClientKeyFile
	}
	if cert == "" {
		return nil
	}
	if _, err := keyPair(cert, key); err != nil {
		return err
	}
	// Unlike Certificates, this presents the certificate even to a listener that requests one
	// signed by other authorities. The listener then reports what is wrong with the certificate,
	// instead of reporting that it is missing.
	conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return keyPair(cert, key)
	}
	return nil
}
