package etcd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/protobuf/proto"

	"leasehold.dev/internal/replica"
)

// TestHeaders checks that every response contains the cluster, member, term and revision.
func TestHeaders(t *testing.T) {
	n := newNode(t)
	n.grant(t, 1, 10_000)
	c := serve(t, n, Options{})
	ctx := ctx10(t)
	check := func(name string, h *pb.ResponseHeader, err error, rev int64) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want := &pb.ResponseHeader{
			ClusterId: testCluster, MemberId: testMember, RaftTerm: 2, Revision: rev,
		}
		if !proto.Equal(h, want) {
			t.Errorf("%s: header %v, want %v", name, h, want)
		}
	}
	put, err := c.Put(ctx, &pb.PutRequest{Key: []byte("a")})
	check("put", put.GetHeader(), err, 2)
	get, err := c.Range(ctx, &pb.RangeRequest{Key: []byte("a")})
	check("range", get.GetHeader(), err, 2)
	txn, err := c.Txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{putOp("b")}})
	check("txn", txn.GetHeader(), err, 3)
	txn, err = c.Txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{getOp("b", "")}})
	check("read-only txn", txn.GetHeader(), err, 3)
	del, err := c.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: []byte("a")})
	check("delete", del.GetHeader(), err, 4)
	compact, err := c.Compact(ctx, &pb.CompactionRequest{Revision: 2})
	check("compact", compact.GetHeader(), err, 4)
	ttl, err := c.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: 1})
	check("time to live", ttl.GetHeader(), err, 4)
	leases, err := c.LeaseLeases(ctx, &pb.LeaseLeasesRequest{})
	check("leases", leases.GetHeader(), err, 4)
	revoke, err := c.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: 1})
	check("revoke", revoke.GetHeader(), err, 4)
	st, err := c.Status(ctx, &pb.StatusRequest{})
	check("status", st.GetHeader(), err, 4)
	list, err := c.MemberList(ctx, &pb.MemberListRequest{})
	check("member list", list.GetHeader(), err, 0)
	auth, err := c.AuthStatus(ctx, &pb.AuthStatusRequest{})
	check("auth status", auth.GetHeader(), err, 4)
}

// TestS1Confirm checks that a linearizable call waits for a confirm round and fails if the round
// fails. A member that is cut off can still answer serializable calls.
func TestS1Confirm(t *testing.T) {
	n := newNode(t)
	n.put(t, "a", "1")
	n.confirm = replica.ErrNoLeader
	c := serve(t, n, Options{})
	ctx := ctx10(t)
	weak := getOp("a", "")
	weak.GetRequestRange().Serializable = true
	for _, tt := range []struct {
		name string
		call func() error
		want error
	}{
		{"range", func() error {
			_, err := c.Range(ctx, &pb.RangeRequest{Key: []byte("a")})
			return err
		}, rpctypes.ErrGRPCTimeout},
		{"serializable range", func() error {
			_, err := c.Range(ctx, &pb.RangeRequest{Key: []byte("a"), Serializable: true})
			return err
		}, nil},
		{"txn", func() error {
			_, err := c.Txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{getOp("a", "")}})
			return err
		}, rpctypes.ErrGRPCTimeout},
		{"serializable txn", func() error {
			_, err := c.Txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{weak}})
			return err
		}, nil},
		{"range stream", func() error {
			s, err := c.RangeStream(ctx, &pb.RangeRequest{Key: []byte("a")})
			if err == nil {
				_, err = s.Recv()
			}
			return err
		}, rpctypes.ErrGRPCTimeout},
		{"serializable range stream", func() error {
			s, err := c.RangeStream(ctx, &pb.RangeRequest{Key: []byte("a"), Serializable: true})
			if err == nil {
				_, err = s.Recv()
			}
			return err
		}, nil},
		{"member list", func() error {
			_, err := c.MemberList(ctx, &pb.MemberListRequest{Linearizable: true})
			return err
		}, rpctypes.ErrGRPCTimeout},
		{"member list, any", func() error {
			_, err := c.MemberList(ctx, &pb.MemberListRequest{})
			return err
		}, nil},
		{"status", func() error {
			_, err := c.Status(ctx, &pb.StatusRequest{})
			return err
		}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) { wantStatus(t, tt.call(), tt.want) })
	}
}

