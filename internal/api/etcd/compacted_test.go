package etcd

import (
	"context"
	"slices"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"leasehold.dev/internal/api/etcd/v3electionpb"
	"leasehold.dev/internal/fsm"
)

// compact compacts all revisions before the current one.
func (n *fakeNode) compact(t *testing.T) {
	t.Helper()
	rev := n.View().KV.Revision()
	if r, err := n.Propose(t.Context(), &fsm.Compact{Revision: rev}); err != nil || r.Err != nil {
		t.Fatal(err, r.Err)
	}
}

// TestWaiterCompacted checks that a waiter whose watches fall behind a compaction reads the current
// state instead. By then, the waiters ahead of it, or the waiter itself, may be gone.
func TestWaiterCompacted(t *testing.T) {
	for _, tt := range []struct {
		name string
		then []string // keys deleted before the compaction
		want error
	}{
		{"ahead gone", []string{"l/1"}, nil},
		{"self gone", []string{"l/2"}, errExpired},
		{"both gone", []string{"l/1", "l/2"}, errExpired},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t)
			n.put(t, "l/1", "")
			rev := n.put(t, "l/2", "")
			old := n.View()
			q := &queue{node: n, stop: context.Background()}
			ticket := &ticket{prefix: "l/", key: "l/2", revision: rev}
			ahead, err := q.ahead(t.Context(), old, ticket)
			if err != nil || ahead.Key != "l/1" {
				t.Fatal(ahead, err)
			}
			for _, key := range tt.then {
				_, _ = n.Propose(t.Context(), &fsm.DeleteRange{Key: key})
			}
			for range 3 {
				n.put(t, "other", "x")
			}
			n.compact(t)
			w := &waiter{queue: q, ticket: ticket, stream: n.hub.NewStream()}
			defer w.stream.Close()
			wantStatus(t, w.wait(ctx10(t), old, ahead), tt.want)
		})
	}
}

// observed is an observer's stream that records what is sent.
type observed struct {
	grpc.ServerStream
	ctx  context.Context
	sent []string
	end  func(string) // called with each value
}

func (o *observed) Context() context.Context { return o.ctx }

func (o *observed) Send(r *v3electionpb.LeaderResponse) error {
	o.sent = append(o.sent, string(r.Kv.Value))
	o.end(string(r.Kv.Value))
	return nil
}

// TestT17ObserveCompacted checks that an observer that fell behind a compaction continues with the
// current leader and does not repeat any leader.
func TestT17ObserveCompacted(t *testing.T) {
	n := newNode(t)
	n.put(t, "e/1", "one")
	old := n.View()
	_, _ = n.Propose(t.Context(), &fsm.DeleteRange{Key: "e/1"})
	n.put(t, "e/2", "missed")
	n.put(t, "e/2", "two")
	n.put(t, "other", "x")
	n.compact(t)
	ctx, cancel := context.WithCancel(ctx10(t))
	defer cancel()
	s := &observed{ctx: ctx, end: func(v string) {
		if v == "two" {
			cancel()
		}
	}}
	svc := &electionService{queue: queue{node: n, stop: context.Background()}}
	o := &observer{service: svc, stream: s, prefix: "e/"}
	if again, err := o.follow(ctx, old); !again || err != nil {
		t.Fatal(again, err)
	}
	if again, err := o.follow(ctx, n.View()); again || err == nil {
		t.Fatal(again, err)
	}
	if !slices.Equal(s.sent, []string{"one", "two"}) {
		t.Errorf("sent %v", s.sent)
	}
}

// TestEmptyStore checks that an empty store has nonzero sizes and hashes, because the gateway's
// JSON would omit 0. The hash was recorded from etcd.
func TestEmptyStore(t *testing.T) {
	n := newNode(t)
	n.status.DBSize, n.status.DBSizeInUse = 0, 0
	c := serve(t, n, Options{})
	st, err := c.Status(ctx10(t), &pb.StatusRequest{})
	if err != nil || st.DbSize == 0 || st.DbSizeInUse == 0 {
		t.Errorf("status %v, %v", st, err)
	}
	h, err := c.Hash(ctx10(t), &pb.HashRequest{})
	if err != nil || h.Hash == 0 {
		t.Errorf("hash %v, %v", h, err)
	}
	kv, err := c.HashKV(ctx10(t), &pb.HashKVRequest{})
	if err != nil || kv.Hash != 1084519789 {
		t.Errorf("hash of the keys %v, %v", kv, err)
	}
}
