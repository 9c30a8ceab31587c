package server

import (
	"context"
	"strconv"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"leasehold.dev/test/virtual"
)

// TestClientOfAnotherCluster checks that if an etcd client sends the ID of its cluster, a member of
// another cluster rejects its calls and streams.
func TestClientOfAnotherCluster(t *testing.T) { virtual.Test(t, testClientOfAnotherCluster) }

func testClientOfAnotherCluster(t *testing.T) {
	m := run(t, testConfig(t.TempDir()))
	for text, want := range map[string]codes.Code{
		"":                                     codes.OK,
		strconv.FormatUint(m.node.cluster, 16): codes.OK,
		"0x" + strconv.FormatUint(m.node.cluster, 16): codes.OK,
		strconv.FormatUint(m.node.cluster+1, 16):      codes.FailedPrecondition,
		"no number":                                   codes.InvalidArgument,
	} {
		ctx, cancel := context.WithCancel(t.Context())
		if text != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, keyCluster, text)
		}
		_, err := m.client.Put(ctx, "k"+text, "v")
		if got := status.Code(err); got != want {
			t.Errorf("put for cluster %q: %v, want %v", text, err, want)
		}
		if has := m.get(t, "k"+text) == "v"; has != (want == codes.OK) {
			t.Errorf("for cluster %q the key was put: %v", text, has)
		}
		_, err = m.client.KeepAliveOnce(ctx, 1) // a lease that does not exist
		if got := status.Code(err); (got == want) != (want != codes.OK) {
			t.Errorf("keep-alive for cluster %q: %v, want %v", text, err, want)
		}
		cancel()
	}
}
