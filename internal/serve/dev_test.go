package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/test/tier"
)

// devPatience is how long a cluster can take to start, or to answer a client.
const devPatience = time.Minute

// dialTest returns an etcd client of the given members.
func dialTest(t *testing.T, endpoints ...string) (*clientv3.Client, context.Context) {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: endpoints})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), devPatience)
	t.Cleanup(cancel)
	return c, ctx
}

// TestDev checks that a development cluster prints its addresses, that every member is serving, and
// that nothing is left behind at the end.
func TestDev(t *testing.T) {
	tier.RealTime(t)
	tryDev(t, dev{members: 3, level: "error"}, 3)
}

// TestDevRelays is like TestDev, but with relays, and clients are directed to the relays.
func TestDevRelays(t *testing.T) {
	tier.Campaign(t)
	tryDev(t, dev{members: 3, relays: 2, level: "error"}, 2)
}

func tryDev(t *testing.T, d dev, places int) {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	ctx, stop := context.WithCancel(t.Context())
	r, w := io.Pipe()
	var stderr bytes.Buffer
	done := make(chan error, 1)
	go func() { done <- d.run(ctx, w, &stderr) }()
	timer := time.AfterFunc(devPatience, func() { r.CloseWithError(errors.New("too late")) })
	defer timer.Stop()
	said := make([]byte, 1<<10)
	n, err := r.Read(said)
	if err != nil {
		t.Fatalf("%v; %s", err, &stderr)
	}
	_, page, _ := strings.Cut(string(said[:n]), "in a browser: ")
	page, _, _ = strings.Cut(page, "\n")
	resp, err := http.Get(page)
	if err != nil {
		t.Fatalf("the page %q: %v", page, err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK || !strings.HasSuffix(page, "/ui/") {
		t.Errorf("the page %q answers %s", page, resp.Status)
	}
	_, list, ok := strings.Cut(string(said[:n]), "LEASEHOLD_ENDPOINTS=")
	list, _, _ = strings.Cut(list, "\n")
	endpoints := strings.Split(list, ",")
	if !ok || len(endpoints) != places {
		t.Fatalf("said %s", said[:n])
	}
	for i, e := range endpoints {
		writer, ctx := dialTest(t, e)
		if _, err := writer.Put(ctx, "key", e); err != nil {
			t.Fatal(err)
		}
		reader, ctx := dialTest(t, endpoints[(i+1)%places])
		got, err := reader.Get(ctx, "key")
		if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != e {
			t.Fatalf("wrote %s, read %v, %v", e, got, err)
		}
		members, err := reader.MemberList(ctx)
		if err != nil || len(members.Members) != 3 {
			t.Fatal(members, err)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("%v; %s", err, &stderr)
	}
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	if err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// TestDevAddresses checks that the default port yields the addresses used in etcd's examples, and
// that any other port yields addresses near it. Addresses never overlap, and mistakes are reported.
func TestDevAddresses(t *testing.T) {
	for _, tt := range []struct {
		port, members int
		want          string // client ports
	}{
		{2379, 3, "2379 22379 32379"},
		{2379, 7, "2379 22379 32379 42379 52379 62379 12379"},
		{7000, 3, "7000 7010 7020"},
		{7000, 1, "7000"},
	} {
		d := &dev{members: tt.members, port: tt.port}
		all, err := d.configs("dir", slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range all {
			got = append(got, c.URLs.ListenClient[0].Port())
			if len(c.Cluster.Initial) != tt.members || c.CheckBootstrap() != nil {
				t.Errorf("%s: %v", c.Name, c.Cluster.Initial)
			}
		}
		if s := strings.Join(got, " "); s != tt.want {
			t.Errorf("%d from %d: %s, want %s", tt.members, tt.port, s, tt.want)
		}
	}
	for line, want := range map[string]string{
		"--members=2":            "must be 1, 3, 5 or 7",
		"--port=-1":              "--port must be",
		"--port=65534":           "leaves no room",
		"--port=0 --data-dir=d":  "would change",
		"--log-level=loud":       "must be debug",
		"--port=7000 everything": "unknown command",
	} {
		c := DevCommand()
		c.SetOut(io.Discard)
		c.SetErr(io.Discard)
		c.SetArgs(strings.Fields(line))
		if err := c.Execute(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}

// portUser listens on the lowest free port.
type portUser struct {
	net.Listener
	port  int
	inUse map[int]bool
}

func (p *portUser) Addr() net.Addr { return &net.TCPAddr{Port: p.port} }

func (p *portUser) Close() error {
	delete(p.inUse, p.port)
	return nil
}

// TestDevFreePorts checks that no two members get the same free port. The system can reuse a port
// as soon as no process listens on it. Two founders with the same address would be one voter
// counted twice.
func TestDevFreePorts(t *testing.T) {
	inUse := make(map[int]bool)
	urls, err := freeURLs(6, func() (net.Listener, error) {
		port := 1
		for inUse[port] {
			port++
		}
		inUse[port] = true
		return &portUser{port: port, inUse: inUse}, nil
	})
	if err != nil || len(inUse) != 0 {
		t.Fatalf("%v; still in use: %v", err, inUse)
	}
	for i, u := range urls {
		if u.String() != fmt.Sprintf("http://127.0.0.1:%d", i+1) {
			t.Errorf("address %d is %v", i, u.String())
		}
	}
}

// TestDevFails checks that the other members stop if one member cannot run.
func TestDevFails(t *testing.T) {
	d := &dev{members: 3, port: 0}
	all, err := d.configs(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	all[2].URLs.ListenClient = all[1].URLs.ListenClient
	ctx, cancel := context.WithTimeout(t.Context(), devPatience)
	defer cancel()
	err = runAll(ctx, all, make(chan struct{}))
	if err == nil || ctx.Err() != nil {
		t.Errorf("ended with %v", err)
	}
}
