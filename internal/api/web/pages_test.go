package web

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"leasehold.dev/internal/listen"
)

// TestHealth checks that probes get etcd's responses, verbatim where probes compare them. The
// expected texts come from etcd 3.7.
func TestHealth(t *testing.T) {
	noQuorum := &state{quorum: errors.New("no quorum")}
	corrupt := &state{alarms: []string{"CORRUPT"}}
	full := &state{alarms: []string{"NOSPACE"}}
	for _, c := range []struct {
		state  *state
		path   string
		status int
		body   string
	}{
		{&state{}, "/health", 200, `{"health":"true","reason":""}`},
		{full, "/health", 503, `{"health":"false","reason":"ALARM NOSPACE"}` + "\n"},
		{full, "/health?exclude=NOSPACE", 200, `{"health":"true","reason":""}`},
		{corrupt, "/health?exclude=NOSPACE", 503, `{"health":"false","reason":"ALARM CORRUPT"}` + "\n"},
		{&state{noLeader: true}, "/health", 503, `{"health":"false","reason":"RAFT NO LEADER"}` + "\n"},
		{&state{noLeader: true}, "/health?serializable=true", 200, `{"health":"true","reason":""}`},
		{noQuorum, "/health", 503, `{"health":"false","reason":"RANGE ERROR:no quorum"}` + "\n"},
		{
			&state{quorum: errors.New(`a "b"`)}, "/health", 503,
			`{"health":"false","reason":"RANGE ERROR:a \"b\""}` + "\n",
		},
		{noQuorum, "/health?serializable=true", 200, `{"health":"true","reason":""}`},

		{&state{}, "/livez", 200, "ok\n"},
		{&state{}, "/livez?verbose", 200, "[+]serializable_read ok\nok\n"},
		{&state{}, "/livez/serializable_read", 200, "ok\n"},
		{noQuorum, "/livez", 200, "ok\n"},
		{&state{local: errors.New("gone")}, "/livez", 503, "[-]serializable_read failed: gone\n\n"},

		{&state{}, "/readyz", 200, "ok\n"},
		{&state{}, "/readyz?verbose", 200, "[+]data_corruption ok\n[+]serializable_read ok\n" +
			"[+]linearizable_read ok\n[+]non_learner ok\n[+]disk_space ok\nok\n"},
		{noQuorum, "/readyz", 503, "[+]data_corruption ok\n[+]serializable_read ok\n" +
			"[-]linearizable_read failed: no quorum\n[+]non_learner ok\n[+]disk_space ok\n\n"},
		{noQuorum, "/readyz?exclude=linearizable_read&exclude=nonsense", 200, "ok\n"},
		{noQuorum, "/readyz/serializable_read", 200, "ok\n"},
		{
			corrupt, "/readyz/data_corruption", 503,
			"[-]data_corruption failed: alarm activated: CORRUPT\n\n",
		},
		{full, "/readyz", 200, "ok\n"},
		{
			&state{disk: errors.New("full")}, "/readyz/disk_space", 503,
			"[-]disk_space failed: full\n\n",
		},
		{
			&state{learner: true}, "/readyz/non_learner", 503,
			"[-]non_learner failed: not supported for learner\n\n",
		},
		{&state{}, "/readyz/nonsense", 404, `{"code":5,"message":"Not Found"}`},
	} {
		h := NewStatus(Options{Health: c.state})
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", c.path, nil))
		if w.Code != c.status || w.Body.String() != c.body {
			t.Errorf("%+v %s: %d %q, want %d %q", *c.state, c.path, w.Code, w.Body, c.status, c.body)
		}
	}
}

