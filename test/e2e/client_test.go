package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/test/harness"
	"leasehold.dev/test/tier"
)

// TestKeys does what every program does with keys, through clientv3.
func TestKeys(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	ctx, c := t.Context(), startMember(t).client()
	first, err := c.Put(ctx, "a", "1")
	if err != nil {
		t.Fatal(err)
	}
	if first.Header.Revision != 2 {
		t.Errorf("the first put of an empty store is revision %d, want 2", first.Header.Revision)
	}
	put, err := c.Put(ctx, "a", "2", clientv3.WithPrevKV())
	if err != nil {
		t.Fatal(err)
	}
	if put.PrevKv == nil || string(put.PrevKv.Value) != "1" {
		t.Errorf("previous pair %v", put.PrevKv)
	}
	if got := get(t, c, "a"); string(got.Value) != "2" || got.Version != 2 ||
		got.CreateRevision != 2 || got.ModRevision != 3 {
		t.Errorf("got %v", got)
	}
	if got := get(t, c, "a", clientv3.WithRev(2)); string(got.Value) != "1" {
		t.Errorf("at revision 2: %v", got)
	}
	txn, err := c.Txn(ctx).
		If(clientv3.Compare(clientv3.Value("a"), "=", "2")).
		Then(clientv3.OpPut("b", "3"), clientv3.OpGet("a", clientv3.WithPrefix())).
		Else(clientv3.OpDelete("a")).Commit()
	if err != nil {
		t.Fatal(err)
	}
	if !txn.Succeeded || txn.Header.Revision != 4 || txn.Responses[1].GetResponseRange().Count != 1 {
		t.Errorf("txn %v", txn)
	}
	del, err := c.Delete(ctx, "a", clientv3.WithFromKey())
	if err != nil {
		t.Fatal(err)
	}
	if del.Deleted != 2 {
		t.Errorf("%d keys deleted, want 2", del.Deleted)
	}
}

func get(t *testing.T, c *clientv3.Client, key string, opts ...clientv3.OpOption) *mvccpb.KeyValue {
	t.Helper()
	r, err := c.Get(t.Context(), key, opts...)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Kvs) != 1 {
		t.Fatalf("%d pairs for %q", len(r.Kvs), key)
	}
	return r.Kvs[0]
}

