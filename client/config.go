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

// Config configures a Client. Only Endpoints must be set; most programs need no more than the first
// group of fields.
type Config struct {
	// Endpoints are the members' client addresses: host:port, http://host:port, https://host:port,
	// unix:/path or unixs:/path. Empty ones are ignored. List all of them: the client uses no other
	// address.
	Endpoints []string
	// TLS, if set, is used with every endpoint except those that begin with http://.
	TLS *tls.Config
	// User and Password log in to a cluster that has users and roles; without them or a token, the
	// client has the identity of its certificate, or none. A cluster without users accepts any.
	User, Password string
	// Logger logs changes of the client's member, and sessions that [Client.Run] has lost. If it is
	// nil, only the latter are logged, to slog.Default().
	Logger *slog.Logger

	// Token, from the cluster or an issuer, replaces User and Password.
	Token string
	// TokenFile and RootCAFile are files that replace Token and TLS.RootCAs (in PEM). The client
	// reads them whenever it connects, so they may be replaced.
	TokenFile, RootCAFile string
	// ClusterID, if not 0, is the ID of the cluster; otherwise the first member that answers
	// decides. The client rejects other clusters: see [ErrOtherCluster]. `leasehold endpoint status
	// -w fields` shows the ID.
	ClusterID uint64
	// AnyMember lets the client stay with the first member that it reaches, to spread reads and
	// watches over the members. By default it moves to the leader, which saves a network hop.
	AnyMember bool
	// Dial, if set, makes the connections; endpoint is one of Endpoints, as written there. TLS
	// runs over the connection that it returns. The client calls it from any goroutine. It must
	// return when the context ends.
	Dial func(ctx context.Context, endpoint string) (net.Conn, error)
	// GRPC makes the client use only gRPC. By default its stream is a connection without HTTP/2,
	// which costs less, and the client falls back to gRPC if a proxy needs it.
	GRPC bool
	// TraceParent, if set, returns the traceparent header (W3C Trace Context) of the trace that
	// the context of a call belongs to, or "". Members that trace continue that trace. The client
	// calls it once for each call, from any goroutine.
	TraceParent func(context.Context) string

	// DialTimeout bounds one attempt to connect to one member; 2 s if 0.
	DialTimeout time.Duration
	// Silence is how long a member may send nothing, while a request waits for its answer, before
	// the client switches to the next member; 3 s if 0. Renewals do not wait that long. Clients of
	// relays need three seconds or more: a relay may hold a renewal back for half a second.
	Silence time.Duration
	// Grace is the grace of leases whose Grant.Grace is 0.
	Grace time.Duration
	// Drift bounds the difference between the rates of this machine's clock and the
	// members'; 1e-3 if 0, none if negative.
	Drift float64
	// Margin is the time that the program needs to stop, by which each lease is valid for less. 0
	// means 5 ms, negative means none.
	Margin time.Duration
	// RenewAfter is the share of its TTL after which a lease is renewed, from 0.01 to 0.5; a third
	// if 0. Above 0.4, each renewal costs the members a log entry. The first renewal of a lease is
	// sent 100 ms after its grant, if that is sooner.
	RenewAfter float64
	// MaxRequestBytes is the largest request that the client sends; 1.5 MiB, the members'
	// default, if 0.
	MaxRequestBytes int
	// Now, if set, replaces time.Now for the validity of leases, for tests in which clocks
	// differ. It must not take a lock that another goroutine holds while it waits.
	Now func() time.Time
}

// settings is the configuration of a client's connections.
type settings struct {
	Config
	shared *shared
}

// Client is a client of one cluster. Its methods may be called from any goroutine.
type Client struct {
	mux      *mux
	clock    *clock
	keeper   *keeper
	caches   caches
	sessions sessions
	endings  *endings // a separate object: cleanups of the runtime must not keep the Client reachable
	tokens   tokens
	calls    callCounts
	releases *releases
	log      *slog.Logger // of Run
	grace    time.Duration
	most     int // largest request in bytes
}

// New returns a Client. It does not wait for a connection. Close the Client after use.
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

// start is New with a given dialer.
func start(c Config, list []endpoint, dial dialer) (*Client, error) {
	switch {
	case len(list) == 0:
		return nil, errors.New("client: no endpoints")
	case c.checkLogin() != nil:
		return nil, c.checkLogin()
	case c.RootCAFile != "" && c.TLS == nil:
		return nil, errors.New("client: RootCAFile requires TLS")
	case c.DialTimeout < 0 || c.Silence < 0 || c.Grace < 0 || c.MaxRequestBytes < 0:
		return nil, errors.New("client: the configuration contains a negative number")
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
	all := settings{c, &shared{who: logins{
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

// firstRenewal is when a new lease is first renewed. After a quarter of a second, the leader would
// checkpoint the silent lease, and would have to clear the checkpoint again. A renewal before that
// makes the lease join a group. A lease that is released sooner needs no renewal.
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

// Close ends the client. Its leases end for the program at once, with [ErrClosed]. Close waits up
// to 5 s for releases that continue in the background, such as a [Lease.Revoke] whose context has
// ended; then it ends all watches and calls. Close revokes nothing itself: a lease that the
// program did not revoke ends after its TTL. Close returns when all goroutines of the client have
// ended.
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

// tlsFor returns the TLS configuration of the next connection to an endpoint, nil for none.
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

// backOff returns how long to wait after this many consecutive failures.
func backOff(failures int) time.Duration {
	return backoff.Delay(failures, 5*time.Millisecond, 500*time.Millisecond)
}
