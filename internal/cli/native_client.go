package cli

import (
	"crypto/tls"

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

// tlsOf reads the certificates that the flags name; nil if they name none.
func tlsOf(spec *clientv3.ConfigSpec) (*tls.Config, error) {
	cfg, err := clientv3.NewClientConfig(spec, zap.NewNop())
	if err != nil {
		return nil, withCode(exitBadArgs, err)
	}
	return cfg.TLS, nil
}
