package page

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	withBrowser = flag.Bool("browser", false, "run the tests, which need Chromium")
	chromium    = flag.String("chromium", "", "`path` of the browser (default: the one that is found)")
	axe         = flag.String("axe", "", "`path` of axe.min.js of axe-core (default: not looked at)")
	patience    = flag.Duration("patience", 3*time.Minute, "how long to wait for anything")
	pictures    = flag.String("pictures", "", "`directory` in which to leave pictures of the page")
	server      = flag.String("server", "", "`binary` to test (default: built now)")
)

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	flag.Parse()
	if !*withBrowser {
		fmt.Println("not run: they need a browser; go test -browser")
		return 0
	}
	dir, err := os.MkdirTemp("", "leasehold-page-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it is temporary
	if *server == "" {
		*server = filepath.Join(dir, "leasehold")
		build := exec.Command("go", "build", "-o", *server, "./cmd/leasehold")
		build.Dir = "../.."
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
			return 1
		}
	}
	if err := vouch(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if browser.end != nil {
		browser.end()
	}
	return code
}

// member is a server process.
type member struct {
	*testing.T
	url  string
	args []string
	cmd  *exec.Cmd
	done chan struct{}
	log  *bytes.Buffer
}

// lastPort is the last port that a test tried to use. It is below the kernel's ephemeral port
// range. Otherwise an outgoing connection could take the port of a member that is down or starting.
var lastPort = 10_000 + rand.IntN(10_000)

// ports returns local addresses that are free and have not been used by an earlier test.
func ports(t *testing.T, n int) (out []string) {
	t.Helper()
	for range 1000 {
		lastPort++
		if l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", lastPort)); err == nil {
			_ = l.Close() // nothing was written
			out = append(out, l.Addr().String())
		}
		if len(out) == n {
			return out
		}
	}
	t.Fatal("no port is free")
	return nil
}

// cluster starts a cluster and waits until it is serving.
func cluster(t *testing.T, n int, flags ...string) []*member {
	t.Helper()
	return clusterOf(t, "http", n, flags)
}

// secureCluster is like cluster, but clients connect with TLS.
func secureCluster(t *testing.T, n int, flags ...string) []*member {
	t.Helper()
	return clusterOf(t, "https", n, append([]string{
		"--cert-file", vouched.cert, "--key-file", vouched.key,
	}, flags...))
}

func clusterOf(t *testing.T, scheme string, n int, flags []string) []*member {
	t.Helper()
	at := ports(t, 2*n)
	var initial []string
	for i := range n {
		initial = append(initial, fmt.Sprintf("m%d=http://%s", i+1, at[n+i]))
	}
	var all []*member
	for i := range n {
		m := &member{T: t, url: scheme + "://" + at[i]}
		m.args = append([]string{
			"serve", "--name", fmt.Sprint("m", i+1), "--data-dir", t.TempDir(),
			"--listen-client-urls", m.url, "--advertise-client-urls", m.url,
			"--listen-peer-urls", "http://" + at[n+i],
			"--initial-advertise-peer-urls", "http://" + at[n+i],
			"--initial-cluster", strings.Join(initial, ","), "--log-level", "error",
		}, flags...)
		m.start()
		all = append(all, m)
	}
	for _, m := range all {
		m.await()
	}
	return all
}

// start starts the process, also after kill.
func (m *member) start() {
	m.Helper()
	cmd, done, log := exec.Command(*server, m.args...), make(chan struct{}), new(bytes.Buffer)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		m.Fatal(err)
	}
	m.cmd, m.done, m.log = cmd, done, log
	go func() {
		_ = cmd.Wait() // the error reports the kill
		close(done)
	}()
	m.Cleanup(func() {
		_ = cmd.Process.Kill() // the process may have exited
		<-done
	})
}

// name returns the member's name in the cluster.
func (m *member) name() string { return m.args[slices.Index(m.args, "--name")+1] }

// kill ends the process abruptly, like a power failure.
func (m *member) kill() {
	_ = m.cmd.Process.Kill() // the process may have exited
	<-m.done
}