// TestRequestSize checks that a request above the limit is rejected with etcd's error message,
// unless gRPC rejects it first.
func TestRequestSize(t *testing.T) {
	c := serve(t, newNode(t), Options{MaxRequestBytes: 1000})
	ctx := ctx10(t)
	put := func(n int) error {
		_, err := c.Put(ctx, &pb.PutRequest{Key: []byte("a"), Value: make([]byte, n)})
		return err
	}
	wantStatus(t, put(900), nil)
	// plus 3 bytes for the key, and 3 for the tag and length of the value
	wantStatus(t, put(994), nil)
	wantStatus(t, put(995), rpctypes.ErrGRPCRequestTooLarge)
	wantStatus(t, put(100_000), rpctypes.ErrGRPCRequestTooLarge)
	if err := put(1000 + requestOverhead); err == nil {
		t.Error("a huge request was taken")
	}
	_, err := c.Txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{
		{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{
			Key: []byte("a"), Value: make([]byte, 1000),
		}}},
	}})
	wantStatus(t, err, rpctypes.ErrGRPCRequestTooLarge)
	_, err = c.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: make([]byte, 1000)})
	wantStatus(t, err, rpctypes.ErrGRPCRequestTooLarge)
}

// TestRangeStream checks that a large range is sent in parts, all from the same revision, with the
// header and count in the last part.
func TestRangeStream(t *testing.T) {
	n := newNode(t)
	const keys = 200
	value := bytes.Repeat([]byte("v"), 10<<10)
	for i := range keys {
		n.put(t, fmt.Sprintf("k%03d", i), string(value))
	}
	c := serve(t, n, Options{})
	for _, tt := range []struct {
		req         *pb.RangeRequest
		kvs         int
		more        bool
		parts       int // the minimum
		count       int64
		valueLength int
	}{
		{&pb.RangeRequest{}, keys, false, 4, keys, len(value)},
		{&pb.RangeRequest{Limit: 150}, 150, true, 3, keys, len(value)},
		{&pb.RangeRequest{Limit: keys}, keys, false, 4, keys, len(value)},
		{&pb.RangeRequest{Revision: 11}, 10, false, 1, 10, len(value)},
		{&pb.RangeRequest{KeysOnly: true}, keys, false, 1, keys, 0},
		{&pb.RangeRequest{CountOnly: true}, 0, false, 1, keys, 0},
	} {
		tt.req.Key, tt.req.RangeEnd = []byte("k"), []byte("l")
		s, err := c.RangeStream(ctx10(t), tt.req)
		if err != nil {
			t.Fatal(err)
		}
		whole := &pb.RangeResponse{}
		parts := 0
		for {
			r, err := s.Recv()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if whole.Header != nil {
				t.Errorf("%v: a part after the last", tt.req)
			}
			proto.Merge(whole, r.RangeResponse)
			parts++
			n.put(t, fmt.Sprintf("k%03d", keys-1), string(value)) // not visible to the range
		}
		if len(whole.Kvs) != tt.kvs || whole.More != tt.more || whole.Count != tt.count ||
			parts < tt.parts {
			t.Errorf("%v: %d pairs of %d in %d parts, more %v",
				tt.req, len(whole.Kvs), whole.Count, parts, whole.More)
		}
		for i, kv := range whole.Kvs {
			if string(kv.Key) != fmt.Sprintf("k%03d", i) || len(kv.Value) != tt.valueLength {
				t.Fatalf("%v: pair %d is %s of %d bytes", tt.req, i, kv.Key, len(kv.Value))
			}
		}
	}
}
