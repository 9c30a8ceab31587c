package etcd

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// marshal is the encoding that every frame is held against.
func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (f *watchFrame) message() *pb.WatchResponse {
	resp := &pb.WatchResponse{
		Header: &pb.ResponseHeader{
			ClusterId: f.cluster, MemberId: f.member, Revision: f.revision, RaftTerm: f.term,
		},
		WatchId:  f.id,
		Fragment: f.fragment,
	}
	for _, e := range f.events {
		m := &mvccpb.Event{Kv: pair(e.Change().KV)}
		if e.IsDelete() {
			m.Type = mvccpb.Event_DELETE
		}
		if f.prev && e.Change().Prev != nil {
			m.PrevKv = pair(e.Change().Prev)
		}
		resp.Events = append(resp.Events, m)
	}
	return resp
}

// someEvents are events of all shapes, small and large.
func someEvents() []*api.Event {
	large := bytes.Repeat([]byte("x"), shareAbove)
	kvs := []*mvcc.KeyValue{
		{Key: "a", ModRevision: 2},
		{Key: "b", Value: []byte("v"), CreateRevision: 1, ModRevision: 2, Version: 3, Lease: 4},
		{Key: "c", Value: large, CreateRevision: math.MaxInt64, ModRevision: 5, Version: 128},
		{Key: strings.Repeat("k", 127), Value: make([]byte, 200), Lease: -1, ModRevision: 6},
		{Key: "", Value: []byte{}, ModRevision: -7},
		{Key: strings.Repeat("k", 128), Value: large[:shareAbove-200], ModRevision: 1 << 14},
	}
	var out []*api.Event
	for i, kv := range kvs {
		out = append(out,
			api.NewEvent(&mvcc.Event{KV: kv}),
			api.NewEvent(&mvcc.Event{KV: kv, Prev: kvs[(i+1)%len(kvs)]}),
			api.NewEvent(&mvcc.Event{
				KV: &mvcc.KeyValue{Key: kv.Key, ModRevision: 9}, Prev: kv, Delete: true,
			}))
	}
	return out
}

// TestWatchFrame: the bytes of a watch response are those of proto.Marshal.
func TestWatchFrame(t *testing.T) {
	events := someEvents()
	for n := range len(events) {
		for _, prev := range []bool{false, true} {
			f := &watchFrame{
				stamp: stamp{identity{1 << 63, math.MaxUint64}, int64(n), 7},
				id:    int64(n % 3), prev: prev, fragment: n%2 == 1, events: events[:n],
			}
			want := marshal(t, f.message())
			got := f.buffers()
			if !bytes.Equal(got.Materialize(), want) {
				t.Fatalf("%d events, prev %v: differs from proto.Marshal", n, prev)
			}
			if f.Size() != len(want) {
				t.Errorf("%d events, prev %v: size %d, want %d", n, prev, f.Size(), len(want))
			}
		}
	}
}

// TestEventShared: an event is encoded once for all who watch with the same
// options, and one without a previous pair once for all.
func TestEventShared(t *testing.T) {
	for i, e := range someEvents() {
		plain, full := encoded(e, false), encoded(e, true)
		if encoded(e, false) != plain || encoded(e, true) != full {
			t.Errorf("event %d was encoded again", i)
		}
		if (plain == full) != (e.Change().Prev == nil) {
			t.Errorf("event %d: plain and full share their bytes: %v", i, plain == full)
		}
	}
	large := someEvents()[6]
	f := &watchFrame{events: []*api.Event{large}}
	a, b := f.buffers(), f.buffers()
	if &a[1].ReadOnlyData()[0] != &b[1].ReadOnlyData()[0] {
		t.Error("a large event was copied")
	}
}

// TestFits: fragments are as large as they may be, smaller than the limit
// unless a single event is not, and none is empty.
func TestFits(t *testing.T) {
	events := someEvents()
	for _, limit := range []int{1, 50, 300, 4500, 10000, 1 << 20} {
		f := &watchFrame{stamp: stamp{revision: 1}, prev: true}
		for rest := events; len(rest) > 0; {
			n := f.fits(rest, limit)
			if n < 1 {
				t.Fatal("an empty fragment")
			}
			f.events, f.fragment = rest[:n], true
			if n > 1 && f.Size() >= limit {
				t.Errorf("limit %d: a fragment of %d events has %d bytes", limit, n, f.Size())
			}
			if n < len(rest) {
				f.events = rest[:n+1]
				if f.Size() < limit {
					t.Errorf("limit %d: one more event would have fitted", limit)
				}
			}
			rest = rest[n:]
		}
	}
}

// TestRenewedFrame: the bytes of a keep-alive response are proto.Marshal's.
func TestRenewedFrame(t *testing.T) {
	for _, r := range []renewal{
		{id: 1, ttl: 5000},
		{id: math.MaxInt64, ttl: 9_000_000_000_000, revision: 1 << 40, term: 3},
		{id: 7, err: lease.ErrNotFound},
		{id: 7, ttl: 100, revision: 1},
		{},
	} {
		f := &renewedFrame{identity: identity{5, 1 << 63}}
		f.set(&r)
		want := marshal(t, &pb.LeaseKeepAliveResponse{
			Header: &pb.ResponseHeader{
				ClusterId: 5, MemberId: 1 << 63, Revision: r.revision, RaftTerm: r.term,
			},
			ID: int64(r.id), TTL: f.ttl,
		})
		got := f.buffers()
		if !bytes.Equal(got.Materialize(), want) {
			t.Errorf("%+v differs from proto.Marshal", r)
		}
	}
}

// TestKeepAliveRequest: requests to keep a lease alive are read as proto.Unmarshal does it,
// also into a message that was used before: those with only an ID, others, and what is none.
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

// TestCodecFallsThrough: what is not a frame is gRPC's own codec's business.
func TestCodecFallsThrough(t *testing.T) {
	c := newCodec()
	m := &pb.PutRequest{Key: []byte("k"), Value: []byte("v")}
	b, err := c.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var back pb.PutRequest
	if err := c.Unmarshal(b, &back); err != nil || !proto.Equal(m, &back) {
		t.Errorf("came back as %v, %v", &back, err)
	}
	if _, err := c.Marshal("not a message"); err == nil {
		t.Error("marshalled a string")
	}
	if c.Name() != "proto" {
		t.Errorf("the name is %q", c.Name())
	}
}

// TestWholeSeconds: T24: TTLs are rounded down, and 0 means gone.
func TestWholeSeconds(t *testing.T) {
	for ttl, want := range map[lease.TTL]int64{
		1: 1, 999: 1, 1000: 1, 1999: 1, 2000: 2, 9_000_000_000_000: 9_000_000_000,
	} {
		if got := wholeSeconds(ttl); got != want {
			t.Errorf("%d ms are %d s, want %d", ttl, got, want)
		}
	}
}
