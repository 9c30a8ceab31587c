package server

import (
	"bytes"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	pb "leasehold.dev/api/leasehold/v1"

	"leasehold.dev/internal/backoff"
)

// attach checks that Attach and Detach move keys in one revision without changing their values or
// create revisions.
func (n nativeTest) attach() {
	ctx := n.t.Context()
	one, two := n.grant(&pb.GrantRequest{}).Lease, n.grant(&pb.GrantRequest{}).Lease
	keys := [][]byte{[]byte(n.prefix + "a"), []byte(n.prefix + "b")}
	for _, k := range keys {
		n.put(n.t, string(k), "value of "+string(k))
	}
	before, err := n.client.Get(ctx, n.prefix, clientv3.WithPrefix())
	if err != nil {
		n.t.Fatal(err)
	}
	check := func(lease, revision, version int64) {
		n.t.Helper()
		now, err := n.client.Get(ctx, n.prefix, clientv3.WithPrefix())
		if err != nil {
			n.t.Fatal(err)
		}
		for i, kv := range now.Kvs {
			if was := before.Kvs[i]; !bytes.Equal(kv.Value, was.Value) || kv.Lease != lease ||
				kv.CreateRevision != was.CreateRevision || kv.ModRevision != revision ||
				kv.Version != version {
				n.t.Errorf("%v, want lease %d at %d; it was %v", kv, lease, revision, was)
			}
		}
	}
	a, err := n.Attach(ctx, &pb.AttachRequest{Lease: ref(one), Keys: keys})
	if err != nil {
		n.t.Fatal(err)
	}
	check(one.Id, a.Header.Revision, 2)
	a, err = n.Attach(ctx, &pb.AttachRequest{Lease: &pb.LeaseRef{Id: two.Id}, Keys: keys})
	if err != nil {
		n.t.Fatal(err)
	}
	check(two.Id, a.Header.Revision, 3)
	_, err = n.Detach(ctx, &pb.DetachRequest{Keys: keys, Lease: ref(one)})
	n.is(err, pb.Reason_REASON_KEY_NOT_FOUND)
	check(two.Id, a.Header.Revision, 3)
	d, err := n.Detach(ctx, &pb.DetachRequest{Keys: keys, Lease: ref(two)})
	if err != nil {
		n.t.Fatal(err)
	}
	check(0, d.Header.Revision, 4)
	n.revoke(two)
	check(0, d.Header.Revision, 4)

	none := [][]byte{keys[0], []byte(n.prefix + "none")}
	_, err = n.Attach(ctx, &pb.AttachRequest{Lease: ref(one), Keys: none})
	if e := n.is(err, pb.Reason_REASON_KEY_NOT_FOUND); !strings.Contains(e.Message, "none") {
		n.t.Errorf("the missing key is not named: %s", e.Message)
	}
	_, err = n.Attach(ctx, &pb.AttachRequest{Lease: ref(two), Keys: keys})
	n.is(err, pb.Reason_REASON_LEASE_NOT_FOUND)
	check(0, d.Header.Revision, 4)
}

// handOver checks that handing over a lease gives it a new token and invalidates the old one.
func (n nativeTest) handOver() {
	ctx := n.t.Context()
	old := n.grant(&pb.GrantRequest{
		Name: n.prefix, Owner: "one", Resumable: true,
		Keys: []*pb.Pair{{Key: []byte(n.prefix + "k"), Value: []byte("v")}},
	})
	resp, err := n.HandOver(ctx, &pb.HandOverRequest{
		Lease: ref(old.Lease), Owner: "two", Resumable: true,
	})
	if err != nil {
		n.t.Fatal(err)
	}
	now := resp.Lease
	if now.Id != old.Lease.Id || now.Owner != "two" || now.Token <= old.Lease.Token ||
		now.RemainingMs != 60_000 || len(resp.Secret) != 32 {
		n.t.Errorf("handed over: %v", resp)
	}
	if r := n.renew(ref(old.Lease), ref(now)); r[0].Reason != pb.Reason_REASON_LEASE_NOT_FOUND ||
		r[1].Reason != 0 {
		n.t.Errorf("renewals: %v", r)
	}
	_, err = n.Resume(ctx, &pb.ResumeRequest{Id: now.Id, Secret: old.Secret})
	n.is(err, pb.Reason_REASON_LEASE_NOT_FOUND)
	if d := n.describe(now.Id); d.Owner != "two" || d.Name != n.prefix || d.KeyCount != 1 {
		n.t.Errorf("described: %v", d)
	}
}

