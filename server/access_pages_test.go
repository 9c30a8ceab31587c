package server

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
	"leasehold.dev/test/virtual"
)

// getPage requests a page over a socket without logging in, and returns its status and body.
func getPage(t *testing.T, socket, path string) (int, string) {
	t.Helper()
	return getPageAs(t, "*/*", socket, path)
}

// getPageAs is like getPage, but sends an Accept header.
func getPageAs(t *testing.T, accept, socket, path string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", accept)
	resp, err := webClient(t, socket).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // the body is read completely
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// TestPagesShowNoSecrets checks that the health, metrics and profiler pages, which require no
// login, show no key, value, name, password or token. No page lists requests in flight: etcd's
// debug page did, and leaked the passwords of logins (CVE-2021-28235).
func TestPagesShowNoSecrets(t *testing.T) { virtual.Test(t, testPagesShowNoSecrets) }

func testPagesShowNoSecrets(t *testing.T) {
	c := cheapConfig(shortDir(t))
	c.HTTP.Pprof = true
	metrics := c.URLs.ListenClient[0]
	metrics.Path += "m"
	c.URLs.ListenMetrics = append(c.URLs.ListenMetrics, metrics)
	r := run(t, c)
	withUsers(t, r)
	hash, err := r.logins.HashPassword(t.Context(), "PASSWORD")
	if err != nil {
		t.Fatal(err)
	}
	r.asRoot(t, &fsm.UserPassword{Name: "alice", Hash: hash})
	socket := c.URLs.ListenClient[0].Path
	conn := dial(t, socket, nil)
	got, err := pb.NewAuthClient(conn).Authenticate(t.Context(),
		&pb.AuthenticateRequest{Name: "alice", Password: "PASSWORD"})
	if err != nil {
		t.Fatal(err)
	}
	if err := put(t, conn, "a-KEY", "token", got.Token); err != nil {
		t.Fatal(err)
	}
	r.asRoot(t, &fsm.Grant{Terms: lease.Terms{
		ID: 1, TTL: 60_000, Name: "NAME", Principal: "alice", Owner: "OWNER",
	}})
	r.asRoot(t, &fsm.Put{Key: "a-KEY", Value: []byte("VALUE"), Lease: 1})
	for _, socket := range []string{socket, metrics.Path} {
		for path, want := range map[string]int{
			"/health": 200, "/livez": 200, "/readyz?verbose": 200, "/metrics": 200,
			"/debug/pprof/cmdline": 200, "/debug/pprof/goroutine?debug=2": 200,
			"/debug/requests": 404, "/debug/events": 404, "/debug/vars": 404, "/config/local/log": 404,
		} {
			if socket == metrics.Path && strings.HasPrefix(path, "/debug/pprof") {
				want = 404 // this port serves only metrics and health
			}
			code, text := getPage(t, socket, path)
			if code != want {
				t.Errorf("%s of %s: %d, not %d", path, socket, code, want)
			}
			for _, secret := range []string{
				"PASSWORD", "a-KEY", "VALUE", "NAME", "OWNER", "alice", got.Token, string(hash),
			} {
				if strings.Contains(text, secret) {
					t.Errorf("%s of %s shows %s", path, socket, secret)
				}
			}
		}
	}
}

// TestPathWithoutSlash checks that a call whose :path lacks the leading slash is rejected. Such a
// path would bypass rules that match method names (CVE-2026-33186 of gRPC).
func TestPathWithoutSlash(t *testing.T) { virtual.Test(t, testPathWithoutSlash) }

func testPathWithoutSlash(t *testing.T) {
	c := cheapConfig(shortDir(t))
	r := run(t, c)
	withUsers(t, r)
	message, err := proto.Marshal(&pb.PutRequest{Key: []byte("a")})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/etcdserverpb.KV/Put": "3", // ErrUserEmpty
		"etcdserverpb.KV/Put":  "12",
	} {
		conn, err := virtual.Dial(t.Context(), "unix", c.URLs.ListenClient[0].Path)
		if err != nil {
			t.Fatal(err)
		}
		if got := callRaw(t, conn, path, message); got != want {
			t.Errorf("%s: status %s, not %s", path, got, want)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
	if r.node.View().KV.Get("a") != nil {
		t.Error("the key was put")
	}
}

// callRaw makes a call over a new connection, and returns its grpc-status.
func callRaw(t *testing.T, conn net.Conn, path string, message []byte) (code string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := conn.Write([]byte(http2.ClientPreface))
	must(err)
	f := http2.NewFramer(conn, conn)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	must(f.WriteSettings())
	var head bytes.Buffer
	e := hpack.NewEncoder(&head)
	for _, h := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", path},
		{":authority", "localhost"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
	} {
		must(e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}))
	}
	must(f.WriteHeaders(http2.HeadersFrameParam{
		StreamID: 1, BlockFragment: head.Bytes(), EndHeaders: true,
	}))
	data := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
	must(f.WriteData(1, true, append(data, message...)))
	for {
		frame, err := f.ReadFrame()
		must(err)
		h, ok := frame.(*http2.MetaHeadersFrame)
		if !ok {
			continue
		}
		for _, field := range h.Fields {
			if field.Name == "grpc-status" {
				return field.Value
			}
		}
	}
}
