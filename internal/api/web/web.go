// Package web is the HTTP side of a client port: the JSON gateway under /v3/, /version, /health,
// /livez, /readyz, /metrics, the page for browsers under /ui/, and optionally /debug/pprof. Its
// behavior is etcd's, so that etcd's probes, dashboards and HTTP clients work unchanged.
//
// The package depends only on the protocol: it calls the member's gRPC services through an
// in-process connection ([Loopback]), and gets its state through the small interfaces declared
// here.
package web

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"

	"leasehold.dev/internal/listen"
)

// Health is a member's health. Its methods are called from many goroutines.
type Health interface {
	// HasLeader reports whether this member knows the leader.
	HasLeader() bool
	// Learner reports whether this member has no vote yet.
	Learner() bool
	// Alarms returns the names of the raised alarms, as in etcd: "NOSPACE", "CORRUPT".
	Alarms() []string
	// Disk returns an error if clients should use another member because of this member's disk.
	Disk() error
	// Read reads a key, with a confirm round or, if serializable, from this member alone, and
	// returns an error if it could not.
	Read(ctx context.Context, serializable bool) error
}

// Versions is the answer to /version.
type Versions struct {
	Server  string `json:"etcdserver"`
	Cluster string `json:"etcdcluster"`
	Storage string `json:"storage"`
	// Leasehold is not part of etcd's answer. The versions above are those that etcd's clients
	// expect, except Storage.
	Leasehold Leasehold `json:"leasehold"`
}

// Leasehold describes this server under its own name.
type Leasehold struct {
	Release string `json:"release"`
	Cluster string `json:"cluster"`
	// Held is true while a downgrade holds the cluster version.
	Held bool `json:"held,omitempty"`
	// Speaks is the range of cluster versions that the server supports.
	Speaks string `json:"speaks"`
	// Relay is true if the server is a relay, which reports only its Release.
	Relay bool `json:"relay,omitempty"`
	// WaitsFor lists the members that keep the cluster version from rising although others support
	// a newer one.
	WaitsFor []string `json:"waitsFor,omitempty"`
}

// Options configure [New]. A part whose field is nil is not served.
type Options struct {
	// Health answers the health pages.
	Health Health
	// Versions answers /version. It is a function because the cluster version is not known from the
	// start.
	Versions func() Versions
	// Gatherer provides the metrics for /metrics.
	Gatherer prometheus.Gatherer
	// Conn is a connection to the member's own gRPC server; see [Loopback]. Nil disables the
	// gateway.
	Conn *grpc.ClientConn
	// Bound bounds the gateway's unread answers. Nil means no bound.
	Bound func(http.Handler) http.Handler
	// MaxRequestBytes is the largest gRPC request, in bytes. A JSON message may be twice as long,
	// because of base64 and names. Default 1.5 MiB.
	MaxRequestBytes int64
	// GRPC serves the gRPC requests of TLS clients that offer HTTP/1.1 as well as HTTP/2, whose
	// connections go to the HTTP server. It is the *grpc.Server.
	GRPC http.Handler
	// Requests tracks incomplete requests. Default: its own tracker.
	Requests *listen.Requests
	// UI answers "/ui" and everything below "/ui/": the page for browsers.
	UI http.Handler
	// Pprof serves /debug/pprof/.
	Pprof bool
	// CORS lists the origins, besides its own, whose pages may call this port from a browser.
	CORS []string
	// HostWhitelist lists the hosts that unencrypted requests may name. "*" means all. If it is
	// empty all are allowed, except that at a loopback address only addresses, localhost and Hosts
	// are.
	HostWhitelist []string
	// Hosts are this server's host names, in lower case.
	Hosts []string
	// Logger logs failed checks. Default: none.
	Logger *slog.Logger

	bodyTimeout time.Duration // until a request's first message has arrived
}

// probeTimeout bounds the reads of a health page. It exceeds etcd's election timeout, so that an
// election alone does not fail a linearizable read.
const probeTimeout = 5 * time.Second

// mostScrapes bounds the concurrent requests for /metrics: each keeps all metrics in memory until
// its client has read them. Above that, the oldest request of the address with the most requests is
// closed.
const mostScrapes = 16