// TestPages requests the other pages, and uses methods that they do not support.
func TestPages(t *testing.T) {
	s := start(t, nil)
	for _, c := range []struct {
		method, path string
		status       int
		kind, body   string
	}{
		{
			"GET", "/version", 200, "application/json",
			`{"etcdserver":"3.7.3","etcdcluster":"3.7.0","storage":"0.1.0",` +
				`"leasehold":{"release":"0.1.0","cluster":"0.1","speaks":"0.1"}}`,
		},
		{"GET", "/metrics", 200, "text/plain", "leases 42\n"},
		{"POST", "/health", 405, "text/plain", "Method Not Allowed\n"},
		{"POST", "/version", 405, "text/plain", "Method Not Allowed\n"},
		{"OPTIONS", "/v3/kv/put", 200, "", ""},
		{"GET", "/debug/pprof/", 404, "application/json", "Not Found"},
	} {
		got := s.ask(t, c.method, c.path, "")
		if got.status != c.status || !strings.HasPrefix(got.kind, c.kind) ||
			!strings.Contains(got.body, c.body) {
			t.Errorf("%s %s: %d %s %q", c.method, c.path, got.status, got.kind, got.body)
		}
	}
}

// TestOptions checks that disabled pages are not served, that enabled ones are, and that the UI has
// its own path.
func TestOptions(t *testing.T) {
	s := start(t, func(o *Options) {
		_ = o.Conn.Close() // no request uses it
		o.Conn, o.Gatherer, o.Health, o.Versions = nil, nil, nil, nil
		o.Pprof = true
		o.UI = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "page "+r.URL.Path)
		})
	})
	for path, want := range map[string]string{
		"/x": "Not Found", "/v3/kv/put": "Not Found", "/health": "Not Found",
		"/metrics": "Not Found", "/debug/pprof/": "goroutine",
		"/ui": "page /ui", "/ui/": "page /ui/", "/ui/app.js": "page /ui/app.js", "/uix": "Not Found",
	} {
		if got := s.ask(t, "GET", path, ""); !strings.Contains(got.body, want) {
			t.Errorf("%s: %q", path, got.body)
		}
	}
	if got := s.ask(t, "GET", "/", ""); got.body != "page /ui/" {
		t.Errorf("/ leads to %q", got.body)
	}
	if got := s.ask(t, "POST", "/", ""); got.status != http.StatusNotFound {
		t.Errorf("POST / is answered with %d", got.status)
	}
}

// TestAccess checks that browsers are informed of what they may do. A page of another site whose
// name resolves to this machine is rejected (DNS rebinding, CVE-2018-1099 of etcd).
func TestAccess(t *testing.T) {
	for _, c := range []struct {
		cors, hosts  []string
		origin, host string
		status       int
		allowed      string
	}{
		{nil, nil, "https://a", "evil.example", 421, ""},
		{nil, nil, "", "member.example:2379", 200, ""},
		{nil, nil, "", "Member.Example.", 200, ""},
		{nil, nil, "", "localhost:2379", 200, ""},
		{nil, nil, "", "a.localhost", 200, ""},
		{nil, nil, "", "127.0.0.1:2379", 200, ""},
		{nil, nil, "", "[::1]:2379", 200, ""},
		{nil, nil, "", "10.0.0.1:2379", 200, ""},
		{nil, nil, "", "127.0.0.1.evil.example", 421, ""},
		{nil, nil, "", "localhost.evil.example", 421, ""},
		{nil, []string{"*"}, "https://a", "evil.example", 200, ""},
		{[]string{"https://a"}, nil, "https://a", "localhost", 200, "https://a"},
		{[]string{"https://a"}, nil, "https://b", "localhost", 200, ""},
		{[]string{"https://a"}, nil, "", "localhost", 200, ""},
		{nil, []string{"h"}, "", "h", 200, ""},
		{nil, []string{"h"}, "", "h:2379", 200, ""},
		{nil, []string{"::1"}, "", "[::1]:2379", 200, ""},
		{nil, []string{"::1"}, "", "[::1]", 200, ""},
		{nil, []string{"h"}, "", "evil.example", 421, ""},
	} {
		s := start(t, func(o *Options) {
			o.CORS, o.HostWhitelist, o.Hosts = c.cors, c.hosts, []string{"member.example"}
		})
		got := s.ask(t, "GET", "/version", "", "Origin", c.origin, "Host", c.host)
		allowed := got.header.Get("Access-Control-Allow-Origin")
		if got.status != c.status || allowed != c.allowed {
			t.Errorf("%+v: %d, allowed %q", c, got.status, allowed)
		}
	}
}

