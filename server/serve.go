package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/api/etcd"
	"leasehold.dev/internal/api/native"
	"leasehold.dev/internal/api/relayed"
	"leasehold.dev/internal/api/ui"
	"leasehold.dev/internal/api/web"
	"leasehold.dev/internal/direct"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/intercept"
	"leasehold.dev/internal/listen"
	"leasehold.dev/internal/member/authn"
	"leasehold.dev/internal/version"
	"leasehold.dev/lease"
)

// stopTimeout is how long a graceful stop waits for requests and streams in progress before it cuts
// them off.
const stopTimeout = 3 * time.Second

// cutOff is logged when a graceful stop cuts off calls.
const cutOff = "cutting off calls that did not end in time"

// handshakeTimeout is how long a client can take to finish the handshake, after the first bytes of
// an HTTP/2 connection.
const handshakeTimeout = 10 * time.Second

// strangerCalls limits the calls on a connection where no caller has logged in yet.
const strangerCalls = 16

// frontend contains everything that listens.
type frontend struct {
	mux     *listen.Mux
	grpc    *grpc.Server
	direct  *direct.Server // serves streams without HTTP/2
	http    *http.Server
	metrics *http.Server // serves separate listeners; nil if there are none
	conn    *grpc.ClientConn
	group   group
	end     context.CancelFunc // ends the HTTP requests in progress
	stop    chan struct{}      // closed when streams must end
	refuse  func()             // rejects calls that wait for admission
	log     *slog.Logger
}