// New returns the handler of a client port. The gateway works until ctx ends.
func New(ctx context.Context, o Options) (http.Handler, error) {
	o = o.withDefaults()
	all, mux := http.NewServeMux(), http.NewServeMux()
	all.Handle("/", o.Requests.Handler(mux))
	all.Handle("/livez", mux) // a flood of requests must not make a supervisor kill the process
	o.addStatus(mux)
	if o.Conn != nil {
		g, err := newGateway(o)
		if err != nil {
			return nil, err
		}
		if o.Bound != nil {
			g = o.Bound(g)
		}
		all.Handle("/v3/", g)
		all.Handle("/v1/", g)
	}
	if o.Pprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	if o.UI != nil {
		mux.Handle("/ui", o.UI)
		mux.Handle("/ui/", o.UI)
		mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
			// Relative, because a proxy may add a prefix that this member does not know.
			w.Header().Set("Location", "ui/")
			w.WriteHeader(http.StatusFound)
		})
	}
	mux.HandleFunc("/", notFound)
	return o.dispatch(o.guard(all)), nil
}

// NewStatus returns the handler of a metrics port: /metrics, /version and the
// health pages only.
func NewStatus(o Options) http.Handler {
	o = o.withDefaults()
	all, mux := http.NewServeMux(), http.NewServeMux()
	all.Handle("/", o.Requests.Handler(mux))
	all.Handle("/livez", mux)
	o.addStatus(mux)
	mux.HandleFunc("/", notFound)
	o.HostWhitelist = nil // it applies to client ports
	return o.hosts(all)
}

// NewServer returns an http.Server for h with timeouts that keep slow or silent clients from
// accumulating. Requests, including endless streams, end with ctx: cancel it before Shutdown, or
// Shutdown waits for them.
func NewServer(ctx context.Context, h http.Handler, lg *slog.Logger) *http.Server {
	if lg == nil {
		lg = slog.New(slog.DiscardHandler)
	}
	s := &http.Server{
		Handler:           patient(h),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       5 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(lg.Handler(), slog.LevelDebug),
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 1 << 12},
	}
	s.BaseContext = baseContext(ctx)
	return s
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.MaxRequestBytes <= 0 {
		o.MaxRequestBytes = 3 << 19
	}
	if o.bodyTimeout <= 0 {
		o.bodyTimeout = time.Minute
	}
	if o.Requests == nil {
		o.Requests = listen.NewRequests(int(o.MaxRequestBytes), o.Logger)
	}
	return o
}

// addStatus adds the pages about the member's status.
func (o Options) addStatus(mux *http.ServeMux) {
	if o.Health != nil {
		p := &probes{health: o.Health, lg: o.Logger}
		p.add(mux)
	}
	if o.Versions != nil {
		mux.HandleFunc("/version", onlyGet(func(w http.ResponseWriter, _ *http.Request) {
			writeJSON(w, http.StatusOK, o.Versions())
		}))
	}
	if o.Gatherer != nil {
		scrapes := listen.NewStrangers(0, o.Logger).Share(mostScrapes)
		mux.Handle("/metrics", scrapes.Handler(
			promhttp.HandlerFor(o.Gatherer, promhttp.HandlerOpts{})))
	}
}

// dispatch sends gRPC requests to o.GRPC and all others to next. A TLS client that offers both HTTP
// versions is served by net/http (see listen.Mux), and its gRPC requests are separated here.
func (o Options) dispatch(next http.Handler) http.Handler {
	if o.GRPC == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
			o.GRPC.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// onlyGet rejects every other method as etcd does.
func onlyGet(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.Header().Set("Allow", http.MethodGet)
			http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
			return
		}
		h(w, r)
	}
}

// failure is an error body, in the shape of the gateway's. Code is a gRPC code.
type failure struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func notFound(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusNotFound, failure{Code: 5, Message: "Not Found"})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	data, err := json.Marshal(v)
	if err != nil { // only structs of strings and numbers are passed
		panic(errors.Join(errors.New("web: cannot marshal an answer"), err))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(data) // the client may be gone
}