// resume checks that a process with the secret can resume the lease, by ID or by name.
func (n nativeTest) resume() {
	ctx := n.t.Context()
	g := n.grant(&pb.GrantRequest{Name: n.prefix, Owner: "one", Resumable: true})
	last := g.Lease
	for _, r := range []*pb.ResumeRequest{
		{Id: g.Lease.Id, Secret: g.Secret}, {Name: n.prefix, Secret: g.Secret},
	} {
		resp, err := n.Resume(ctx, r)
		if err != nil {
			n.t.Fatal(err)
		}
		if resp.Lease.Token <= last.Token || resp.Lease.Owner != "one" {
			n.t.Errorf("resumed: %v", resp)
		}
		if r := n.renew(ref(last)); r[0].Reason != pb.Reason_REASON_LEASE_NOT_FOUND {
			n.t.Errorf("the process before renewed: %v", r)
		}
		last = resp.Lease
	}
	wrong := bytes.Clone(g.Secret)
	wrong[31] ^= 1
	_, err := n.Resume(ctx, &pb.ResumeRequest{Id: g.Lease.Id, Secret: wrong})
	n.is(err, pb.Reason_REASON_LEASE_NOT_FOUND)
	_, err = n.Resume(ctx, &pb.ResumeRequest{Id: g.Lease.Id, Secret: wrong[1:]})
	n.is(err, pb.Reason_REASON_INVALID)
	plain := n.grant(&pb.GrantRequest{}).Lease
	_, err = n.Resume(ctx, &pb.ResumeRequest{Id: plain.Id, Secret: make([]byte, 32)})
	n.is(err, pb.Reason_REASON_LEASE_NOT_FOUND)
}

// changeTTL checks that a changed TTL takes effect immediately and for later renewals. Errors state
// the bounds.
func (n nativeTest) changeTTL() {
	ctx := n.t.Context()
	l := n.grant(&pb.GrantRequest{}).Lease
	resp, err := n.ChangeTTL(ctx, &pb.ChangeTTLRequest{Lease: ref(l), TtlMs: 3_600_000})
	if err != nil || resp.Lease.TtlMs != 3_600_000 || resp.Lease.Token != l.Token {
		n.t.Fatalf("longer: %v, %v", resp, err)
	}
	if d := n.describe(l.Id); d.TtlMs != 3_600_000 || d.RemainingMs < 3_000_000 {
		n.t.Errorf("described: %v", d)
	}
	if r := n.renew(ref(l)); r[0].TtlMs != 3_600_000 {
		n.t.Errorf("renewed: %v", r)
	}
	for _, ttl := range []int64{99, 0, -1, 9_000_000_000_001} {
		_, err := n.ChangeTTL(ctx, &pb.ChangeTTLRequest{Lease: ref(l), TtlMs: ttl})
		d := n.is(err, pb.Reason_REASON_INVALID)
		_, err = n.Grant(ctx, &pb.GrantRequest{TtlMs: ttl})
		g := n.is(err, pb.Reason_REASON_INVALID)
		for _, e := range []*pb.Error{d, g} {
			if !strings.Contains(e.Message, "100 and 9000000000000 ms") {
				n.t.Errorf("bounds are not named: %s", e.Message)
			}
		}
	}
	_, err = n.ChangeTTL(ctx, &pb.ChangeTTLRequest{
		Lease: &pb.LeaseRef{Id: l.Id}, TtlMs: 5000,
	})
	n.is(err, pb.Reason_REASON_INVALID)
}

// lockDelay checks that after a lease expires, its name and keys remain for the lock delay.
// Revocation releases both immediately.
func (n nativeTest) lockDelay() {
	ctx := n.t.Context()
	l := n.grant(&pb.GrantRequest{
		TtlMs: 100, Name: n.prefix, LockDelayMs: 600_000,
		Keys: []*pb.Pair{{Key: []byte(n.prefix + "k"), Value: []byte("v")}},
	}).Lease
	var d *pb.Lease
	eventually(n.t, "the lease is delayed", func() bool {
		d = n.describe(l.Id)
		// A follower may report the lease as delayed before it has read the remaining lock delay,
		// which is 0 until then.
		return d.Delayed && d.RemainingMs > 0
	})
	if d.Name != n.prefix || d.TtlMs != 100 || d.LockDelayMs != 600_000 || d.KeyCount != 1 ||
		d.RemainingMs < 300_000 {
		n.t.Errorf("delayed: %v", d)
	}
	if list := n.pages(&pb.ListRequest{NamePrefix: n.prefix}, nil); len(list) != 1 ||
		!list[0].Delayed || list[0].RemainingMs < 300_000 {
		n.t.Errorf("listed: %v", list)
	}
	if r := n.renew(ref(l)); r[0].Reason != pb.Reason_REASON_LEASE_NOT_FOUND {
		n.t.Errorf("renewed: %v", r)
	}
	c, err := n.CheckToken(ctx, &pb.CheckTokenRequest{Name: n.prefix, Token: l.Token})
	if err != nil || c.Valid || c.Current != 0 {
		n.t.Errorf("its token: %v, %v", c, err)
	}
	_, err = n.Grant(ctx, &pb.GrantRequest{TtlMs: 5000, Name: n.prefix})
	if e := n.is(err, pb.Reason_REASON_NAME_TAKEN); !e.Holder.GetDelayed() {
		n.t.Errorf("the holder of the name: %v", e.Holder)
	}
	if v := n.get(n.t, n.prefix+"k"); v != "v" {
		n.t.Errorf("its key is %q", v)
	}
	n.revoke(l)
	n.grant(&pb.GrantRequest{Name: n.prefix})
	if v := n.get(n.t, n.prefix+"k"); v != "none" {
		n.t.Errorf("after the revoke its key is %q", v)
	}
	short := n.grant(&pb.GrantRequest{TtlMs: 100, LockDelayMs: 100}).Lease
	n.ended(short.Id)
}