// TestErrors: what clients recognise by value must come as that value.
func TestErrors(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	ctx, c := t.Context(), startMember(t).client()
	for i := range 5 {
		if _, err := c.Put(ctx, "k", fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Compact(ctx, 4); err != nil {
		t.Fatal(err)
	}
	if err := grantWithID(ctx, c, 77); err != nil {
		t.Fatal(err)
	}
	put := func(key string, opts ...clientv3.OpOption) error {
		_, err := c.Put(ctx, key, "v", opts...)
		return err
	}
	at := func(revision int64) error {
		_, err := c.Get(ctx, "k", clientv3.WithRev(revision))
		return err
	}
	grant := func(ttl int64) error {
		_, err := c.Grant(ctx, ttl)
		return err
	}
	_, revokeErr := c.Revoke(ctx, 12345)
	_, renewErr := c.KeepAliveOnce(ctx, 12345)
	_, compactErr := c.Compact(ctx, 4)
	_, futureErr := c.Compact(ctx, 1000)
	_, twiceErr := c.Txn(ctx).Then(clientv3.OpPut("x", "1"), clientv3.OpPut("x", "2")).Commit()
	for _, check := range []struct {
		name      string
		got, want error
	}{
		{"put of an empty key", put(""), rpctypes.ErrEmptyKey},
		{"put on an unknown lease", put("k", clientv3.WithLease(12345)), rpctypes.ErrLeaseNotFound},
		{"put keeping the value of no key", put("none", clientv3.WithIgnoreValue()), nil},
		{"get of a compacted revision", at(2), rpctypes.ErrCompacted},
		{"get of a revision to come", at(1000), rpctypes.ErrFutureRev},
		{"grant of a used id", grantWithID(ctx, c, 77), rpctypes.ErrLeaseExist},
		{"grant of too long a TTL", grant(9_000_000_001), rpctypes.ErrLeaseTTLTooLarge},
		{"revoke of an unknown lease", revokeErr, rpctypes.ErrLeaseNotFound},
		{"renewal of an unknown lease", renewErr, rpctypes.ErrLeaseNotFound},
		{"compaction twice", compactErr, rpctypes.ErrCompacted},
		{"compaction to come", futureErr, rpctypes.ErrFutureRev},
		{"a key twice in a txn", twiceErr, rpctypes.ErrDuplicateKey},
	} {
		if check.want == nil {
			if check.got == nil {
				t.Errorf("%s: no error", check.name)
			}
			continue
		}
		// clientv3 gives the typed error to some calls and the status to others.
		if rpctypes.Error(check.got) == nil ||
			rpctypes.Error(check.got).Error() != rpctypes.Error(check.want).Error() {
			t.Errorf("%s: %v, want %v", check.name, check.got, check.want)
		}
	}
}

// TestWatch follows keys live and from the past, and meets compaction.
func TestWatch(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	ctx, c := t.Context(), startMember(t).client()
	live := c.Watch(clientv3.WithRequireLeader(ctx), "w/", clientv3.WithPrefix(),
		clientv3.WithPrevKV(), clientv3.WithCreatedNotify())
	if r := receive(t, "created", live); !r.Created {
		t.Fatalf("first answer %+v", r)
	}
	for _, v := range []string{"1", "2"} {
		if _, err := c.Put(ctx, "w/a", v); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Delete(ctx, "w/a"); err != nil {
		t.Fatal(err)
	}
	const want = "PUT w/a=1 @2, PUT w/a=2 @3 after 1, DELETE w/a= @4 after 2"
	if got := events(t, live, 3); got != want {
		t.Errorf("live: %s\nwant: %s", got, want)
	}
	past := c.Watch(ctx, "w/a", clientv3.WithRev(2), clientv3.WithPrevKV())
	if got := events(t, past, 3); got != want {
		t.Errorf("from the past: %s\nwant: %s", got, want)
	}
	if _, err := c.Compact(ctx, 3); err != nil {
		t.Fatal(err)
	}
	r := receive(t, "compaction error", c.Watch(ctx, "w/a", clientv3.WithRev(2)))
	if !errors.Is(r.Err(), rpctypes.ErrCompacted) || r.CompactRevision != 3 {
		t.Errorf("watch of a compacted revision: %v, compacted %d", r.Err(), r.CompactRevision)
	}
}

// events spells n events of a watch.
func events(t *testing.T, w clientv3.WatchChan, n int) string {
	t.Helper()
	var out string
	for n > 0 {
		r := receive(t, "events", w)
		if r.Err() != nil {
			t.Fatal(r.Err())
		}
		for _, ev := range r.Events {
			if out != "" {
				out += ", "
			}
			out += fmt.Sprintf("%s %s=%s @%d", ev.Type, ev.Kv.Key, ev.Kv.Value, ev.Kv.ModRevision)
			if ev.PrevKv != nil {
				out += " after " + string(ev.PrevKv.Value)
			}
			n--
		}
	}
	return out
}

// TestLeaseEnds grants 8 seconds, attaches foo, renews for a while, stops, and
// sees the key go: not before its time, and not long after.
func TestLeaseEnds(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	ctx, c := t.Context(), startMember(t).client()
	const ttl = 8 * time.Second
	lease, err := c.Grant(ctx, int64(ttl.Seconds()))
	if err != nil {
		t.Fatal(err)
	}
	w := c.Watch(ctx, "foo", clientv3.WithFilterPut())
	if _, err := c.Put(ctx, "foo", "bar", clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	alive, stop := context.WithCancel(ctx)
	renewals, err := c.KeepAlive(alive, lease.ID)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if r := receive(t, "renewal", renewals); r.TTL != int64(ttl.Seconds()) {
			t.Errorf("renewed for %d s", r.TTL)
		}
	}
	stop()
	// Only the server's last acknowledged renewal counts, and this is it.
	sent := time.Now()
	if _, err := c.KeepAliveOnce(ctx, lease.ID); err != nil {
		t.Fatal(err)
	}
	received := time.Now()
	if got := events(t, w, 1); got != "DELETE foo= @3" {
		t.Errorf("event %s", got)
	}
	if took := time.Since(sent); took < ttl {
		t.Errorf("L1: the lease ended %v after a renewal for %v", took, ttl)
	}
	if late := time.Since(received) - ttl; late > patience/4 {
		t.Errorf("the lease ended %v late", late)
	}
	r, err := c.TimeToLive(ctx, lease.ID)
	if err != nil || r.TTL != -1 {
		t.Errorf("after its end the lease has TTL %v, error %v", r, err)
	}
}

// TestClientSurvivesRestart kills the member under a client with a watch and a
// lease: the watch goes on from where it was (W1), the lease is still there.
func TestClientSurvivesRestart(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	m := startMember(t)
	ctx, c := t.Context(), m.client()
	lease, err := c.Grant(ctx, 60)
	if err != nil {
		t.Fatal(err)
	}
	w := c.Watch(ctx, "r/", clientv3.WithPrefix())
	put := func(v string) {
		t.Helper()
		harness.Eventually(t, "put "+v, func() error {
			ctx, cancel := context.WithTimeout(ctx, patience/3)
			defer cancel()
			_, err := c.Put(ctx, "r/"+v, v, clientv3.WithLease(lease.ID))
			return err
		})
	}
	put("1")
	if got := events(t, w, 1); got != "PUT r/1=1 @2" {
		t.Errorf("before: %s", got)
	}
	m.kill()
	m.start()
	put("2")
	if got := events(t, w, 1); got != "PUT r/2=2 @3" {
		t.Errorf("after: %s", got)
	}
	if _, err := c.KeepAliveOnce(ctx, lease.ID); err != nil {
		t.Errorf("the lease after the restart: %v", err)
	}
}
