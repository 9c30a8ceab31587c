package etcd

import (
	"bytes"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"
)

// TestGzip checks that a compressed request is answered like an uncompressed one, and that limits
// apply to its decompressed size.
func TestGzip(t *testing.T) {
	n := newNode(t)
	const most = 1 << 20
	c := serve(t, n, Options{MaxRequestBytes: most})
	for _, options := range [][]grpc.CallOption{nil, {grpc.UseCompressor("gzip")}} {
		put := func(size int) error {
			_, err := c.Put(ctx10(t),
				&pb.PutRequest{Key: []byte("a"), Value: make([]byte, size)}, options...)
			return err
		}
		if err := put(most / 2); err != nil {
			t.Errorf("put: %v", err)
		}
		if err := put(most + 1); rpctypes.Error(err) != rpctypes.ErrRequestTooLarge {
			t.Errorf("put above MaxRequestBytes: %v", err)
		}
		// This request is rejected before it is decompressed or read completely.
		if err := put(most + 2*requestOverhead); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("put above MaxRecvMsgSize: %v", err)
		}
		get, err := c.Range(ctx10(t), &pb.RangeRequest{Key: []byte("a")}, options...)
		if err != nil || len(get.Kvs) != 1 || len(get.Kvs[0].Value) != most/2 {
			t.Errorf("range: %v, %d keys", err, len(get.GetKvs()))
		}
	}
}

// TestGzipBroken checks that requests with corrupt compressed data do not block the decompression
// of later requests.
func TestGzipBroken(t *testing.T) {
	c := encoding.GetCompressor("gzip").(gzipCompressor)
	for range 2 * cap(c.slots) {
		if _, err := c.Decompress(bytes.NewReader([]byte("broken"))); err == nil {
			t.Fatal("broken data is decompressed")
		}
	}
	if len(c.slots) != 0 {
		t.Errorf("%d requests are still being decompressed", len(c.slots))
	}
}