// await waits until the member is serving.
func (m *member) await() {
	m.Helper()
	limit, end := context.WithTimeout(m.Context(), *patience)
	defer end()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		r, err := http.NewRequestWithContext(limit, http.MethodGet, m.url+"/readyz", nil)
		if err != nil {
			m.Fatal(err)
		}
		if resp, err := vouched.client.Do(r); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-tick.C:
		case <-m.done:
			m.Fatalf("the member has ended: %s", m.log)
		case <-limit.Done():
			m.Fatalf("the member does not serve: %s", m.log)
		}
	}
}

// as is a login token that call sends.
type as string

// call calls the JSON API and returns the answer.
func (m *member) call(path string, body map[string]any, who ...as) map[string]any {
	m.Helper()
	if body == nil {
		body = map[string]any{}
	}
	data, err := json.Marshal(body)
	if err != nil {
		m.Fatal(err)
	}
	ctx, end := context.WithTimeout(m.Context(), *patience)
	defer end()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, m.url+path, bytes.NewReader(data))
	if err != nil {
		m.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for _, token := range who {
		r.Header.Set("Authorization", string(token))
	}
	resp, err := vouched.client.Do(r)
	if err != nil {
		m.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // the body is read completely
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		m.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		m.Fatalf("%s: %s %s", path, resp.Status, text)
	}
	var out map[string]any
	if err := json.Unmarshal(text, &out); err != nil {
		m.Fatal(err)
	}
	return out
}

// until calls the JSON API repeatedly until ok accepts the answer.
func (m *member) until(path string, who as, ok func(answer map[string]any) bool) {
	m.Helper()
	limit, end := context.WithTimeout(m.Context(), *patience)
	defer end()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !ok(m.call(path, nil, who)) {
		select {
		case <-tick.C:
		case <-limit.Done():
			m.Fatalf("%s does not become what it should", path)
		}
	}
}

// grant grants a lease and returns its ID in decimal.
func (m *member) grant(body map[string]any) string {
	m.Helper()
	return m.call("/v1/leases/grant", body)["lease"].(map[string]any)["id"].(string)
}

// put puts a key.
func (m *member) put(key, value string, more map[string]any) {
	m.Helper()
	body := map[string]any{"key": b64(key), "value": b64(value)}
	for k, v := range more {
		body[k] = v
	}
	m.call("/v1/store/put", body)
}

// get returns the value of a key and whether the key exists.
func (m *member) get(key string) (string, bool) {
	m.Helper()
	kvs, _ := m.call("/v1/store/range", map[string]any{"key": b64(key)})["kvs"].([]any)
	if len(kvs) == 0 {
		return "", false
	}
	value, _ := kvs[0].(map[string]any)["value"].(string)
	b, err := base64.StdEncoding.DecodeString(value)
	if err != nil {
		m.Fatal(err)
	}
	return string(b), true
}

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// many grants n leases in transactions of a hundred.
func (m *member) many(n int) {
	m.Helper()
	for from := 0; from < n; from += 100 {
		var ops []any
		for i := from; i < min(from+100, n); i++ {
			ops = append(ops, map[string]any{"grant": map[string]any{
				"id": fmt.Sprint(i + 1), "ttl_ms": 3_600_000, "name": fmt.Sprintf("many/%06d", i),
				"owner": fmt.Sprintf("node-%d", i%50), "labels": map[string]any{"zone": fmt.Sprint(i % 3)},
			}})
		}
		if m.call("/v1/store/txn", map[string]any{"success": ops})["succeeded"] != true {
			m.Fatalf("the leases from %d on were not granted", from)
		}
	}
}

// proxy starts a proxy that removes a prefix from request paths, and returns its address.
func proxy(t *testing.T, to, prefix string) string {
	t.Helper()
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(http.StripPrefix(prefix, &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(u)
			r.Out.Host = r.In.Host // the member recognizes its own pages by the Host header
		},
		FlushInterval: -1, // forward the event stream without buffering
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// hex formats an ID as the page does.
func hex(t *testing.T, id string) string {
	t.Helper()
	var n int64
	if _, err := fmt.Sscan(id, &n); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%016x", uint64(n))
}
