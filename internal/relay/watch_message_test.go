package relay

import (
	"testing"

	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
)

// TestHead checks that the head that a relay builds for a watch response decodes to the original
// response, with the given request ID.
func TestHead(t *testing.T) {
	body, err := proto.Marshal(&pb.WatchResponse{Header: &pb.Header{Revision: 7}, Fragment: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []uint64{1, 127, 128, 1<<63 - 1} {
		for _, b := range [][]byte{body, make([]byte, 300)} {
			var seen []response
			message := append(head(id, len(b)), b...)
			ok := parseResponses(message, func(r response) { seen = append(seen, r) })
			if !ok || len(seen) != 1 || seen[0].id != id || !seen[0].more ||
				string(seen[0].watch) != string(b) {
				t.Errorf("request %d: %v, %v", id, seen, ok)
			}
		}
		m := new(pb.ServerMessage)
		if err := proto.Unmarshal(append(head(id, len(body)), body...), m); err != nil {
			t.Fatal(err)
		}
		want := &pb.ServerMessage{Responses: []*pb.Response{{
			Id: id, More: true, Body: &pb.Response_Watch{Watch: &pb.WatchResponse{
				Header: &pb.Header{Revision: 7}, Fragment: true,
			}},
		}}}
		if !proto.Equal(m, want) {
			t.Errorf("%v", m)
		}
	}
}

// TestEqual checks that watches count as equal only if nothing but their start differs. Callers
// count as equal regardless of their addresses.
func TestEqual(t *testing.T) {
	watch := func() *pb.WatchRequest { return &pb.WatchRequest{Key: []byte("k"), ProgressMs: 5} }
	_, same, _ := mergeable(watch())
	from := watch()
	from.StartRevision = 9
	if _, what, ok := mergeable(from); !ok || what != same {
		t.Error("a different start makes watches differ")
	}
	for name, change := range map[string]func(*pb.WatchRequest){
		"key":       func(r *pb.WatchRequest) { r.Key = []byte("l") },
		"range":     func(r *pb.WatchRequest) { r.RangeEnd = []byte("l") },
		"pairs":     func(r *pb.WatchRequest) { r.PrevKv = true },
		"no puts":   func(r *pb.WatchRequest) { r.NoPut = true },
		"no delete": func(r *pb.WatchRequest) { r.NoDelete = true },
		"progress":  func(r *pb.WatchRequest) { r.ProgressMs = 6 },
		"later":     func(r *pb.WatchRequest) { r.ProtoReflect().SetUnknown([]byte{0xf8, 0x07, 1}) },
	} {
		r := watch()
		change(r)
		if _, what, ok := mergeable(r); ok && what == same {
			t.Errorf("%s: different watches are equal", name)
		}
	}
	fields := func(list ...string) (out []*pb.RelayHeaderField) {
		for i := 0; i < len(list); i += 2 {
			out = append(out, &pb.RelayHeaderField{Name: list[i], Value: []byte(list[i+1])})
		}
		return out
	}
	one := callerOf(&pb.RelayCall{Headers: fields("token", "a", "x", "1", "x", "2")})
	if again := callerOf(&pb.RelayCall{
		Headers: fields("x", "1", "user-agent", "u", "token", "a", "x", "2"), Address: "here",
	}); again.sum != one.sum {
		t.Error("equal callers differ")
	}
	for name, call := range map[string]*pb.RelayCall{
		"another token": {Headers: fields("token", "b", "x", "1", "x", "2")},
		"no token":      {Headers: fields("x", "1", "x", "2")},
		"another order": {Headers: fields("token", "a", "x", "2", "x", "1")},
		"a certificate": {Headers: fields("token", "a", "x", "1", "x", "2"), Certificate: []byte("c")},
	} {
		if callerOf(call).sum == one.sum {
			t.Errorf("%s: different callers are equal", name)
		}
	}
}

// FuzzWatchMessage checks that the relay parses any message from a member like the protobuf
// library.
func FuzzWatchMessage(f *testing.F) {
	for _, m := range []*pb.WatchResponse{
		{Header: &pb.Header{Revision: 3}},
		{Header: &pb.Header{Revision: 9}, Events: []*pb.Event{
			{Kv: &pb.KeyValue{Key: []byte("k"), ModRevision: 8}},
			{Kv: &pb.KeyValue{Key: []byte("k"), ModRevision: 9}},
		}},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, int64(8))
	}
	f.Fuzz(func(t *testing.T, b []byte, at int64) {
		received, ok := parseWatchMessage(b)
		m := new(pb.WatchResponse)
		if !ok || proto.Unmarshal(b, m) != nil || len(m.Events) == 0 {
			return
		}
		rest, err := received.after(at)
		if err != nil || rest == nil {
			return
		}
		left := new(pb.WatchResponse)
		if err := proto.Unmarshal(rest, left); err != nil {
			t.Fatal(err)
		}
		if received.first > 0 && received.first <= at && len(left.Events) >= len(m.Events) {
			t.Errorf("after %d there are %d of %d events", at, len(left.Events), len(m.Events))
		}
	})
}

// TestRecentOfAll checks that there is a common limit on the recent events that shared watches keep
// for new watchers, and that the events are freed when the watches end.
func TestRecentOfAll(t *testing.T) {
	m := newMerger(newMetrics())
	const groups = maxAllRecent/maxRecent + 100
	var all []*group
	for range groups {
		g := &group{merger: m}
		all = append(all, g)
		for at := int64(1); at <= 3; at++ {
			g.keepLocked(watchMessage{bytes: make([]byte, maxRecent/2-cost), revision: at, first: at})
		}
		if n := m.recent.Load(); n > maxAllRecent {
			t.Fatalf("%d bytes kept", n)
		}
	}
	if first, last := all[0], all[groups-1]; len(first.recent) != 2 || first.floor != 1 ||
		len(last.recent) != 0 || last.floor != 3 {
		t.Errorf("the first keeps %d above %d, the last %d above %d", len(first.recent), first.floor,
			len(last.recent), last.floor)
	}
	for _, g := range all {
		g.forgetLocked(g.floor)
	}
	if n := m.recent.Load(); n != 0 {
		t.Errorf("%d bytes kept after all have ended", n)
	}
}