// serve listens and serves the pages. When the member is ready, serve logs that and serves until
// ctx ends. When serve returns, everything that it started has stopped.
func (s *Server) serve(ctx context.Context, fail context.CancelCauseFunc) error {
	if ctx.Err() != nil {
		return nil
	}
	// Open all ports before serving any of them, so that a port in use is detected before the first
	// client connects.
	ports, err := s.open(ctx)
	if err != nil {
		return err
	}
	f, err := s.listen(ctx, ports, fail)
	if err != nil {
		return errors.Join(err, closeAll(ports))
	}
	if s.audit != nil {
		defer s.audit.Close()
		at := s.node.View().LeaseEvents.Last() // before clients are admitted
		f.group.start(fail, func() error { s.audit.Run(ctx, at); return nil })
	}
	defer f.shutdown()
	if err := s.publishFirst(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	s.comparePeerURLs()
	s.entrance.open()
	compactor := &compactor{node: s.node, log: s.cfg.Logger, cfg: s.cfg.Compaction}
	f.group.start(fail, func() error { compactor.run(ctx); return nil })
	f.group.start(fail, func() error { s.warnOfMembersOnce(ctx); return nil })
	f.group.start(fail, func() error { s.logins.Bindings().Run(ctx); return nil })
	f.group.start(fail, func() error { return s.publishCaughtUp(ctx) })
	if s.node.keeper != nil {
		f.group.start(fail, func() error { s.node.keeper.Run(ctx); return nil })
	}
	s.logReady()
	close(s.ready)
	<-ctx.Done()
	s.cfg.Logger.Info("stopping")
	if !errors.Is(context.Cause(ctx), context.Canceled) {
		s.handOver(ctx) // before waiting for calls, because none of them finishes if the disk fails
	}
	return nil
}

// listen serves calls and pages on the given ports.
func (s *Server) listen(
	ctx context.Context, ports []port, fail context.CancelCauseFunc,
) (*frontend, error) {
	loop, conn, err := web.Loopback()
	if err != nil {
		return nil, err
	}
	httpCtx, end := context.WithCancel(context.WithoutCancel(ctx))
	f := &frontend{
		mux:  listen.NewMux(listen.MuxOptions{Direct: true, Logger: s.cfg.Logger}),
		conn: conn, end: end, stop: make(chan struct{}), refuse: s.entrance.refuse,
		log: s.cfg.Logger, group: group{log: s.cfg.Logger},
	}
	options := s.apiOptions(f.stop)
	f.grpc = grpc.NewServer(append(append(etcd.ServerOptions(options), s.core.tracer.GRPCOptions()...),
		grpc.Creds(listen.Credentials(options.Requests, options.Answers)),
		grpc.ConnectionTimeout(handshakeTimeout))...)
	straight := etcd.DirectOptions(options)
	straight.Patience = handshakeTimeout
	f.direct = direct.NewServer(straight)
	calls := relayed.NewCalls(f.grpc)
	etcd.Register(calls, served{s.node, s.logins}, options)
	native.Register(both{calls, f.direct}, s.node, s.nativeOptions(options))
	relayed.Register(calls, s.relayedOptions(options))
	pages := s.webOptions(f, options.Requests)
	pages.Bound = options.Answers.Handler
	handler, err := web.New(httpCtx, pages)
	if err != nil {
		end()
		return nil, errors.Join(err, conn.Close())
	}
	f.http = web.NewServer(httpCtx, s.panics.Handler(handler), s.cfg.Logger)
	f.http.ConnContext = options.Answers.ConnContext
	f.metrics = web.NewServer(httpCtx, s.panics.Handler(web.NewStatus(pages)), s.cfg.Logger)

	f.group.start(fail, func() error { return f.grpc.Serve(listen.Inside(loop)) })
	f.group.start(fail, func() error {
		s.entrance.wait()
		return ignoreClosed(f.grpc.Serve(f.mux.GRPC()))
	})
	f.group.start(fail, func() error {
		s.entrance.wait()
		return ignoreClosed(f.direct.Serve(f.mux.Direct()))
	})
	f.group.start(fail, func() error { return ignoreClosed(f.http.Serve(f.mux.HTTP())) })
	for _, p := range ports {
		f.group.start(fail, func() error { return ignoreClosed(f.accept(p)) })
	}
	return f, nil
}

// relayedOptions returns the options for calls that come through relays.
func (s *Server) relayedOptions(o etcd.Options) relayed.Options {
	out := etcd.Relayed(o)
	out.MayRelay, out.Impersonate = s.logins.CheckRelay, s.logins.Impersonate
	out.AccessChanged = s.node.AccessChanged
	if t := s.core.tracer; t.Traces() {
		out.Unary = append([]grpc.UnaryServerInterceptor{t.Relayed}, out.Unary...)
	}
	return out
}

// served combines a member with its logins, for etcd's services.
type served struct {
	*node
	*authn.Logins
}

// both registers a service with two servers.
type both [2]grpc.ServiceRegistrar

// RegisterService implements grpc.ServiceRegistrar.
func (b both) RegisterService(d *grpc.ServiceDesc, service any) {
	for _, s := range b {
		s.RegisterService(d, service)
	}
}

func (f *frontend) accept(o port) error {
	switch o.use {
	case useMetrics:
		l := o.Listener
		if o.tls != nil {
			l = tls.NewListener(l, o.tls)
		}
		return f.metrics.Serve(l)
	case useHTTP:
		return f.mux.ServeHTTP(o.Listener, o.tls)
	default:
		return f.mux.Serve(o.Listener, o.tls)
	}
}

// open opens either all client and metrics listeners or none of them.
func (s *Server) open(ctx context.Context) ([]port, error) {
	conf, err := s.tlsConfig()
	if err != nil {
		return nil, err
	}
	var all []port
	for _, group := range []struct {
		urls []url.URL
		use  use
	}{
		{s.cfg.URLs.ListenClient, useClients},
		{s.cfg.URLs.ListenClientHTTP, useHTTP},
		{s.cfg.URLs.ListenMetrics, useMetrics},
	} {
		ports, err := s.openPorts(ctx, group.urls, conf, group.use)
		if err != nil {
			return nil, errors.Join(err, closeAll(all))
		}
		for i := range ports {
			ports[i].Listener = s.limits.clients.Listener(ports[i].Listener)
		}
		all = append(all, ports...)
	}
	return all, nil
}

// tlsConfig returns the TLS configuration for clients, or nil if there is none.
func (s *Server) tlsConfig() (*tls.Config, error) {
	t, err := s.cfg.ClientTLS.certified(s.cfg.ClientAutoTLSDir(), s.cfg.URLs.ListenClient)
	if err != nil || !t.Enabled() {
		return nil, err
	}
	return t.Server()
}

func (s *Server) apiOptions(stop <-chan struct{}) etcd.Options {
	unary, streams := s.interceptors()
	out := etcd.Options{
		MaxRequestBytes:      int(s.cfg.Limits.MaxRequestBytes),
		MaxTxnOps:            s.cfg.Limits.MaxTxnOps,
		MaxKeys:              s.cfg.Lease.MaxKeys,
		MaxConcurrentStreams: s.cfg.GRPC.MaxConcurrentStreams,
		ProgressInterval:     s.cfg.WatchProgressInterval,
		LeaderInterval:       s.cfg.Raft.ElectionTimeout,
		MinPingInterval:      s.cfg.GRPC.KeepAliveMinTime,
		PingInterval:         s.cfg.GRPC.KeepAliveInterval,
		PingTimeout:          s.cfg.GRPC.KeepAliveTimeout,
		Unary:                unary,
		Stream:               streams,
		Admit:                s.node.limits.Admit,
		Renewals:             api.NewRenewals(),
		Panics:               s.panics,
		Answers:              listen.NewAnswers(s.cfg.Logger).BoundOpen(s.limits.memory),
		Requests: listen.NewRequests(int(s.cfg.Limits.MaxRequestBytes), s.cfg.Logger).
			BoundStrangers(strangerCalls, s.logins.IsLoggedIn),
		Stop: stop,
	}
	return out
}

// interceptors returns the interceptor for unary calls and those for streams, outermost first.
func (s *Server) interceptors() (
	unary grpc.UnaryServerInterceptor, streams []intercept.Stream,
) {
	c := &calls{
		panics: s.panics, tracer: s.core.tracer, rpcs: s.core.metrics.Calls, node: s.node,
		entrance: s.entrance, logins: s.logins, audit: s.audit, limits: rateLimit{s.node.limits},
	}
	streams = []intercept.Stream{c.rpcs.Stream, c.node.checkStreamCluster, c.entrance.stream, c.known}
	if s.audit != nil {
		streams = append(streams, s.audit.Stream)
	}
	return c.unary, append(streams, c.limits.stream)
}

// nativeOptions returns the options for leasehold.v1, based on etcd's options.
func (s *Server) nativeOptions(o etcd.Options) native.Options {
	service, stream := etcd.Guard(served{s.node, s.logins}, o)
	out := native.Options{
		ClusterID: s.node.cluster, MemberID: s.node.member,
		MinTTL:          lease.TTL(s.cfg.Lease.MinTTL.Milliseconds()),
		MaxCacheTTL:     lease.TTL(s.cfg.Lease.MaxCacheTTL.Milliseconds()),
		MaxKeys:         o.MaxKeys,
		MaxRequestBytes: o.MaxRequestBytes,
		MaxTxnOps:       o.MaxTxnOps,
		Guard:           service,
		GuardStream:     stream,
		Admit:           o.Admit,
		Renewals:        o.Renewals,
		Panics:          o.Panics,
		Bindings:        s.logins.Bindings(),
		Evidence:        s.logins.Evidence,
		Stop:            o.Stop,
	}
	if t := s.core.tracer; t.Traces() {
		out.Trace = t.Request
	}
	out.Slow = s.core.tracer.SlowRequests()
	return out
}

func (s *Server) webOptions(f *frontend, requests *listen.Requests) web.Options {
	o := web.Options{
		Health: health{s.node, s.entrance},
		Versions: func() web.Versions {
			view := s.node.View()
			v := view.Version
			return web.Versions{
				Server: version.EtcdVersion, Cluster: version.EtcdAPIVersion + ".0",
				Storage: version.Semantic(s.node.storageVersion()),
				Leasehold: web.Leasehold{
					Release: version.Version, Cluster: version.Name(v.Number), Held: v.Held,
					Speaks: version.Spoken.String(), WaitsFor: names(view, view.Behind()),
				},
			}
		},
		Gatherer:        s.core.metrics.Registry,
		MaxRequestBytes: s.cfg.Limits.MaxRequestBytes,
		GRPC:            requests.GRPC(f.grpc),
		Requests:        requests,
		Pprof:           s.cfg.HTTP.Pprof,
		CORS:            s.cfg.HTTP.CORS,
		HostWhitelist:   s.cfg.HTTP.HostWhitelist,
		Hosts:           hostNames(s.cfg.URLs),
		Logger:          s.cfg.Logger,
	}
	if s.cfg.HTTP.Gateway {
		o.Conn = f.conn
	}
	if s.hasPage() {
		o.UI = ui.New(ui.Offer{ReadOnly: s.cfg.HTTP.UI == web.UIReadOnly})
	}
	return o
}

// hasPage reports whether the web page is served.
func (s *Server) hasPage() bool {
	settings := s.cfg.HTTP.settings()
	return settings.HasPage()
}

// logReady logs that the member is serving, and the address of its web page.
func (s *Server) logReady() {
	attrs := []any{
		"name", s.cfg.Name, "version", version.Version,
		"listen-client-urls", listen.URLTexts(s.cfg.URLs.ListenClient),
		"max-connections", s.limits.clients.Most(),
		"cluster", fmt.Sprintf("%x", s.node.cluster), "member", fmt.Sprintf("%x", s.node.member),
	}
	if urls := s.cfg.URLs.AdvertiseClient; s.hasPage() && len(urls) > 0 {
		attrs = append(attrs, "page", urls[0].JoinPath("ui/").String())
	}
	s.cfg.Logger.Info("ready to serve client requests", attrs...)
}

// shutdown stops admitting clients, ends the streams, waits for requests in progress, and cuts off
// those that take too long.
func (f *frontend) shutdown() {
	close(f.stop)
	f.refuse()
	timer := time.AfterFunc(stopTimeout, func() {
		f.log.Warn(cutOff, "after", stopTimeout)
		f.grpc.Stop()
		f.direct.Stop()
	})
	defer timer.Stop()
	f.end()
	httpCtx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	for _, h := range []*http.Server{f.http, f.metrics} {
		if err := h.Shutdown(httpCtx); err != nil {
			_ = h.Close() // the time has elapsed: cut off the rest
		}
	}
	_ = f.conn.Close()
	f.grpc.GracefulStop()
	f.direct.GracefulStop()
	_ = f.mux.Close()
	f.group.wg.Wait()
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) || errors.Is(err, http.ErrServerClosed) ||
		errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

// health provides the data for the health pages.
type health struct {
	n        *node
	entrance *entrance
}

var _ web.Health = health{}

func (h health) HasLeader() bool { return h.n.status.Load().Leader != 0 }

func (h health) Learner() bool { return h.n.View().Learner(h.n.member) }

func (h health) Alarms() []string {
	var names []string
	for _, a := range h.n.Alarms() {
		switch a.Kind {
		case fsm.NoSpace:
			names = append(names, "NOSPACE")
		case fsm.Corrupt, fsm.Split: // not fsm.Damaged: that alarm concerns only its own member
			names = append(names, "CORRUPT")
		}
	}
	return names
}

// Disk implements web.Health. A member with a full disk stays healthy while it is the leader,
// because no other member can take its place.
func (h health) Disk() error {
	if h.n.writer.full.Load() && h.n.elsewhere() {
		return errors.New(diskFull)
	}
	return nil
}

func (h health) Read(ctx context.Context, serializable bool) error {
	if serializable {
		return ctx.Err()
	}
	if err := h.entrance.closed(); err != nil {
		return errors.New(status.Convert(err).Message())
	}
	return h.n.Confirm(ctx)
}
