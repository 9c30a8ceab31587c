package client

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/holder"
)

// TestOpenCalls: the open calls are those of a map, whichever stay open for how long.
func TestOpenCalls(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var o openCalls
	model := make(map[uint64]*call)
	for last := uint64(1); last < 20*openSlots; last++ {
		c := &call{id: last}
		o.add(c)
		model[last] = c
		for range 2 {
			id := last - r.Uint64N(min(last, 3*openSlots))
			c := model[id]
			if o.get(id) != c {
				t.Fatalf("call %d: %v, want %v", id, o.get(id), c)
			}
			if c != nil {
				o.remove(c)
				delete(model, id)
			}
			if o.get(id) != nil || o.has(&call{id: id}) {
				t.Fatalf("call %d is open still", id)
			}
		}
		if o.len() != len(model) {
			t.Fatalf("%d calls, want %d", o.len(), len(model))
		}
	}
	if len(o.more) == 0 {
		t.Error("the table was large enough")
	}
	all := o.all()
	if len(all) != len(model) {
		t.Errorf("%d calls, want %d", len(all), len(model))
	}
	for i, c := range all {
		if model[c.id] != c || !o.has(c) || i > 0 && c.id <= all[i-1].id {
			t.Errorf("call %d is out of place", c.id)
		}
	}
}

// TestFIFO: calls come out as they went in, and a queue that is hardly ever empty does not
// grow.
func TestFIFO(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var f fifo
	var model []*call
	for range 10000 {
		if r.IntN(2) == 0 && len(model) < 100 {
			c := &call{}
			f.push(c)
			model = append(model, c)
		} else if len(model) > 0 {
			if f.first() != model[0] {
				t.Fatal("out of order")
			}
			f.pop()
			model = model[1:]
		}
		if f.len() != len(model) {
			t.Fatalf("%d calls, want %d", f.len(), len(model))
		}
	}
	if cap(f.list) > 400 {
		t.Errorf("it has room for %d", cap(f.list))
	}
	if !slices.Equal(f.drain(), model) || f.len() != 0 {
		t.Error("drained something else")
	}
}

// TestAtMost: no request has more bytes than it is taken to have at most.
func TestAtMost(t *testing.T) {
	long := make([]byte, 1<<21)
	put := &pb.PutRequest{
		Key: long, Value: long, Lease: -1, PrevKv: true, IgnoreValue: true, IgnoreLease: true,
		TtlMs: -1, LeaseRef: &pb.LeaseRef{Id: -1, Token: math.MaxUint64},
	}
	named := &pb.PutRequest{Key: long, LeaseRef: &pb.LeaseRef{Name: string(long)}}
	read := &pb.RangeRequest{
		Key: long, RangeEnd: long, Limit: -1, Revision: -1, Serializable: true, KeysOnly: true,
		CountOnly: true, Cache: &pb.LeaseRef{Id: -1, Token: math.MaxUint64},
	}
	for _, r := range []*pb.Request{
		{Body: &pb.Request_Put{Put: put}},
		{Body: &pb.Request_Put{Put: named}},
		{Body: &pb.Request_ReadRange{ReadRange: read}},
		{Body: &pb.Request_DeleteRange{DeleteRange: &pb.DeleteRequest{Key: long}}},
		{},
	} {
		r.Id, r.TimeoutMs, r.Number = math.MaxUint64, -1, math.MaxUint64
		r.Traceparent = strings.Repeat("0", 55)
		most, ok := atMost(r)
		if n := proto.Size(r); !ok || n > most || most > n+fixedBytes {
			t.Errorf("%T has %d bytes, at most %d", r.Body, n, most)
		}
	}
	named.LeaseRef.Name = "\xff" // with it the stream would end for everybody
	if _, ok := atMost(&pb.Request{Body: &pb.Request_Put{Put: named}}); ok {
		t.Error("a name that is no UTF-8 is sent")
	}
	for _, m := range []protoreflect.Message{put.ProtoReflect(), read.ProtoReflect()} {
		for i := range m.Descriptor().Fields().Len() {
			if f := m.Descriptor().Fields().Get(i); !m.Has(f) {
				t.Errorf("%s is new, and may not be counted", f.FullName())
			}
		}
	}
}

// TestMessageBytes: whatever is asked for, a message ends with the request by which it has
// maxMessage bytes: a member ends the stream for a message that is much larger.
func TestMessageBytes(t *testing.T) {
	refs := make([]holder.Ref, maxRenewals)
	for i := range refs {
		refs[i] = holder.Ref{ID: math.MaxInt64, Token: math.MaxInt64}
	}
	renew := &pb.Request_Renew{Renew: columns(refs)}
	watch := &pb.Request_Watch{Watch: &pb.WatchRequest{Key: make([]byte, 100<<10)}}
	l := newLink(0, nil, &fakeStream{ctx: t.Context()}, func() {})
	for range 20 {
		for _, c := range []*call{
			{kind: renewal, request: &pb.Request{Body: renew}},
			{kind: watching, request: &pb.Request{Body: watch}},
		} {
			if err := l.submit(c); err != nil {
				t.Fatal(err)
			}
		}
	}
	sent := 0
	for m := l.take(); m != nil; m = l.take() {
		n := len(m.Requests) - 1
		sent += n + 1
		m.Requests = m.Requests[:n]
		if size := proto.Size(m); size > maxMessage+1000 {
			t.Errorf("%d bytes, and one request more", size)
		}
	}
	if sent != 40 {
		t.Errorf("%d requests", sent)
	}
}
