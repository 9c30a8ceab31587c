package relay

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"leasehold.dev/client"
	"leasehold.dev/internal/api/etcd"
	"leasehold.dev/internal/api/ui"
	"leasehold.dev/internal/api/web"
	"leasehold.dev/internal/direct"
	"leasehold.dev/internal/host"
	"leasehold.dev/internal/listen"
	"leasehold.dev/internal/version"
	"leasehold.dev/internal/wire"
)

const (
	// drainTime is how long calls in progress can continue when the relay stops.
	drainTime = time.Second
	// stopTime is the timeout for the rest of the shutdown.
	stopTime = 2 * time.Second
	// ownFiles is the number of files reserved for the relay itself.
	ownFiles = 100
	// handshakeTime is the timeout for a client's HTTP/2 handshake.
	handshakeTime = 10 * time.Second
)

// Relay is a relay. New creates it, and Run runs it once.
type Relay struct {
	cfg     Config
	client  *client.Client
	members *members
	count   *metrics
	ready   chan struct{}
	large   *semaphore.Weighted // bytes of large messages waiting in the relay
	answers *listen.Answers
	merger  *merger
	// draining ends when the relay stops accepting calls. drained ends when calls in progress must
	// end.
	draining, drained context.Context
	drain, endAll     context.CancelFunc
}

// New returns a relay that is not running yet.
func New(cfg Config) (*Relay, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	c, err := cfg.client()
	if err != nil {
		return nil, err
	}
	r := &Relay{
		cfg: cfg, client: c, count: newMetrics(cfg.Collectors...), ready: make(chan struct{}),
		large:   semaphore.NewWeighted(mostLarge),
		answers: listen.NewAnswers(cfg.Logger).BoundOpen(host.Memory()),
	}
	r.merger = newMerger(r.count)
	r.members = newMembers(c, cfg.Logger, r.count)
	r.draining, r.drain = context.WithCancel(context.Background())
	r.drained, r.endAll = context.WithCancel(context.Background())
	return r, nil
}

// Ready returns a channel that is closed when the relay has found a member and is serving.
func (r *Relay) Ready() <-chan struct{} { return r.ready }

