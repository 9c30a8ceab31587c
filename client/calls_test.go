package client

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/holder"
)

// TestFIFO checks that the queue of calls preserves their order, and that it does not grow even if
// it is rarely empty.
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

// TestOpenCallsCounts checks that only calls other than watches are expected to be answered soon,
// and that renewals are not limited.
func TestOpenCallsCounts(t *testing.T) {
	var o openCalls
	calls := map[kind]*call{}
	for i, k := range []kind{read, numbered, renewal, watching} {
		calls[k] = &call{kind: k, id: uint64(i)*openSlots + 1}
		o.add(calls[k])
	}
	if o.len() != 4 || o.calls != 2 || o.watches != 1 || !o.waiting() {
		t.Errorf("%d open, %d calls, %d watches", o.len(), o.calls, o.watches)
	}
	o.setKind(calls[numbered], watching)
	o.remove(calls[read])
	if o.len() != 3 || o.calls != 0 || o.watches != 2 || !o.waiting() {
		t.Errorf("%d open, %d calls, %d watches", o.len(), o.calls, o.watches)
	}
	o.remove(calls[renewal])
	if o.waiting() || !o.has(calls[numbered]) || o.has(calls[read]) {
		t.Error("the open calls are not the two watches")
	}
}

// TestMessageBytes checks that only the last request can make a message larger than maxMessage,
// because members end the stream if a message is much larger.
func TestMessageBytes(t *testing.T) {
	refs := make([]holder.Ref, maxRenewals)
	for i := range refs {
		refs[i] = holder.Ref{ID: math.MaxInt64, Token: math.MaxInt64}
	}
	renew := &pb.Request_Renew{Renew: columns(&holder.Batch{Leases: refs})}
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
