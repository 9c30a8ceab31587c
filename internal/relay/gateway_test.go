package relay_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"leasehold.dev/internal/api/web"
	"leasehold.dev/internal/listen"
	"leasehold.dev/internal/relay"
	"leasehold.dev/test/certs"
	"leasehold.dev/test/harness"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/virtual"
)

// site is the HTTP server of a relay.
type site struct {
	*testing.T
	url    string
	client *http.Client
	relay  *running
}

// ports counts the ports used by relays in tests.
var ports atomic.Int64

// serveHTTP starts a relay for a member on a local port. It uses TLS if a is not nil.
func serveHTTP(t *testing.T, cfg relay.Config, a *certs.Authority) *site {
	t.Helper()
	at := fmt.Sprint("127.0.0.1:", ports.Add(1))
	s := &site{T: t, url: "http://" + at}
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, at string) (net.Conn, error) {
			return inprocess.Dialer(t)(ctx, at)
		},
	}
	if a != nil {
		s.url = "https://" + at
		a.Issue("server")
		cfg.ListenTLS = listen.TLS{CertFile: a.Path("server.pem"), KeyFile: a.Path("server.key")}
		transport.TLSClientConfig = a.Client()
		transport.TLSClientConfig.ServerName = "localhost"
		transport.ForceAttemptHTTP2 = true
	}
	s.client = &http.Client{Transport: transport}
	u, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Listen = []url.URL{*u}
	cfg.Host = inprocess.Host(t)
	s.relay = run(t, cfg, u.Host)
	t.Cleanup(transport.CloseIdleConnections)
	return s
}

// run starts a relay on an endpoint and waits until it is serving.
func run(t testing.TB, cfg relay.Config, endpoint string) *running {
	t.Helper()
	r, err := relay.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	out := &running{endpoint, cancel, make(chan error, 1)}
	go func() { out.done <- r.Run(ctx) }()
	t.Cleanup(func() { out.end(t) })
	select {
	case <-r.Ready():
	case <-time.After(time.Minute):
		t.Fatal("the relay does not serve")
	}
	return out
}

// ask makes a request and returns the response.
func (s *site) ask(method, path string, body io.Reader, headers ...string) *http.Response {
	s.Helper()
	r, err := http.NewRequestWithContext(soon(s), method, s.url+path, body)
	if err != nil {
		s.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		if r.Header.Set(headers[i], headers[i+1]); headers[i] == "Host" {
			r.Host = headers[i+1]
		}
	}
	w, err := s.client.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = w.Body.Close() })
	return w
}

// get makes a request, and returns the status and body of the response.
func (s *site) get(method, path, body string, headers ...string) (int, string) {
	s.Helper()
	w := s.ask(method, path, strings.NewReader(body), headers...)
	text, err := io.ReadAll(w.Body)
	if err != nil {
		s.Fatal(err)
	}
	return w.StatusCode, string(text)
}

// call makes a call that is expected to succeed, and returns a field of the response.
func (s *site) call(path, body, field string, headers ...string) string {
	s.Helper()
	code, text := s.get("POST", path, body, headers...)
	var out map[string]any
	if err := json.Unmarshal([]byte(text), &out); err != nil || code != http.StatusOK {
		s.Fatalf("%s: %d %s", path, code, text)
	}
	b, err := json.Marshal(out[field])
	if err != nil {
		s.Fatal(err)
	}
	return string(b)
}

// line waits for a line that contains want.
func (s *site) line(lines *bufio.Reader, want string) string {
	s.Helper()
	for {
		text, err := lines.ReadString('\n')
		if strings.Contains(text, want) {
			return text
		}
		if err != nil {
			s.Fatalf("the stream ended without %q: %v %s", want, err, text)
		}
	}
}