// TestGuardOfUI checks that the UI has the same protection: it is not served under a rebound name,
// and a page of another origin cannot send to it.
func TestGuardOfUI(t *testing.T) {
	s := start(t, func(o *Options) {
		o.UI = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "page")
		})
	})
	for _, c := range []struct {
		method, path, host, origin string
		status                     int
	}{
		{"GET", "/ui/", "localhost:2379", "", 200},
		{"GET", "/ui/app.js", "127.0.0.1:2379", "", 200},
		{"GET", "/ui/", "evil.example", "", 421},
		{"GET", "/ui", "evil.example:2379", "", 421},
		{"POST", "/ui/", "localhost:2379", "https://evil.example", 403},
	} {
		got := s.ask(t, c.method, c.path, "", "Host", c.host, "Origin", c.origin)
		if got.status != c.status || (got.body == "page") != (c.status == 200) {
			t.Errorf("%+v: %d %s", c, got.status, got.body)
		}
	}
}

// TestForeignPages checks that a page of another origin cannot write through the browser of a user
// who can reach the member, even with requests that browsers send without a preflight
// (CVE-2018-1098 of etcd).
func TestForeignPages(t *testing.T) {
	const advice = "start it with --cors"
	for _, c := range []struct {
		cors   []string
		origin string
		status int
		want   string
	}{
		{nil, "", 404, ""},
		{nil, "http://localhost:2379", 404, ""}, // its own origin
		{nil, "http://localhost:1", 403, advice},
		{nil, "https://evil.example", 403, advice + ` "https://evil.example"`},
		// This is an origin that cannot be put on a list.
		{nil, "null", 403, `Pages from "null" may not call this server.` + "\n"},
		{nil, "*", 403, "not call this server.\n"},
		{[]string{"https://a"}, "https://b", 403, advice},
		{[]string{"https://a"}, "https://a", 404, ""},
	} {
		s := start(t, func(o *Options) { o.CORS = c.cors })
		got := s.ask(t, "POST", "/nothing", "{}", "Origin", c.origin, "Host", "localhost:2379",
			"Content-Type", "text/plain")
		if got.status != c.status || !strings.Contains(got.body, c.want) {
			t.Errorf("%+v: %d %s", c, got.status, got.body)
		}
	}
}

// TestIsOrigin checks that only the form that browsers send is accepted as an origin.
func TestIsOrigin(t *testing.T) {
	for text, want := range map[string]bool{
		"https://a": true, "http://a.example:3000": true, "http://[::1]:3000": true,
		"http://10.0.0.1": true, "http://a:443": true, "chrome-extension://abc": true,
		"": false, "null": false, "*": false, "a.example": false, "https://": false, "https://:1": false,
		"https://*.a": false, "https://a/": false, "https://a?b": false, "https://a#b": false,
		"https://a@b": false, "https://a b": false, " https://a": false, "https://a:b": false,
		"https://A": false, "HTTPS://a": false, "https://ä": false, "https://a.": true,
		"https://a:443": false, "http://a:80": false, "https://a:": false, "file://": false,
	} {
		if isOrigin(text) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}

// TestNativeAPIRequiresJSON checks that requests that browsers send for any page without a
// preflight are rejected by leasehold.v1, even without an Origin header. JSON requests are not.
// etcd's gateway still accepts form requests, which curl sends by default.
func TestNativeAPIRequiresJSON(t *testing.T) {
	s := start(t, func(*Options) {})
	for _, c := range []struct {
		path, kind string
		status     int
	}{
		{"/v1/leases/grant", "application/json", 400},
		{"/v1/leases/grant", "Application/JSON; charset=utf-8", 400},
		{"/v1/leases/grant", "", 415},
		{"/v1/leases/grant", "text/plain", 415},
		{"/v1/leases/grant", "text/plain; a=application/json", 415},
		{"/v1/leases/grant", "application/x-www-form-urlencoded", 415},
		{"/v1/leases/grant", "multipart/form-data; boundary=x", 415},
		{"/v3/kv/put", "application/x-www-form-urlencoded", 200},
		{"/v3/kv/put", "", 200},
	} {
		got := s.ask(t, "POST", c.path, `{"key":"YQ=="}`, "Content-Type", c.kind)
		if got.status != c.status {
			t.Errorf("%+v: %d %s", c, got.status, got.body)
		}
	}
}

// TestStatusHost checks that the metrics port is protected against rebound names as well.
func TestStatusHost(t *testing.T) {
	for host, want := range map[string]int{"localhost": 200, "evil.example": 421, "h": 200} {
		s := httptest.NewServer(NewStatus(Options{
			Versions: func() Versions { return Versions{} }, Hosts: []string{"h"},
			HostWhitelist: []string{"x"},
		}))
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/version", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		resp, err := s.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if s.Close(); resp.StatusCode != want {
			t.Errorf("%s: %d", host, resp.StatusCode)
		}
	}
}

