package server

import (
	"bytes"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	pb "leasehold.dev/api/leasehold/v1"
)

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