// converse opens a bidirectional stream with a first message. It returns a function that sends
// further messages, and a reader of the responses.
func (s *site) converse(path, first string) (say func(text string), answers *bufio.Reader) {
	s.Helper()
	r, w := io.Pipe()
	s.Cleanup(func() { _ = w.Close() })
	say = func(text string) {
		if _, err := io.WriteString(w, text+"\n"); err != nil {
			s.Error(err)
		}
	}
	go say(first)
	return say, bufio.NewReader(s.ask("POST", path, r).Body)
}

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// TestGateway checks that a relay's gateway works like a member's, including the page. It tests
// unary calls, server streams and bidirectional streams, for etcd's API and leasehold.v1, over
// HTTP/2 with TLS and over plain HTTP/1.1.
func TestGateway(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		m := inprocess.Run(t, 1)
		for name, a := range map[string]*certs.Authority{"plain": nil, "TLS": certs.New(t)} {
			virtual.Step(t, name, func(t *testing.T) {
				s := serveHTTP(t, relay.Config{
					Endpoints: inprocess.Endpoints(m), HTTP: web.DefaultSettings(),
				}, a)
				key := b64(name)
				large := b64(strings.Repeat("v", 1<<20))
				s.call("/v3/kv/put", `{"key":"`+key+`","value":"`+large+`"}`, "")
				got := s.call("/v1/store/range", `{"key":"`+key+`"}`, "kvs")
				if !strings.Contains(got, large) {
					t.Errorf("the value came back with %d bytes", len(got))
				}
				s.call("/v3/lock/lock", `{"name":"`+key+`"}`, "key")

				events := bufio.NewReader(s.ask("POST", "/v1/leases/events", strings.NewReader("{}")).Body)
				s.line(events, "result")
				granted := s.call("/v1/leases/grant", `{"ttl_ms":60000,"name":"`+name+`"}`, "lease")
				s.line(events, `"KIND_GRANTED"`)
				var lease struct{ ID string }
				if err := json.Unmarshal([]byte(granted), &lease); err != nil {
					t.Fatal(err)
				}

				say, alive := s.converse("/v3/lease/keepalive", `{"ID":"`+lease.ID+`"}`)
				s.line(alive, `"TTL":"60"`)
				say(`{"ID":"` + lease.ID + `"}`)
				s.line(alive, `"TTL":"60"`)

				first, second := b64("a"+name), b64("b"+name)
				say, watched := s.converse("/v3/watch", `{"create_request":{"key":"`+first+`"}}`)
				s.line(watched, `"created":true`)
				say(`{"create_request":{"key":"` + second + `"}}`)
				s.line(watched, `"created":true`)
				for _, key := range []string{second, first} {
					s.call("/v3/kv/put", `{"key":"`+key+`","value":"`+b64("v")+`"}`, "")
					s.line(watched, key)
				}

				if code, text := s.get("GET", "/ui/", ""); code != http.StatusOK ||
					!strings.Contains(text, `name="leasehold-server" content="relay"`) {
					t.Errorf("the page: %d %s", code, text)
				}
				if code, text := s.get("GET", "/version", ""); code != http.StatusOK ||
					!strings.Contains(text, `"relay":true`) {
					t.Errorf("/version: %d %s", code, text)
				}
				code, text := s.get("POST", "/v1/store/range", `{"key":"`+key+`","nothing":1}`)
				if code != 400 || !strings.Contains(text, `has no field`) {
					t.Errorf("unknown field: %d %s", code, text)
				}
			})
		}
	})
}

// TestGatewayGuards checks that a page from another site cannot reach the cluster through a browser
// and a relay. Requests for another host, without TLS, from another origin, or of types that
// browsers send without a preflight, are rejected before they reach the member. Listed hosts and
// origins are allowed.
func TestGatewayGuards(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		m := inprocess.Run(t, 1)
		const foreign, friend = "https://evil.example", "https://admin.example"
		strict, open := web.DefaultSettings(), web.DefaultSettings()
		open.CORS, open.HostWhitelist = []string{friend}, []string{"relay.example"}
		for name, settings := range map[string]web.Settings{"strict": strict, "open": open} {
			s := serveHTTP(t, relay.Config{Endpoints: inprocess.Endpoints(m), HTTP: settings}, nil)
			own := strings.TrimPrefix(s.url, "http://")
			if name == "open" {
				own = "relay.example"
			}
			const text, isJSON = "text/plain", "application/json"
			for _, c := range []struct {
				method, path, host, origin, kind string
				strict, open                     int
			}{
				{"POST", "/v1/store/put", own, "", isJSON, 200, 200},
				{"POST", "/v1/store/put", own, "http://" + own, isJSON, 200, 200},
				{"POST", "/v1/store/put", own, foreign, isJSON, 403, 403},
				{"POST", "/v1/store/put", own, "null", isJSON, 403, 403},
				{"POST", "/v1/store/put", own, friend, isJSON, 403, 200},
				{"POST", "/v1/store/put", own, "", text, 415, 415},
				{"POST", "/v3/kv/put", own, foreign, text, 403, 403},
				{"POST", "/v3/kv/put", "evil.example", "", isJSON, 421, 421},
				{"POST", "/v3/kv/put", "evil.example", "http://evil.example", isJSON, 421, 421},
				{"GET", "/ui/", own, "", "", 200, 200},
				{"GET", "/ui/", "evil.example", "", "", 421, 421},
				{"GET", "/version", "evil.example", "", "", 421, 421},
			} {
				key := b64(name + c.path + c.host + c.origin + c.kind)
				code, body := s.get(c.method, c.path, `{"key":"`+key+`"}`,
					"Host", c.host, "Origin", c.origin, "Content-Type", c.kind)
				want := c.strict
				if name == "open" {
					want = c.open
				}
				if code != want {
					t.Errorf("%s, %+v: %d, want %d: %s", name, c, code, want, body)
				}
				if c.method == "GET" {
					continue
				}
				kvs := s.call("/v1/store/range", `{"key":"`+key+`"}`, "kvs", "Host", own)
				if (kvs != "null") != (want == 200) {
					t.Errorf("%s, %+v: header %s is set", name, c, kvs)
				}
			}
			w := s.ask("POST", "/v1/store/put", strings.NewReader(`{"key":"YQ=="}`),
				"Host", own, "Origin", friend)
			if got := w.Header.Get("Access-Control-Allow-Origin"); (got == friend) != (name == "open") {
				t.Errorf("%s: the origin %q is allowed", name, got)
			}
		}
	})
}

