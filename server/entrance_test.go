package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/test/virtual"
)

// TestPagesWithoutMajority checks that a founder without a majority reports this on its pages and
// to callers, and begins serving once there is a majority.
func TestPagesWithoutMajority(t *testing.T) { virtual.Test(t, testPagesWithoutMajority) }

func testPagesWithoutMajority(t *testing.T) {
	configs := clusterConfigs(t, 3)
	alone := begin(t, configs[0])
	socket := configs[0].URLs.ListenClient[0].Path
	ctx := t.Context()
	const why = "no leader: member %x has none and has no connection to m"
	eventually(t, "the port is open", func() bool {
		conn, err := virtual.Dial(t.Context(), "unix", socket)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	})
	reason := fmt.Sprintf(why, alone.node.member)

	for path, want := range map[string]struct {
		code int
		text string
	}{
		"/livez":                    {http.StatusOK, "ok"},
		"/readyz":                   {http.StatusServiceUnavailable, reason},
		"/health":                   {http.StatusServiceUnavailable, "RAFT NO LEADER"},
		"/health?serializable=true": {http.StatusOK, `"true"`},
		"/metrics":                  {http.StatusOK, "leasehold_is_leader 0"},
		"/version":                  {http.StatusOK, "etcdserver"},
	} {
		code, text := page(ctx, t, socket, http.MethodGet, path, "")
		if code != want.code || !strings.Contains(text, want.text) {
			t.Errorf("%s: %d %.200s, want %d %s", path, code, text, want.code, want.text)
		}
	}

	conn, err := grpc.NewClient("unix:"+socket, virtual.GRPC(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	put := &etcdserverpb.PutRequest{Key: []byte("k")}
	_, err = etcdserverpb.NewKVClient(conn).Put(ctx, put, grpc.WaitForReady(true))
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), reason) {
		t.Errorf("put: %v", err)
	}
	stream, err := pb.NewStreamServiceClient(conn).Open(ctx)
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), reason) {
		t.Errorf("stream: %v", err)
	}
	body := `{"key": "aw==", "value": "dg=="}`
	code, text := page(ctx, t, socket, http.MethodPost, "/v3/kv/put", body)
	if code != http.StatusServiceUnavailable || !strings.Contains(text, reason) {
		t.Errorf("put as JSON: %d %s", code, text)
	}

	begin(t, configs[1]).await(t)
	alone.await(t).put(t, "k", "v")
	if _, err := etcdserverpb.NewKVClient(conn).Put(ctx, put); err != nil {
		t.Errorf("put of before, with a majority: %v", err)
	}
	if code, text := page(ctx, t, socket, http.MethodGet, "/readyz", ""); code != http.StatusOK {
		t.Errorf("/readyz with a majority: %d %s", code, text)
	}
}

// page requests a page from the member listening on a socket.
func page(
	ctx context.Context, t *testing.T, socket, method, path, body string,
) (code int, text string) {
	t.Helper()
	u := "http://localhost" + path
	req, err := http.NewRequestWithContext(ctx, method, u, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := webClient(t, socket).Do(req)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return resp.StatusCode, string(all)
}
