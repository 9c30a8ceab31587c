package etcd

import (
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"leasehold.dev/internal/api/etcd/v3electionpb"
	"leasehold.dev/internal/fsm"
)

// TestLockOtherKeys checks that any key below the prefix can precede a lock, even if it has no
// lease or belongs to another lock. Programs that use etcd's concurrency package wait for such keys
// too.
func TestLockOtherKeys(t *testing.T) {
	n := newNode(t)
	c := serve(t, n, Options{})
	n.grant(t, 1, 10_000)
	others := []string{"l/by hand", "l/inner/2"}
	for _, key := range others {
		if _, err := c.Put(ctx10(t), &pb.PutRequest{Key: []byte(key)}); err != nil {
			t.Fatal(err)
		}
	}
	got := c.lockAsync(ctx10(t), "l", 1)
	n.waitKeys(t, len(others)+1)
	var gone int64
	for _, key := range others {
		r, err := c.DeleteRange(ctx10(t), &pb.DeleteRangeRequest{Key: []byte(key)})
		if err != nil {
			t.Fatal(err)
		}
		gone = r.Header.Revision
	}
	a := <-got
	if a.err != nil || string(a.resp.Key) != "l/1" || a.resp.Header.Revision < gone {
		t.Errorf("it got %v; the last key before it went at revision %d", a, gone)
	}
}

// TestEqualCreateRevisions checks that if one transaction creates two keys, the smaller key comes
// first (etcd #18163). Observers see only the leader with that key, and only that candidate's
// Campaign returns.
func TestEqualCreateRevisions(t *testing.T) {
	n := newNode(t)
	c := serve(t, n, Options{})
	n.grant(t, 0x21, 100_000)
	n.grant(t, 0x22, 100_000)
	n.apply(t, &fsm.Txn{Then: []fsm.Op{
		{Put: &fsm.Put{Key: "e/22", Value: []byte("two"), Lease: 0x22}},
		{Put: &fsm.Put{Key: "e/21", Value: []byte("one"), Lease: 0x21}},
	}})
	seen := make([]v3electionpb.Election_ObserveClient, 8)
	for i := range seen {
		seen[i] = observe(t, c, "e")
		if r, err := seen[i].Recv(); err != nil || string(r.Kv.Key) != "e/21" {
			t.Fatalf("observer %d gets %v, %v", i, r, err)
		}
	}
	lead, err := c.election.Leader(ctx10(t), &v3electionpb.LeaderRequest{Name: []byte("e")})
	if err != nil || string(lead.Kv.Key) != "e/21" {
		t.Errorf("the leader is %v, %v", lead, err)
	}
	for i := range 20 {
		n.apply(t, &fsm.Put{Key: "e/other", Value: []byte{byte(i)}})
	}
	if a := <-campaign(ctx10(t), c, 0x21, "one"); a.err != nil {
		t.Error("the first candidate:", a.err)
	}
	second := campaign(ctx10(t), c, 0x22, "two")
	n.apply(t, &fsm.Revoke{ID: 0x21})
	gone := n.View().KV.Revision()
	if a := <-second; a.err != nil || a.resp.Header.Revision < gone {
		t.Errorf("the second leads with %v; the first resigned at revision %d", a, gone)
	}
	for i, s := range seen {
		if r, err := s.Recv(); err != nil || string(r.Kv.Key) != "e/22" {
			t.Errorf("observer %d then gets %v, %v", i, r, err)
		}
	}
}
