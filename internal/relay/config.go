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
	// Endpoints lists the endpoints of the members, as for a client. TLS is used for endpoints with
	// https. RootCAFile is described at client.Config.
	Endpoints  []string
	RootCAFile string
	TLS        *tls.Config
	// User, Password and TokenFile are the relay's login. They are described at client.Config.
	User, Password, TokenFile string
	// Listen contains the URLs for clients. ListenMetrics contains the URLs that serve only
	// /metrics and the health pages.
	Listen, ListenMetrics []url.URL
	// ListenTLS configures the encrypted URLs in both lists.
	ListenTLS listen.TLS
	// MaxRequestBytes is the maximum size of a request. It must match the members' configuration.
	MaxRequestBytes int
	// HTTP configures the gateway and the page. The zero value disables both.
	HTTP web.Settings
	// Logger receives the relay's log. By default, there is no log. Its handler must not block.
	Logger *slog.Logger
	// Collectors contains metrics of the process. They appear at /metrics together with the relay's
	// own.
	Collectors []prometheus.Collector
	// Host is set by tests in this module. By default, it is the real host.
	Host *host.Host
}

// Validate returns an error if the Config is invalid. The error refers to the command's flags.
func (c *Config) Validate() error {
	switch {
	case len(c.Endpoints) == 0:
		return errors.New("a relay needs --endpoints, the client addresses of the members")
	case len(c.Listen) == 0:
		return errors.New("a relay needs --listen-client-urls, the addresses for clients")
	case c.MaxRequestBytes < 0:
		return errors.New("--max-request-bytes must not be negative")
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
		return errors.New("TLS settings for clients are set, but none of --listen-client-urls is " +
			"https://; add one or remove the settings")
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

// client returns the client that the relay uses to find members.
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
