package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"slices"
	"strings"
	"time"

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
	if err != nil {
		return nil, withCode(exitConnection, err)
	}
	// Commands that give up say so themselves, and before this.
	go a.tellOutages(c, a.flags.commandTimeout+time.Second)
	return c, nil
}

// openStrict is openNative for the commands that run others: what is wrong with their flags
// has no exit code that a command which was run may have.
func (a *app) openStrict() (*client.Client, error) {
	c, err := a.openNative()
	return c, withCode(exitBadArgs, err)
}

// tellOutages tells the user when there has been no member for longer than patience, and when
// there is one again, until the client is closed: a command that waits for ever would
// otherwise do so without a word.
func (a *app) tellOutages(c *client.Client, patience time.Duration) {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		now, err := c.Connection(ctx)
		cancel()
		if errors.Is(err, client.ErrNotLeasehold) {
			return // the command ends with it
		}
		if err != nil && !errors.Is(err, client.ErrClosed) {
			a.complain("No member answers, trying on: %v\n", err)
			if now, err = c.Connection(context.Background()); err == nil {
				a.complain("Connected to %s\n", now.Endpoint)
			}
		}
		if err != nil {
			return
		}
		<-now.Changed
	}
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