// Run serves until the context ends or a port fails.
func (r *Relay) Run(ctx context.Context) error {
	defer r.client.Close()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	f, err := r.listen(ctx, fail)
	if err != nil {
		return err
	}
	follow, leave := context.WithCancel(context.WithoutCancel(ctx))
	var following sync.WaitGroup
	following.Go(func() { r.members.run(follow) })
	if _, err := r.members.wait(ctx); err == nil {
		r.logReady()
		close(r.ready)
	}
	<-ctx.Done()
	r.cfg.Logger.Info("stopping")
	r.drain()
	f.shutdown(r.endAll)
	leave()
	following.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// logReady logs that the relay is serving clients, and the address of its page.
func (r *Relay) logReady() {
	attrs := []any{
		"version", version.Version, "listen-client-urls", urlStrings(r.cfg.Listen),
	}
	if at := r.cfg.Listen[0]; r.cfg.HTTP.HasPage() && strings.HasPrefix(at.Scheme, "http") {
		attrs = append(attrs, "page", at.JoinPath("ui/").String())
	}
	r.cfg.Logger.Info("ready to serve client requests", attrs...)
}

// strangerCalls limits the calls on a connection before a member has accepted a login on it. The
// limit is higher than on a member, because a client may make many calls concurrently with a token
// that only members can check.
const strangerCalls = 256

// frontend contains everything that listens for clients.
type frontend struct {
	mux     *listen.Mux
	grpc    *grpc.Server
	direct  *direct.Server // serves streams without HTTP/2
	http    *http.Server
	metrics *http.Server
	health  *health.Server
	inside  *grpc.ClientConn   // used by the gateway for its calls
	endHTTP context.CancelFunc // ends HTTP requests in progress
	serving sync.WaitGroup
	log     *slog.Logger
}

// listen opens all ports and starts serving.
func (r *Relay) listen(ctx context.Context, fail context.CancelCauseFunc) (*frontend, error) {
	conf, ports, err := r.open(ctx)
	if err != nil {
		return nil, err
	}
	panics := listen.NewPanics(r.cfg.Logger)
	o := etcd.Options{
		MaxRequestBytes: r.cfg.MaxRequestBytes, Panics: panics, Codec: codec{wire.Codec()},
		Answers: r.answers,
		Requests: listen.NewRequests(max(r.cfg.MaxRequestBytes, 3<<19), r.cfg.Logger).
			BoundStrangers(strangerCalls, listen.NoneKnown),
	}
	loop, inside, err := web.Loopback()
	if err != nil {
		return nil, errors.Join(err, closeAll(ports))
	}
	httpCtx, endHTTP := context.WithCancel(context.WithoutCancel(ctx))
	f := &frontend{
		mux:    listen.NewMux(listen.MuxOptions{Direct: true, Logger: r.cfg.Logger}),
		health: health.NewServer(), log: r.cfg.Logger, inside: inside, endHTTP: endHTTP,
	}
	f.grpc = grpc.NewServer(append(etcd.ServerOptions(o),
		grpc.Creds(listen.Credentials(o.Requests, o.Answers)),
		grpc.ConnectionTimeout(handshakeTime),
		grpc.UnknownServiceHandler(r.carry))...)
	straight := etcd.DirectOptions(o)
	straight.Patience = handshakeTime
	f.direct = direct.NewServer(straight)
	f.direct.RegisterService(r.streams(), nil)
	grpc_health_v1.RegisterHealthServer(f.grpc, f.health)
	r.members.changes = f.readiness(r.count)
	pages := r.webOptions(f, o)
	handler, err := web.New(httpCtx, pages)
	if err != nil {
		endHTTP()
		return nil, errors.Join(err, inside.Close(), closeAll(ports))
	}
	f.http = web.NewServer(httpCtx, panics.Handler(handler), r.cfg.Logger)
	f.http.ConnContext = o.Answers.ConnContext
	f.metrics = web.NewServer(httpCtx, panics.Handler(web.NewStatus(pages)), r.cfg.Logger)
	f.start(fail, func() error { return f.grpc.Serve(listen.Inside(loop)) })
	f.start(fail, func() error { return f.grpc.Serve(f.mux.GRPC()) })
	f.start(fail, func() error { return f.direct.Serve(f.mux.Direct()) })
	f.start(fail, func() error { return f.http.Serve(f.mux.HTTP()) })
	for _, p := range ports {
		f.start(fail, func() error { return f.accept(p, conf) })
	}
	return f, nil
}

// webOptions returns the options for the gateway, the page and the health pages.
func (r *Relay) webOptions(f *frontend, api etcd.Options) web.Options {
	o := web.Options{
		Health: state{r}, Gatherer: r.count.registry, Logger: r.cfg.Logger,
		GRPC: api.Requests.GRPC(f.grpc), Requests: api.Requests, Bound: api.Answers.Handler,
		MaxRequestBytes: int64(r.cfg.MaxRequestBytes),
		CORS:            r.cfg.HTTP.CORS, HostWhitelist: r.cfg.HTTP.HostWhitelist,
		Versions: func() web.Versions {
			return web.Versions{Leasehold: web.Leasehold{Release: version.Version, Relay: true}}
		},
	}
	for _, u := range slices.Concat(r.cfg.Listen, r.cfg.ListenMetrics) {
		o.Hosts = append(o.Hosts, strings.ToLower(u.Hostname()))
	}
	if r.cfg.HTTP.Gateway {
		o.Conn = f.inside
	}
	if r.cfg.HTTP.HasPage() {
		o.UI = ui.New(ui.Offer{ReadOnly: r.cfg.HTTP.UI == web.UIReadOnly, Relay: true})
	}
	return o
}

// readiness returns a function that records whether there is a connection to a member.
func (f *frontend) readiness(count *metrics) func(bool) {
	f.health.SetServingStatus("", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	return func(there bool) {
		now := grpc_health_v1.HealthCheckResponse_NOT_SERVING
		count.connected.Set(0)
		if there {
			now = grpc_health_v1.HealthCheckResponse_SERVING
			count.connected.Set(1)
		}
		f.health.SetServingStatus("", now)
	}
}

// start runs a server. If the server fails, the relay ends.
func (f *frontend) start(fail context.CancelCauseFunc, serve func() error) {
	f.serving.Go(func() {
		err := serve()
		if err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, http.ErrServerClosed) &&
			!errors.Is(err, grpc.ErrServerStopped) {
			fail(err)
		}
	})
}

// port is an open listener.
type port struct {
	net.Listener
	encrypted, metrics bool
}

func (f *frontend) accept(p port, conf *tls.Config) error {
	if !p.encrypted {
		conf = nil
	}
	if !p.metrics {
		return f.mux.Serve(p.Listener, conf)
	}
	if conf != nil {
		p.Listener = tls.NewListener(p.Listener, conf)
	}
	return f.metrics.Serve(p.Listener)
}

// open opens all ports. If one fails, it closes the others.
func (r *Relay) open(ctx context.Context) (conf *tls.Config, all []port, err error) {
	if r.cfg.ListenTLS.Enabled() {
		if conf, err = r.cfg.ListenTLS.Server(); err != nil {
			return nil, nil, err
		}
	}
	files, err := host.OpenFiles()
	if err != nil {
		return nil, nil, err
	}
	limit := listen.NewLimit(int(min(files-min(files/2, ownFiles), math.MaxInt32)),
		"each client needs a file descriptor (ulimit -n)", r.cfg.Logger)
	limit.BoundStrangers(min(limit.Most()/2, listen.MostStrangers))
	for i, list := range [][]url.URL{r.cfg.Listen, r.cfg.ListenMetrics} {
		for _, u := range list {
			l, err := r.cfg.Host.Open(ctx, u)
			if err != nil {
				return nil, nil, errors.Join(err, closeAll(all))
			}
			all = append(all, port{limit.Listener(l), listen.IsTLS(u), i == 1})
		}
	}
	return conf, all, nil
}

func closeAll(all []port) error {
	var err error
	for _, p := range all {
		err = errors.Join(err, p.Close())
	}
	return err
}

// shutdown rejects new calls and lets calls in progress end. It cuts off calls that take too long.
func (f *frontend) shutdown(endAll func()) {
	f.health.Shutdown()
	late := time.AfterFunc(drainTime, endAll)
	defer late.Stop()
	tooLate := time.AfterFunc(drainTime+stopTime, func() {
		f.log.Warn("cutting off calls that did not end in time")
		f.grpc.Stop()
		f.direct.Stop()
	})
	defer tooLate.Stop()
	f.serving.Go(f.direct.GracefulStop)
	f.grpc.GracefulStop() // this also ends the gateway's calls
	f.endHTTP()
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	for _, h := range []*http.Server{f.http, f.metrics} {
		if h.Shutdown(ctx) != nil {
			_ = h.Close() // the timeout has expired
		}
	}
	_ = f.inside.Close()
	_ = f.mux.Close()
	f.serving.Wait()
}

func urlStrings(list []url.URL) (out []string) {
	for _, u := range list {
		out = append(out, u.String())
	}
	return out
}

// state provides the state for the health pages.
type state struct{ r *Relay }

var _ web.Health = state{}

// HasLeader implements web.Health. It reports whether the relay is connected to a member.
func (s state) HasLeader() bool { return s.r.members.there() }

// Learner implements web.Health.
func (state) Learner() bool { return false }

// Alarms implements web.Health.
func (state) Alarms() []string { return nil }

// Disk implements web.Health.
func (state) Disk() error { return nil }

// Read implements web.Health. A relay has no data of its own, so it reads from its member.
func (s state) Read(ctx context.Context, serializable bool) error {
	switch {
	case s.r.draining.Err() != nil:
		return errStopping
	case serializable:
		return ctx.Err()
	}
	if _, err := s.r.members.get(ctx); err != nil {
		return err
	}
	if err := s.r.members.read(ctx); !errors.Is(err, client.ErrPermissionDenied) {
		return err
	}
	return nil // a member has responded
}
