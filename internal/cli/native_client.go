package cli

import (
	"crypto/tls"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"leasehold.dev/client"
)

// openNative makes the client of a command that keeps leases alive. Unlike that of open
// it speaks leasehold.v1, over one stream, and knows until when its leases are valid.
func (a *app) openNative() (*client.Client, error) {
	spec, err := a.prepare()
	if err != nil {
		return nil, err
	}
	if spec.Auth != nil {
		return nil, badFeature("--user and --auth-jwt-token are not supported by this command")
	}
	secure, err := tlsOf(spec)
	if err != nil {
		return nil, err
	}
	c, err := client.New(client.Config{
		Endpoints: spec.Endpoints, TLS: secure, DialTimeout: spec.DialTimeout,
		MaxRequestBytes: spec.MaxCallSendMsgSize,
	})
	return c, withCode(exitConnection, err)
}

// tlsOf reads the certificates that the flags name. If they name none, and an endpoint wants
// TLS, those of the system will do; else it returns nil.
func tlsOf(spec *clientv3.ConfigSpec) (*tls.Config, error) {
	cfg, err := clientv3.NewClientConfig(spec, zap.NewNop())
	if err != nil {
		return nil, withCode(exitBadArgs, err)
	}
	https := func(e string) bool { return strings.HasPrefix(e, "https://") }
	if cfg.TLS == nil && slices.ContainsFunc(spec.Endpoints, https) {
		return &tls.Config{MinVersion: tls.VersionTLS12}, nil
	}
	return cfg.TLS, nil
}
