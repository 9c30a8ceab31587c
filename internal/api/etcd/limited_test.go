package etcd

import (
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
)

// Goal: what is asked for on a stream of watches counts as a request also if it is refused for
// another reason, and a watch counts as long as there is one. Method: watches that are too large of
// what alice may not watch; then two of the same ID, and a cancel.
func TestLimitedWatches(t *testing.T) {
	n := newTenants(t)
	n.do(t, &fsm.SetLimits{
		Of: access.Holder{Kind: access.OfUser, Name: "alice"},
		List: []access.LimitChange{
			{What: access.RequestBytes, Most: 20}, {What: access.Watches, Most: 1},
		},
	})
	l := api.NewLimiter(func() *access.State { return n.View().Access }, 9)
	ctx := api.WithIdentity(api.WithLimiter(t.Context(), l), loginAs{n, "alice"})
	s := &sentStream{ctx: ctx}
	w := &watchStream{
		service: &watchService{node: n, maxBytes: 1 << 20}, stream: s, hub: n.hub.NewStream(),
		watchers: make(map[int64]*watcher), share: api.ShareOf(ctx, access.Watches),
	}
	defer w.close()
	// answered returns what the client is told next.
	answered := func() *pb.WatchResponse {
		t.Helper()
		s.sent = nil
		for len(s.sent) == 0 {
			b, ok := w.hub.Poll()
			if !ok {
				<-w.hub.Ready()
				continue
			}
			if err := w.answer(&b); err != nil {
				t.Fatal(err)
			}
		}
		return s.sent[0].(*pb.WatchResponse)
	}
	refused := func(r *pb.WatchCreateRequest, why string) {
		t.Helper()
		w.create(r)
		if r := answered(); !r.Canceled || !strings.Contains(r.CancelReason, why) {
			t.Errorf("answer %v, want %q", r, why)
		}
	}
	has := func(what string, want int64) {
		t.Helper()
		r := access.NewRanking(0)
		if l.Rank(r); r.Rest[access.Watches] != want {
			t.Errorf("%s: %d watches, want %d", what, r.Rest[access.Watches], want)
		}
	}
	refused(&pb.WatchCreateRequest{Key: []byte("c")}, "permission denied")
	refused(&pb.WatchCreateRequest{Key: []byte(strings.Repeat("c", 30))}, "bytes in one request")
	has("none", 0)
	w.create(&pb.WatchCreateRequest{Key: []byte("a"), WatchId: 5})
	if r := answered(); !r.Created || r.Canceled {
		t.Fatalf("answer %v", r)
	}
	refused(&pb.WatchCreateRequest{Key: []byte("a")}, "watches at one member")
	n.do(t, &fsm.SetLimits{
		Of:   access.Holder{Kind: access.OfUser, Name: "alice"},
		List: []access.LimitChange{{What: access.Watches, Most: 2}},
	})
	refused(&pb.WatchCreateRequest{Key: []byte("a"), WatchId: 5}, "")
	has("one", 1)
	if err := w.hub.Cancel(5); err != nil {
		t.Fatal(err)
	}
	if r := answered(); !r.Canceled {
		t.Errorf("answer %v", r)
	}
	has("after a cancel", 0)
}
