package e2e

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/test/process"
	"leasehold.dev/test/tier"
)

// TestSecondProcess refuses a second process on one data directory, at once and
// in words, and the first does not notice.
func TestSecondProcess(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	ours(t)
	m := startMember(t)
	second := &member{t: t, data: m.data, log: filepath.Join(t.TempDir(), "log")}
	second.listen()
	t.Cleanup(second.cleanup)
	second.launch()
	if err := second.wait(); err == nil {
		t.Error("the second process ended without an error")
	}
	if out := second.Tail(); !strings.Contains(out, m.data) {
		t.Errorf("the second process does not name the directory:\n%s", out)
	}
	if _, err := m.client().Put(t.Context(), "still", "here"); err != nil {
		t.Errorf("the first process: %v", err)
	}
	m.kill()
	second.start() // a lock of the dead does not hold
}

// TestGracefulStop: SIGTERM ends open streams, none has to be cut off, the
// process ends with 0, and everything is there the next time.
func TestGracefulStop(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	m := startMember(t)
	ctx, c := t.Context(), m.client()
	lease, err := c.Grant(ctx, 60)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.KeepAlive(ctx, lease.ID); err != nil {
		t.Fatal(err)
	}
	w := c.Watch(ctx, "g", clientv3.WithCreatedNotify())
	receive(t, "created", w)
	if _, err := c.Put(ctx, "g", "1", clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	if err := m.end(syscall.SIGTERM); err != nil && !*foreignFlag {
		t.Errorf("SIGTERM ends the process with %v\n%s", err, m.Tail())
	}
	if out := m.Tail(); strings.Contains(out, "cutting off") {
		t.Errorf("the streams did not end by themselves:\n%s", out)
	}
	m.start()
	if got := get(t, c, "g"); string(got.Value) != "1" || got.Lease != int64(lease.ID) {
		t.Errorf("after the stop: %v", got)
	}
}

// TestRefusals: what cannot be served ends with an error in words that lead on.
func TestRefusals(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	ours(t)
	m := startMember(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	free, peer := "http://"+process.MustFreeAddr(), "http://"+process.MustFreeAddr()
	for _, c := range []struct {
		name string
		args []string
		want string // pattern of what it says
	}{
		{"unknown flag", []string{"--data-dri", "x"}, `(?s)data-dri.*data-dir`},
		{"not a URL", []string{"--listen-client-urls", "nonsense"}, `nonsense`},
		{
			"not a number",
			[]string{"--quota-backend-bytes", "much"},
			`(?i)quota-backend-bytes.*much|much.*quota`,
		},
		{
			"data directory is a file",
			[]string{"--data-dir", file, "--listen-client-urls", free, "--advertise-client-urls", free},
			regexp.QuoteMeta(file),
		},
		{
			"port in use",
			[]string{
				"--data-dir", filepath.Join(t.TempDir(), "d"),
				"--listen-client-urls", m.url, "--advertise-client-urls", m.url,
			},
			regexp.QuoteMeta(strings.TrimPrefix(m.url, "http://")),
		},
		{
			"certificate that is not there",
			[]string{
				"--data-dir", filepath.Join(t.TempDir(), "d"), "--cert-file", "/no/such.crt",
				"--key-file", "/no/such.key",
				"--listen-client-urls", strings.Replace(free, "http:", "https:", 1),
				"--advertise-client-urls", strings.Replace(free, "http:", "https:", 1),
			},
			`/no/such`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			// Not on the port for members that is the default, which another may have.
			args := append(strings.Fields(*serveFlag), "--listen-peer-urls", peer)
			cmd := exec.CommandContext(ctx, server.Path(t), append(args, c.args...)...)
			cmd.Dir = t.TempDir() // a default data directory must not end up in the sources
			out, err := cmd.CombinedOutput()
			if err == nil || ctx.Err() != nil {
				t.Errorf("it starts: %v\n%s", err, out)
			}
			if !regexp.MustCompile(c.want).Match(out) {
				t.Errorf("it does not say %q:\n%s", c.want, out)
			}
			if strings.Contains(string(out), "goroutine ") {
				t.Errorf("it panics:\n%s", out)
			}
		})
	}
}

// TestVersion: scripts that look for etcd's version find it.
func TestVersion(t *testing.T) {
	tier.Campaign(t)
	args := append(strings.Fields(*serveFlag), "--version")
	out, err := exec.CommandContext(t.Context(), server.Path(t), args...).CombinedOutput()
	if err != nil || !regexp.MustCompile(`(?m)^etcd Version: 3\.7\.\d+`).Match(out) {
		t.Errorf("--version: %v\n%s", err, out)
	}
}

// TestPages asks for the pages that stand beside the API on the one port.
func TestPages(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	m := startMember(t)
	for path, want := range map[string]string{
		"/version": `"etcdserver":"3\.7\.\d+".*"etcdcluster":"3\.7\.0"`,
		"/health":  `^\{"health":"true","reason":""\}`,
		"/livez":   `^ok`,
		"/readyz":  `^ok`,
		"/metrics": `(?m)^go_goroutines \d`,
	} {
		if status, body := fetch(t, http.MethodGet, m.url+path, ""); status != http.StatusOK ||
			!regexp.MustCompile(want).MatchString(body) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}

// TestGateway puts, reads and grants in JSON: keys in base64, numbers of 64 bits
// as strings out and as either in.
func TestGateway(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	m := startMember(t)
	for _, c := range []struct {
		path, body, want string
		status           int
	}{
		{"/v3/kv/put", `{"key":"Zm9v","value":"YmFy"}`, `"revision":"2"`, http.StatusOK},
		{"/v3/kv/range", `{"key":"Zm9v"}`, `"value":"YmFy"`, http.StatusOK},
		{"/v3/lease/grant", `{"TTL":"60","ID":7}`, `"ID":"7","TTL":"60"`, http.StatusOK},
		{"/v3/lease/grant", `{"TTL":60,"ID":"7"}`, `lease already exists`, http.StatusBadRequest},
		{"/v3/lease/keepalive", `{"ID":7}`, `"result":.*"TTL":"60"`, http.StatusOK},
		{"/v3/lease/timetolive", `{"ID":7}`, `"grantedTTL":"60"`, http.StatusOK},
		{"/v3/kv/put", `{"key":`, `.`, http.StatusBadRequest},
		{"/v3/kv/put", `{"key":"","value":"YmFy"}`, `key is not provided`, http.StatusBadRequest},
		{"/v3/nothing", `{}`, `.`, http.StatusNotFound},
	} {
		status, body := fetch(t, http.MethodPost, m.url+c.path, c.body)
		body = strings.ReplaceAll(body, ", ", ",") // spacing is free
		if status != c.status || !regexp.MustCompile(c.want).MatchString(body) {
			t.Errorf("%s %s: %d %s\nwant %d %s", c.path, c.body, status, body, c.status, c.want)
		}
		if status == http.StatusOK && !json.Valid([]byte(body)) {
			t.Errorf("%s answers what is not JSON: %s", c.path, body)
		}
	}
}

func fetch(t *testing.T, method, url, body string) (status int, answer string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(text)
}
