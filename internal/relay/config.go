package relay

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"

	"github.com/prometheus/client_golang/prometheus"

	"leasehold.dev/client"
	"leasehold.dev/internal/api/web"
	"leasehold.dev/internal/host"
	"leasehold.dev/internal/listen"
)

// Config configures a relay.
type Config struct {
	// Endpoints are the members' endpoints, as for a client. TLS is for those with https.
	// RootCAFile is as in client.Config.
	Endpoints  []string
	RootCAFile string
	TLS        *tls.Config
	// User, Password and TokenFile are the login of the relay, as in client.Config.
	User, Password, TokenFile string
	// Listen contains the URLs for clients, and ListenMetrics those for /metrics and the health
	// pages only.
	Listen, ListenMetrics []url.URL
	// ListenTLS is for the encrypted URLs of both.
	ListenTLS listen.TLS
	// MaxRequestBytes is the largest request, as configured for the members.
	MaxRequestBytes int
	// HTTP configures the gateway and the page. The zero value serves neither.
	HTTP web.Settings
	// Logger receives the relay's log. Default: no log. Its handler must not block.
	Logger *slog.Logger
	// Collectors are metrics of the process, shown at /metrics together with the relay's.
	Collectors []prometheus.Collector
	// Host is for tests of this module. Default: this machine.
	Host *host.Host
}

// Validate returns an error if a Config is invalid, in terms of the command's flags.
func (c *Config) Validate() error {
	switch {
	case len(c.Endpoints) == 0:
		return errors.New("a relay needs --endpoints, the client addresses of the members")
	case len(c.Listen) == 0:
		return errors.New("a relay needs --listen-client-urls, the addresses for clients")
	case c.MaxRequestBytes < 0:
		return errors.New("--max-request-bytes is negative")
	}
	encrypted := false
	for _, list := range [][]url.URL{c.Listen, c.ListenMetrics} {
		for _, u := range list {
			if listen.IsTLS(u) && !c.ListenTLS.Enabled() {
				return fmt.Errorf("%s needs a certificate; set --cert-file and --key-file", u.String())
			}
			encrypted = encrypted || listen.IsTLS(u)
		}
	}
	if c.ListenTLS.Asked() && !encrypted {
		return errors.New("there are TLS settings for clients, but none of --listen-client-urls is " +
			"https://; give one, or leave the settings out")
	}
	for _, u := range c.Listen {
		if c.ListenTLS.CRLFile != "" && u.Scheme == "http" {
			return fmt.Errorf("--client-crl-file is set, but clients of %s present no certificate; "+
				"use https:// for that address, or omit --client-crl-file", u.String())
		}
	}
	if err := c.HTTP.Check(); err != nil {
		return err
	}
	return c.ListenTLS.Validate()
}

// client returns the client with which the relay finds the members.
func (c *Config) client() (*client.Client, error) {
	cfg := client.Config{
		Endpoints: c.Endpoints, TLS: c.TLS, RootCAFile: c.RootCAFile, Logger: c.Logger,
		User: c.User, Password: c.Password, TokenFile: c.TokenFile,
	}
	if dial := c.Host.Dialer(); dial != nil {
		cfg.Dial = func(ctx context.Context, endpoint string) (net.Conn, error) {
			return dial(ctx, "tcp", endpoint)
		}
	}
	return client.New(cfg)
}
