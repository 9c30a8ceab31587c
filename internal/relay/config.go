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

// Config is everything a relay is told.
type Config struct {
	// Endpoints are those of the members, as a client has them. TLS is for those with https.
	// RootCAFile is as in client.Config.
	Endpoints  []string
	RootCAFile string
	TLS        *tls.Config
	// User, Password and TokenFile are the login of the relay, as in client.Config.
	User, Password, TokenFile string
	// Listen is where clients come, and ListenMetrics where only /metrics and the health pages are.
	Listen, ListenMetrics []url.URL
	// ListenTLS is for those of both that are encrypted.
	ListenTLS listen.TLS
	// MaxRequestBytes is the largest request: that of the members.
	MaxRequestBytes int
	// HTTP is the gateway and the page. The zero value has neither.
	HTTP web.Settings
	// Logger takes the relay's log. Nil: nothing is logged.
	// Its handler must not block.
	Logger *slog.Logger
	// Collectors are metrics of the process that /metrics has besides the relay's.
	Collectors []prometheus.Collector
	// Host is for tests of this module. Default: this machine.
	Host *host.Host
}

// Validate says what is wrong with a Config, in terms of the flags of the command.
func (c *Config) Validate() error {
	switch {
	case len(c.Endpoints) == 0:
		return errors.New("a relay needs --endpoints: the client addresses of the members")
	case len(c.Listen) == 0:
		return errors.New("a relay needs --listen-client-urls: where clients come")
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
			return fmt.Errorf("--client-crl-file is given, but who comes to %s shows no certificate; "+
				"make that https://, or leave it out", u.String())
		}
	}
	if err := c.HTTP.Check(); err != nil {
		return err
	}
	return c.ListenTLS.Validate()
}

// client returns the client that finds the members.
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
