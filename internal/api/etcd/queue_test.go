package etcd

import (
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// TestLockOtherKeys: a key below the prefix is before a lock also if it is on no lease, or if its
// name is of another lock: programs that use etcd's concurrency package wait for it, too.
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
