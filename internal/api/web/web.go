// Package web is the HTTP side of a client port. It serves the JSON gateway under /v3/, /version,
// /health, /livez, /readyz, /metrics, the page for browsers under /ui/, and optionally
// /debug/pprof. It behaves like etcd, so that probes, dashboards and HTTP clients for etcd work
// unchanged.
//
// The package depends only on the protocol. It calls the member's gRPC services through an
// in-process connection ([Loopback]) and gets the member's state through the small interfaces
// declared here.
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

// Health reports the health of a member. It must be safe for concurrent use.
type Health interface {
	// HasLeader reports whether this member knows a leader.
	HasLeader() bool
	// Learner reports whether this member is a learner, which does not vote.
	Learner() bool
	// Alarms returns the names of the active alarms, as in etcd: "NOSPACE", "CORRUPT".
	Alarms() []string
	// Disk returns an error if the state of this member's disk means that clients should use
	// another member.
	Disk() error
	// Read reads a key. It goes through a confirm round unless serializable is true. It returns an
	// error if the key cannot be read.
	Read(ctx context.Context, serializable bool) error
}

// Versions is the response to /version.
type Versions struct {
	Server  string `json:"etcdserver"`
	Cluster string `json:"etcdcluster"`
	Storage string `json:"storage"`
	// Leasehold is not part of etcd's response. Except for Storage, the versions above are those
	// that etcd clients expect.
	Leasehold Leasehold `json:"leasehold"`
}

// Leasehold describes this server in terms of its own versions.
type Leasehold struct {
	Release string `json:"release"`
	Cluster string `json:"cluster"`
	// Held is true while a downgrade keeps the cluster version from rising.
	Held bool `json:"held,omitempty"`
	// Speaks is the range of cluster versions that the server supports.
	Speaks string `json:"speaks"`
	// Relay is true if the server is a relay. A relay reports only Release.
	Relay bool `json:"relay,omitempty"`
	// WaitsFor lists the members that prevent the cluster version from rising, although other
	// members support a newer one.
	WaitsFor []string `json:"waitsFor,omitempty"`
}

// Options configures [New]. If the field for a part is nil, that part is not served.
type Options struct {
	// Health provides the state for the health pages.
	Health Health
	// Versions returns the response to /version. It is a function because the cluster version is
	// unknown at first.
	Versions func() Versions
	// Gatherer provides the metrics for /metrics.
	Gatherer prometheus.Gatherer
	// Conn is a connection to the member's own gRPC server (see [Loopback]). If it is nil, the
	// gateway is disabled.
	Conn *grpc.ClientConn
	// Bound limits the gateway's unread responses. If it is nil, there is no limit.
	Bound func(http.Handler) http.Handler
	// MaxRequestBytes is the maximum size of a gRPC request, in bytes. A JSON message can be twice
	// as long, because of base64 and field names. The default is 1.5 MiB.
	MaxRequestBytes int64
	// GRPC serves gRPC requests from TLS clients that offer both HTTP/1.1 and HTTP/2, because the
	// HTTP server handles their connections. It is a *grpc.Server.
	GRPC http.Handler
	// Requests tracks incomplete requests. By default, New creates its own tracker.
	Requests *listen.Requests
	// UI serves the page for browsers: "/ui" and everything under "/ui/".
	UI http.Handler
	// Pprof enables /debug/pprof/.
	Pprof bool
	// CORS lists the origins, in addition to the server's own, whose pages may call this port from
	// a browser.
	CORS []string
	// HostWhitelist lists the hosts that unencrypted requests may name. "*" means all. If the list
	// is empty, all hosts are allowed on most addresses. On a loopback address, only IP addresses,
	// localhost and Hosts are allowed.
	HostWhitelist []string
	// Hosts lists the host names of this server, in lower case.
	Hosts []string
	// Logger logs failed checks. By default, they are not logged.
	Logger *slog.Logger

	bodyTimeout time.Duration // timeout for the first message of a request
}

// probeTimeout is the timeout for the reads of a health page. It is longer than etcd's election
// timeout, so an election alone does not make a linearizable read fail.
const probeTimeout = 5 * time.Second

// mostScrapes limits the number of concurrent requests for /metrics. Each request keeps all metrics
// in memory until its client has read them. When the limit is exceeded, the oldest request from the
// address with the most requests is closed.
const mostScrapes = 16

// New returns the handler for a client port. The gateway works until ctx ends.
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
			// Use a relative path, because a proxy may add a prefix that this member does not know.
			w.Header().Set("Location", "ui/")
			w.WriteHeader(http.StatusFound)
		})
	}
	mux.HandleFunc("/", notFound)
	return o.dispatch(o.guard(all)), nil
}

// NewStatus returns the handler for a metrics port. It serves only /metrics, /version and the
// health pages.
func NewStatus(o Options) http.Handler {
	o = o.withDefaults()
	all, mux := http.NewServeMux(), http.NewServeMux()
	all.Handle("/", o.Requests.Handler(mux))
	all.Handle("/livez", mux)
	o.addStatus(mux)
	mux.HandleFunc("/", notFound)
	o.HostWhitelist = nil // the whitelist applies only to client ports
	return o.hosts(all)
}

// NewServer returns an http.Server for h. Its timeouts prevent slow or silent clients from
// accumulating. Requests, including endless streams, end with ctx. The caller must cancel ctx
// before calling Shutdown, which otherwise waits for the requests.
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

// addStatus adds the pages that report the member's status.
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

// dispatch sends gRPC requests to o.GRPC and all other requests to next. If a TLS client offers
// both HTTP versions, net/http serves it (see listen.Mux), so its gRPC requests must be separated
// here.
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

// onlyGet rejects all other methods in the same way as etcd.
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

// failure is the body of an error response, in the format of the gateway. Code is a gRPC code.
type failure struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func notFound(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusNotFound, failure{Code: 5, Message: "Not Found"})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	data, err := json.Marshal(v)
	if err != nil { // impossible for structs of strings and numbers
		panic(errors.Join(errors.New("web: cannot marshal a response"), err))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(data) // ignore errors, because the client may have left
}
