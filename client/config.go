package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"time"

	"leasehold.dev/internal/backoff"
	address "leasehold.dev/internal/endpoint"
	"leasehold.dev/internal/fault"
	"leasehold.dev/internal/holder"
)

// Config configures a Client. Only Endpoints is required. Most programs need no more than the first
// group of fields.
type Config struct {
	// Endpoints are the client addresses of the members: host:port, http://host:port,
	// https://host:port, unix:/path or unixs:/path. Empty strings are ignored. List every member:
	// the client uses no other addresses.
	Endpoints []string
	// TLS, if set, applies to every endpoint except those that begin with http://.
	TLS *tls.Config
	// User and Password log in to a cluster that has users and roles. Without them or a token, the
	// client has the identity of its certificate, or none. A cluster without users accepts any
	// credentials.
	User, Password string
	// Logger logs when the client switches members, and when [Client.Run] loses a session. If it is
	// nil, only lost sessions are logged, to slog.Default().
	Logger *slog.Logger

	// Token is a token from the cluster or from an issuer. It replaces User and Password.
	Token string
	// TokenFile and RootCAFile name files that are used instead of Token and TLS.RootCAs (in PEM
	// format). The client reads them each time it connects, so the files can be replaced.
	TokenFile, RootCAFile string
	// ClusterID, if not 0, is the ID of the cluster. Otherwise the first member that answers
	// determines it. The client rejects other clusters; see [ErrOtherCluster]. `leasehold endpoint
	// status -w fields` shows the ID.
	ClusterID uint64
	// AnyMember lets the client stay with the first member that it reaches, which spreads reads and
	// watches over the members. By default the client moves to the leader, which saves a network
	// hop.
	AnyMember bool
	// Dial, if set, makes the connections. endpoint is one of Endpoints, exactly as given there. If
	// the endpoint uses TLS, the client runs it over the returned connection. Dial may be called
	// from several goroutines at once. It must return when the context ends.
	Dial func(ctx context.Context, endpoint string) (net.Conn, error)
	// GRPC makes the client use only gRPC. By default its stream uses a connection without HTTP/2,
	// which costs less, and the client falls back to gRPC if a proxy requires it.
	GRPC bool
	// TraceParent, if set, returns the traceparent header (W3C Trace Context) for the trace that
	// the context of a call belongs to, or "". Members with tracing enabled continue that trace.
	// The client calls TraceParent once per call, from any goroutine.
	TraceParent func(context.Context) string

	// DialTimeout is the timeout for one attempt to connect to one member. 0 means 2 s.
	DialTimeout time.Duration
	// Silence is how long the client waits for a member that sends nothing while a request is
	// pending. After that it switches to the next member. 0 means 3 s. Renewals do not wait that
	// long. Clients that connect to relays need at least 3 s, because a relay may delay a renewal
	// by half a second.
	Silence time.Duration
	// Grace applies to leases whose Grant.Grace is 0.
	Grace time.Duration
	// Drift is the maximum difference between the rates of this machine's clock and the members'
	// clocks. 0 means 1e-3, and a negative value means no drift.
	Drift float64
	// Margin is how long the program needs in order to stop. The client subtracts it from the
	// validity of each lease. 0 means 5 ms, and a negative value means no margin.
	Margin time.Duration
	// RenewAfter is the fraction of a lease's TTL after which the client renews it, from 0.01 to
	// 0.5. 0 means a third. Above 0.4, each renewal costs the members a log entry. The first
	// renewal of a lease is sent 100 ms after the grant if that is sooner.
	RenewAfter float64
	// MaxRequestBytes is the size of the largest request that the client sends. 0 means 1.5 MiB,
	// which is the members' default limit.
	MaxRequestBytes int
	// Now, if set, replaces time.Now for measuring how long leases are valid. It is intended for
	// tests in which clocks differ. It must not take a lock that a goroutine may hold while it
	// waits for the client.
	Now func() time.Time
}

// settings is the configuration for a client's connections.
type settings struct {
	Config
	shared *shared
}

// Client is a client of one cluster. Its methods are safe for concurrent use.
type Client struct {
	mux      *mux
	clock    *clock
	keeper   *keeper
	caches   caches
	sessions sessions
	// a separate object, so that runtime cleanups do not keep the Client reachable
	endings  *endings
	tokens   tokens
	calls    callCounts
	releases *releases
	log      *slog.Logger // for Run
	grace    time.Duration
	most     int // size of the largest request, in bytes
}