// TestGatewaySettings checks that --ui and --enable-grpc-gateway work as on a member, and that the
// log contains the address of the page.
func TestGatewaySettings(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		m := inprocess.Run(t, 1)
		for _, c := range []struct {
			settings   web.Settings
			page, call int
			want       string
		}{
			{web.DefaultSettings(), 200, 200, `name="leasehold-acts" content="on"`},
			{
				web.Settings{Gateway: true, UI: web.UIReadOnly},
				200, 200,
				`name="leasehold-acts" content="off"`,
			},
			{web.Settings{Gateway: true, UI: web.UIOff}, 404, 200, "Not Found"},
			{web.Settings{UI: web.UIOn}, 404, 404, "Not Found"},
			{web.Settings{}, 404, 404, "Not Found"},
		} {
			var log harness.Log
			s := serveHTTP(t, relay.Config{
				Endpoints: inprocess.Endpoints(m), HTTP: c.settings,
				Logger: slog.New(slog.NewTextHandler(&log, nil)),
			}, nil)
			if code, text := s.get("GET", "/ui/", ""); code != c.page || !strings.Contains(text, c.want) {
				t.Errorf("%+v: %d %s", c.settings, code, text)
			}
			if code, text := s.get("POST", "/v3/kv/range", `{"key":"YQ=="}`); code != c.call {
				t.Errorf("%+v: %d %s", c.settings, code, text)
			}
			if logged := strings.Contains(log.String(), "page="+s.url+"/ui/"); logged != (c.page == 200) {
				t.Errorf("%+v: the log has %s", c.settings, log.String())
			}
		}
		bad := relay.Config{
			Endpoints: inprocess.Endpoints(m), Listen: []url.URL{{Scheme: "http", Host: "127.0.0.1:1"}},
			HTTP: web.Settings{Gateway: true, UI: "all"},
		}
		if _, err := relay.New(bad); err == nil || !strings.Contains(err.Error(), `--ui "all"`) {
			t.Errorf("unknown --ui: %v", err)
		}
	})
}

// TestGatewayStops checks that when a relay stops, the streams of its gateway end with the reason
// instead of being cut off.
func TestGatewayStops(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		var log harness.Log
		s := serveHTTP(t, relay.Config{
			Endpoints: inprocess.Endpoints(inprocess.Run(t, 1)), HTTP: web.DefaultSettings(),
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
		}, nil)
		var streams []*bufio.Reader
		for path, body := range map[string]string{
			"/v1/leases/events": "{}",
			"/v1/store/watch":   `{"key":"YQ=="}`,
			"/v3/watch":         `{"create_request":{"key":"YQ=="}}`,
		} {
			lines := bufio.NewReader(s.ask("POST", path, strings.NewReader(body)).Body)
			s.line(lines, "result")
			streams = append(streams, lines)
		}
		s.relay.end(t)
		for _, lines := range streams {
			text, err := io.ReadAll(lines)
			if err != nil || len(text) > 0 && !bytes.Contains(text, []byte("the relay is stopping")) {
				t.Errorf("the stream ended with %q, %v", text, err)
			}
		}
		if strings.Contains(log.String(), "cutting off") {
			t.Error("streams were cut off:", log.String())
		}
	})
}
