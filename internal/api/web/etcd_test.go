package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"leasehold.dev/test/process"
)

var etcdBinary = flag.String("etcd", "",
	"path of an etcd 3.7 binary: compare our gateway with its own, both in front of it")

// calls are the requests that TestEtcdGateway makes, in order.
var calls = []struct{ path, body string }{
	{"/v3/kv/put", `{"key":"Zm9v","value":"YmFy"}`},
	{"/v3/kv/put", `{"key":"Zm9v","value":"YmFy","prev_kv":true}`},
	{"/v3/kv/put", `{"key":""}`},
	{"/v3/kv/put", `{"key":"Zm9v","lease":"1234"}`},
	{"/v3/kv/range", `{"key":"Zm9v"}`},
	{"/v3/kv/range", `{"key":"AA==","range_end":"AA==","limit":"1","keys_only":true}`},
	{"/v3/kv/range", `{"key":"Zm9v","revision":"99999"}`},
	{"/v3/kv/range", `{"key":"Zm9v","sort_order":"DESCEND","sort_target":"MOD"}`},
	{"/v3/kv/range", `{"key":"Zm9v","sort_order":7}`},
	{"/v3/kv/range", ``},
	{"/v3/kv/txn", `{"compare":[{"target":"VERSION","key":"Zm9v","version":"0"}],` +
		`"success":[{"requestPut":{"key":"Zm9v","value":"YQ=="}}],` +
		`"failure":[{"request_range":{"key":"Zm9v"}}]}`},
	{"/v3/kv/txn", `{"success":[{"request_put":{"key":"YQ=="}},{"request_put":{"key":"YQ=="}}]}`},
	{"/v3/kv/deleterange", `{"key":"bm9uZQ=="}`},
	{"/v3/kv/compaction", `{"revision":"99999"}`},
	{"/v3/lease/grant", `{"TTL":100,"ID":"77"}`},
	{"/v3/lease/grant", `{"TTL":"100","ID":"77"}`},
	{"/v3/lease/grant", `{"TTL":"9000000001"}`},
	{"/v3/lease/keepalive", `{"ID":"77"}`},
	{"/v3/lease/keepalive", `{"ID":"78"}`},
	{"/v3/lease/timetolive", `{"ID":"77","keys":true}`},
	{"/v3/kv/lease/timetolive", `{"ID":"78"}`},
	{"/v3/lease/leases", `{}`},
	{"/v3/kv/lease/leases", `{}`},
	{"/v3/lease/revoke", `{"ID":"78"}`},
	{"/v3/kv/lease/revoke", `{"ID":"79"}`},
	{"/v3/cluster/member/list", `{}`},
	{"/v3/cluster/member/remove", `{"ID":"1"}`},
	{"/v3/maintenance/status", `{}`},
	{"/v3/maintenance/alarm", `{"action":"GET"}`},
	{"/v3/maintenance/hash", `{}`},
	{"/v3/auth/status", `{}`},
	{"/v3/auth/authenticate", `{"name":"root","password":"x"}`},
	{"/v3/auth/user/add", `{"name":""}`},
	{"/v3/lock/lock", `{"name":"bG9jaw==","lease":"77"}`},
	{"/v3/lock/unlock", `{"key":"bG9jaw=="}`},
	{"/v3/election/leader", `{"name":"bm9uZQ=="}`},
	{"/v3/election/campaign", `{"name":"ZQ==","lease":"77","value":"dg=="}`},
	{"/v3/nothing", `{}`},
	{"/v3/kv/put", `{"key":`},
	{"/v3/kv/put", `{"key":5}`},
	{"/v3/kv/put", `nonsense`},
}

// Clients of etcd's gateway see no difference. Statuses, types and bodies of both gateways, in
// front of one etcd, are compared, except for numbers that change from call to call and the wording
// of JSON errors.
func TestEtcdGateway(t *testing.T) {
	if *etcdBinary == "" {
		t.Skip("needs -etcd")
	}
	theirs, conn := startEtcd(t)
	h, err := New(t.Context(), Options{Conn: conn})
	if err != nil {
		t.Fatal(err)
	}
	ours := httptest.NewServer(h)
	defer ours.Close()
	for _, c := range calls {
		want := ask(t, "POST", theirs+c.path, c.body)
		got := ask(t, "POST", ours.URL+c.path, c.body)
		if c.path == "/v3/lease/grant" && want.status == http.StatusOK {
			want, got = got, want // the second of the two finds the lease there
			if got.status != http.StatusOK || want.status == http.StatusOK {
				t.Errorf("%v: %v and %v", c, got, want)
			}
			continue
		}
		for _, name := range []string{"Content-Type", "Grpc-Metadata-Content-Type"} {
			if a, b := got.header.Get(name), want.header.Get(name); a != b {
				t.Errorf("%s %s: %s %q, etcd's %q", c.path, c.body, name, a, b)
			}
		}
		a, b := shape(got.body), shape(want.body)
		if got.status != want.status || a != b {
			t.Errorf("%s %s:\nours  %d %s\netcd's %d %s",
				c.path, c.body, got.status, a, want.status, b)
		}
	}
}

var (
	numbers  = regexp.MustCompile(`"[0-9]+"`)
	jsonFail = regexp.MustCompile(
		`"message":"(malformed JSON|proto:|invalid character|unexpected EOF)[^}]*"`)
	lockKeys = regexp.MustCompile(`"(key|rev)":"[^"]*"`)
)

// shape is what must be equal of a body.
func shape(body string) string {
	var lines []string
	for line := range strings.Lines(body) {
		var out bytes.Buffer
		if json.Compact(&out, []byte(line)) == nil {
			line = out.String()
		}
		lines = append(lines, line)
	}
	s := strings.Join(lines, "\n")
	s = jsonFail.ReplaceAllString(s, `"message":"bad JSON"`)
	return lockKeys.ReplaceAllString(numbers.ReplaceAllString(s, `"N"`), `"$1":"K"`)
}

// startEtcd runs an etcd until the test ends, and returns its URL and a
// connection to it.
func startEtcd(t *testing.T) (string, *grpc.ClientConn) {
	t.Helper()
	client, peer := process.MustFreeAddr(), process.MustFreeAddr()
	cmd := exec.CommandContext(t.Context(), *etcdBinary,
		"--data-dir", t.TempDir(), "--log-level", "error",
		"--listen-client-urls", "http://"+client, "--advertise-client-urls", "http://"+client,
		"--listen-peer-urls", "http://"+peer, "--initial-advertise-peer-urls", "http://"+peer,
		"--initial-cluster", "default=http://"+peer)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		var exit *exec.ExitError
		if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
			t.Error(err)
		}
	})
	conn, err := grpc.NewClient(client,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(),
		&grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Fatal(err)
	}
	return "http://" + client, conn
}
