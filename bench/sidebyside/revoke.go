package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// attach puts n keys below prefix and attaches them to the lease.
func attach(
	ctx context.Context, c *clientv3.Client, id clientv3.LeaseID, n int,
) (prefix string, err error) {
	prefix = fmt.Sprintf("k/%x/", id)
	const batch = 100 // etcd allows 128 operations per txn
	err = each(8, n/batch, func(i int) error {
		var ops []clientv3.Op
		for j := range batch {
			key := fmt.Sprintf("%s%06d", prefix, i*batch+j)
			ops = append(ops, clientv3.OpPut(key, "", clientv3.WithLease(id)))
		}
		_, err := c.Txn(ctx).Then(ops...).Commit()
		return err
	})
	return prefix, err
}

// renewedWithoutKeys (T5) revokes a lease with 5,000 keys through a follower. Meanwhile, a client
// performs linearizable reads of the keys there and renews the lease at the leader. The trial
// checks whether any renewal succeeds although it was sent after the keys were found to be gone.
func renewedWithoutKeys(ctx context.Context, c *cluster, t trial) (result, error) {
	const keys = 5000
	rounds, late, roundsLate := 5*t.tries, 0, 0
	for i := range rounds {
		lead, others, err := c.leader(ctx)
		if err != nil {
			return result{}, err
		}
		n, err := renewalsWithoutKeys(ctx, lead.client, others[0].client, keys)
		if err != nil {
			return result{}, err
		}
		t.say("round %d: %d renewals", i, n)
		late += n
		if n > 0 {
			roundsLate++
		}
	}
	seen := fmt.Sprintf("%d renewals succeeded after the keys were seen gone, in %d of %d rounds",
		late, roundsLate, rounds)
	return result{shown: late > 0, seen: seen}, nil
}

func renewalsWithoutKeys(
	ctx context.Context, leader, follower *clientv3.Client, keys int,
) (late int, err error) {
	l, err := follower.Grant(ctx, 60)
	if err != nil {
		return 0, err
	}
	prefix, err := attach(ctx, follower, l.ID, keys)
	if err != nil {
		return 0, err
	}
	revoked := async(func() error {
		_, err := follower.Revoke(ctx, l.ID)
		return err
	})
	for {
		r, err := follower.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			return 0, err
		}
		if r.Count == int64(keys) {
			continue
		}
		if r.Count != 0 {
			return 0, fmt.Errorf("%d of %d keys of a lease", r.Count, keys)
		}
		ttl, err := renew(ctx, leader, l.ID)
		if err != nil {
			return 0, err
		}
		if ttl <= 0 {
			return late, (<-revoked).err
		}
		late++
	}
}

// renewedAfterRevoke (T6) delays the leader's apply loop while a lease is revoked through a
// follower. In etcd, defragmenting a store of 256 MiB causes the delay; leasehold gets the same
// calls. The trial checks whether the leader renews the lease after the revoke was acknowledged.
func renewedAfterRevoke(ctx context.Context, c *cluster, t trial) (result, error) {
	lead, others, err := c.leader(ctx)
	if err != nil {
		return result{}, err
	}
	value := strings.Repeat("x", 1<<20)
	if err := each(4, 256, func(i int) error {
		_, err := lead.client.Put(ctx, fmt.Sprint("filler/", i), value)
		return err
	}); err != nil {
		return result{}, err
	}
	t.say("filled")
	late, roundsLate, longest := 0, 0, time.Duration(0)
	for range t.tries {
		n, d, err := renewalsAfterRevoke(ctx, lead, others[0])
		if err != nil {
			return result{}, err
		}
		t.say("%d renewals, until %v after the revoke", n, d)
		if late += n; n > 0 {
			roundsLate++
		}
		longest = max(longest, d)
	}
	if late == 0 {
		return result{seen: fmt.Sprintf(
			"no renewal succeeded that was sent after the revoke was acknowledged, in %d rounds",
			t.tries)}, nil
	}
	return result{shown: true, seen: fmt.Sprintf(
		"%d renewals succeeded that were sent after the revoke was acknowledged, "+
			"in %d of %d rounds, the last was answered %v after it",
		late, roundsLate, t.tries, longest.Round(time.Millisecond))}, nil
}

// renewalsAfterRevoke counts renewals that succeeded although they were sent after the revoke of
// their lease was acknowledged. It also returns when the last of them was answered.
func renewalsAfterRevoke(
	ctx context.Context, lead, follower *member,
) (n int, last time.Duration, err error) {
	l, err := follower.client.Grant(ctx, 60)
	if err != nil {
		return 0, 0, err
	}
	if _, err := follower.client.Put(ctx, "held", "", clientv3.WithLease(l.ID)); err != nil {
		return 0, 0, err
	}
	held := async(func() error {
		_, err := lead.client.Defragment(ctx, lead.url)
		return err
	})
	if err := pause(ctx, 20*time.Millisecond); err != nil {
		return 0, 0, err
	}
	if _, err := follower.client.Revoke(ctx, l.ID); err != nil {
		return 0, 0, err
	}
	acknowledged := time.Now()
	for {
		ttl, err := renew(ctx, lead.client, l.ID)
		if err != nil {
			return 0, 0, err
		}
		if ttl <= 0 {
			return n, last, (<-held).err
		}
		n, last = n+1, time.Since(acknowledged)
	}
}
