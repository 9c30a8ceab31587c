package etcd

import (
	"bytes"
	"math"
	"slices"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// marshal returns the encoding that every frame is compared with.
func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestKeepAliveRequest checks that renewal requests are decoded as by proto.Unmarshal, even into a
// reused message.
func TestKeepAliveRequest(t *testing.T) {
	ones := bytes.Repeat([]byte{0xff}, 9)
	for _, b := range [][]byte{
		nil,
		{8},
		{8, 0},
		{8, 7},
		{8, 0x80},
		{8, 0x80, 0},
		{8, 7, 8, 9},
		{8, 7, 16, 9},
		{16, 7},
		{10, 1, 7},
		{13, 0, 0, 0, 0},
		{8, 7, 0},
		{7},
		slices.Concat([]byte{8}, ones, []byte{1}), slices.Concat([]byte{8}, ones, []byte{2}),
		slices.Concat([]byte{8}, ones, ones, []byte{1}),
		marshal(t, &pb.LeaseKeepAliveRequest{ID: math.MaxInt64}),
	} {
		var want pb.LeaseKeepAliveRequest
		wantErr := proto.Unmarshal(b, &want)
		for _, used := range [][]byte{nil, {8, 5, 16, 9}} {
			var got pb.LeaseKeepAliveRequest
			if err := proto.Unmarshal(used, &got); err != nil {
				t.Fatal(err)
			}
			err := newCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, &got)
			if (err == nil) != (wantErr == nil) || !proto.Equal(&got, &want) {
				t.Errorf("%x: %v, %v, want %v, %v", b, &got, err, &want, wantErr)
			}
		}
	}
}