// New returns a new Client. It does not wait for a connection. Close the Client after use.
func New(c Config) (*Client, error) {
	var list []endpoint
	for _, text := range c.Endpoints {
		if strings.TrimSpace(text) == "" {
			continue
		}
		e, err := parseEndpoint(text, &c)
		if err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	return start(c, list, dialDirect)
}

// start is like New, but uses the given dialer.
func start(c Config, list []endpoint, dial dialer) (*Client, error) {
	switch {
	case len(list) == 0:
		return nil, errors.New("client: no endpoints")
	case c.checkLogin() != nil:
		return nil, c.checkLogin()
	case c.RootCAFile != "" && c.TLS == nil:
		return nil, errors.New("client: RootCAFile requires TLS")
	case c.DialTimeout < 0 || c.Silence < 0 || c.Grace < 0 || c.MaxRequestBytes < 0:
		return nil, errors.New("client: durations and sizes must not be negative")
	case !(c.Drift < 1): // also rejects NaN
		return nil, fmt.Errorf("client: drift %v must be less than 1", c.Drift)
	case c.RenewAfter != 0 && !(c.RenewAfter >= 0.01 && c.RenewAfter <= 0.5):
		return nil, fmt.Errorf("client: RenewAfter %v must be between 0.01 and 0.5", c.RenewAfter)
	}
	log := c.Logger
	if log == nil {
		log = slog.Default()
	}
	c.defaults()
	all := settings{c, &shared{logins: logins{
		user: c.User, password: c.Password, fixed: c.Token, file: c.TokenFile,
	}}}
	all.shared.pin.id.Store(c.ClusterID)
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	out := &Client{
		clock: newClock(c.Now), endings: new(endings), releases: newReleases(), log: log,
		grace: c.Grace, most: c.MaxRequestBytes,
	}
	out.mux = newMux(all, list, dial)
	out.keeper = newKeeper(out.clock, out.mux, holder.Config{
		Drift: c.Drift, Margin: ttlOf(c.Margin), RenewAfter: c.RenewAfter,
		First: ttlOf(firstRenewal),
	})
	out.mux.left = out.keeper.left
	out.mux.start()
	return out, nil
}

// firstRenewal is the delay before a new lease is first renewed. After a quarter of a second
// without a renewal, the leader would checkpoint the lease, and would later have to clear the
// checkpoint. A lease that is renewed sooner joins a group instead. A lease released before
// firstRenewal needs no renewal at all.
const firstRenewal = 100 * time.Millisecond

func (c *Config) defaults() {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.DialTimeout == 0 {
		c.DialTimeout = 2 * time.Second
	}
	if c.Silence == 0 {
		c.Silence = 3 * time.Second
	}
	if c.Margin == 0 {
		c.Margin = 5 * time.Millisecond
	}
	c.Margin = max(c.Margin, 0)
	if c.MaxRequestBytes == 0 {
		c.MaxRequestBytes = 3 << 19
	}
}

// Close closes the client. For the program, its leases end immediately, with [ErrClosed]. Close
// waits up to 5 s for releases that continue in the background, such as a [Lease.Revoke] whose
// context has ended. Then it ends all watches and calls. Close itself revokes nothing: any lease
// that the program has not revoked ends after its TTL. Close returns when all goroutines of the
// client have exited.
func (c *Client) Close() error {
	c.keeper.close()
	c.releases.close()
	c.mux.close()
	return nil
}

// endpoint is the address of a member.
type endpoint struct {
	text   string // as in Config.Endpoints
	target string // in gRPC's syntax
	tls    *tls.Config
}

// tlsFor returns the TLS configuration for the next connection to an endpoint, or nil if the
// endpoint does not use TLS.
func (c *settings) tlsFor(e endpoint) (*tls.Config, error) {
	if e.tls == nil || c.RootCAFile == "" {
		return e.tls, nil
	}
	text, err := os.ReadFile(c.RootCAFile)
	if err != nil {
		return nil, err
	}
	fresh := e.tls.Clone()
	fresh.RootCAs = x509.NewCertPool()
	if !fresh.RootCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s contains no PEM certificate", c.RootCAFile)
	}
	return fresh, nil
}

// parseEndpoint parses an endpoint. The port is required unless Config.Dial is set.
func parseEndpoint(text string, c *Config) (endpoint, error) {
	parsed, err := address.Parse(text)
	if err != nil && (c.Dial == nil || !errors.Is(err, address.ErrNoPort)) {
		return endpoint{}, fmt.Errorf("client: %w", err)
	}
	e := endpoint{text: text, tls: c.TLS}
	switch {
	case parsed.Scheme == "http":
		e.tls = nil
	case parsed.Secure() && c.TLS == nil:
		return e, fmt.Errorf("client: endpoint %q requires Config.TLS", text)
	}
	network, at := parsed.Network()
	if e.target = "passthrough:///" + at; network == "unix" {
		e.target = "unix:" + at
	}
	return e, nil
}

// pause waits for d. If the context or the client ends first, it returns the cause.
func (m *mux) pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return fault.Cause(ctx)
	case <-m.ctx.Done():
		return ErrClosed
	}
}

// backOff returns how long to wait after the given number of consecutive failures.
func backOff(failures int) time.Duration {
	return backoff.Delay(failures, 5*time.Millisecond, 500*time.Millisecond)
}