// keep checks that keys can outlive their expired lease. They are then attached to no lease.
func (n nativeTest) keep() {
	keys := []*pb.Pair{{Key: []byte(n.prefix + "k"), Value: []byte("v")}}
	l := n.grant(&pb.GrantRequest{
		TtlMs: 100, AtExpiry: pb.AtExpiry_AT_EXPIRY_KEEP, Keys: keys,
	}).Lease
	if l.AtExpiry != pb.AtExpiry_AT_EXPIRY_KEEP {
		n.t.Errorf("granted %v", l)
	}
	n.ended(l.Id)
	got, err := n.client.Get(n.t.Context(), n.prefix+"k")
	if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "v" || got.Kvs[0].Lease != 0 {
		n.t.Errorf("kept: %v, %v", got, err)
	}
	l = n.grant(&pb.GrantRequest{TtlMs: 100, Keys: keys}).Lease
	n.ended(l.Id)
	if v := n.get(n.t, n.prefix+"k"); v != "none" {
		n.t.Errorf("not kept: %q", v)
	}
}

// short checks that a lease of 100 ms expires on its own, but not if it is renewed in time.
func (n nativeTest) short() {
	n.ended(n.grant(&pb.GrantRequest{TtlMs: 100}).Lease.Id)
	l := n.grant(&pb.GrantRequest{TtlMs: 100}).Lease
	for i := range 10 {
		backoff.Sleep(n.t.Context(), 30*time.Millisecond)
		if r := n.renew(ref(l)); r[0].Reason != 0 {
			n.t.Fatalf("renewal %d, in time: %v (L1)", i, r)
		}
	}
}

// interplay checks that leases granted through either API can be used through the other.
func (n nativeTest) interplay() {
	ctx := n.t.Context()
	l := n.grant(&pb.GrantRequest{
		TtlMs: 90_500, Name: n.prefix, Keys: []*pb.Pair{{Key: []byte(n.prefix + "k")}},
	}).Lease
	id := clientv3.LeaseID(l.Id)
	ttl, err := n.client.TimeToLive(ctx, id, clientv3.WithAttachedKeys())
	if err != nil || ttl.GrantedTTL != 90 || ttl.TTL > 90 || ttl.TTL < 60 || len(ttl.Keys) != 1 {
		n.t.Errorf("time to live: %v, %v", ttl, err)
	}
	all, err := n.client.Leases(ctx)
	if err != nil || !slices.ContainsFunc(all.Leases, func(s clientv3.LeaseStatus) bool {
		return s.ID == id
	}) {
		n.t.Errorf("leases: %v, %v", all, err)
	}
	if alive, err := n.client.KeepAliveOnce(ctx, id); err != nil || alive.TTL != 90 {
		n.t.Errorf("kept alive: %v, %v", alive, err)
	}
	if _, err := n.client.Revoke(ctx, id); err != nil {
		n.t.Error(err)
	}
	n.ended(l.Id)

	g, err := n.client.Grant(ctx, 77)
	if err != nil {
		n.t.Fatal(err)
	}
	n.put(n.t, n.prefix+"k", "v", clientv3.WithLease(g.ID))
	d := n.describe(int64(g.ID))
	if d.TtlMs != 77_000 || d.RemainingMs > 77_000 || d.KeyCount != 1 || d.Token == 0 {
		n.t.Errorf("described: %v", d)
	}
	if r := n.renew(ref(d)); r[0].Reason != 0 || r[0].TtlMs != 77_000 {
		n.t.Errorf("renewed: %v", r)
	}
	n.revoke(d)
	if v := n.get(n.t, n.prefix+"k"); v != "none" {
		n.t.Errorf("the key is %q", v)
	}
}