// TestDispatch checks that the HTTP server passes gRPC requests, and no others, to the gRPC server.
func TestDispatch(t *testing.T) {
	o := Options{GRPC: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
	})}
	h, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		major  int
		kind   string
		status int
	}{
		{2, "application/grpc", http.StatusTeapot},
		{2, "application/grpc+proto", http.StatusTeapot},
		{2, "application/json", http.StatusNotFound},
		{1, "application/grpc", http.StatusNotFound},
	} {
		r := httptest.NewRequest("POST", "/x", nil)
		r.ProtoMajor = c.major
		r.Header.Set("Content-Type", c.kind)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.status {
			t.Errorf("HTTP/%d %s: %d, want %d", c.major, c.kind, w.Code, c.status)
		}
	}
}

// TestPagesAreBounded checks that two types of concurrent page requests are bounded: requests for
// /metrics, each of which holds all metrics in memory, and requests from strangers for any page. A
// client at another address still gets metrics, and /livez is always answered.
func TestPagesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const waiting = 1000 + 5*500 // requests from one address, initially and in the next 5 s
		var slow atomic.Bool
		slow.Store(true)
		end := make(chan struct{})
		o := Options{
			Gatherer: prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
				if slow.Load() {
					<-end
				}
				return nil, nil
			}),
			Versions: func() Versions {
				<-end
				return Versions{}
			},
			Health: &state{},
			Requests: listen.NewRequests(1, slog.New(slog.DiscardHandler)).BoundStrangers(1,
				listen.NoneKnown),
		}
		client, err := New(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range []http.Handler{NewStatus(o), client} {
			slow.Store(true)
			end = make(chan struct{})
			var asking sync.WaitGroup
			var refused atomic.Int64
			ask := func(path, from string) int {
				r := httptest.NewRequest("GET", path, nil)
				r.Host, r.RemoteAddr = "localhost", from
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				return w.Code
			}
			many := func(path string, requests int) int64 {
				refused.Store(0)
				for range requests {
					asking.Go(func() {
						if ask(path, "10.0.0.1:1") != http.StatusOK {
							refused.Add(1)
						}
					})
				}
				synctest.Wait()
				return refused.Load()
			}
			if n := many("/metrics", 20); n != 20-mostScrapes {
				t.Errorf("%d of 20 requests for metrics were refused", n)
			}
			slow.Store(false)
			if code := ask("/metrics", "10.0.0.2:1"); code != http.StatusOK {
				t.Errorf("the metrics for another address: %d", code)
			}
			const all = 2 * waiting
			if n := many("/version", all); n != all-(waiting-20) {
				t.Errorf("%d of %d requests of strangers were refused", n, all)
			}
			if code := ask("/livez", "10.0.0.1:1"); code != http.StatusOK {
				t.Errorf("/livez during a flood: %d", code)
			}
			time.Sleep(time.Minute)
			close(end)
			asking.Wait()
		}
	})
}
