package cluster

import (
	"context"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/test/harness"
	"leasehold.dev/test/tier"
)

const (
	deadTTL = 8 * time.Second

	// lateness is how late a dead holder's lease may end, not counting the time without a leader.
	lateness = 500 * time.Millisecond

	// scheduling allows for a busy machine; it is not a promise of the service. The measured value
	// is logged. A leader that forgot how long a lease has been silent would restart the full TTL
	// after six tenths of it, and the test would fail.
	scheduling = deadTTL * 4 / 10
)

// A deadLease is a lease whose holder has sent its last renewal.
type deadLease struct {
	key         string
	sent, acked time.Duration // of the last renewal
}

// leaveLeases grants n leases with one key each, and renews each once through another member. They
// are never renewed again.
func leaveLeases(t *testing.T, c *cluster, n int) []deadLease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var list []deadLease
	for i := range n {
		a, b := c.members[i%len(c.members)].admin, c.members[(i+1)%len(c.members)].admin
		g, err := a.Grant(ctx, int64(deadTTL/time.Second))
		if err != nil {
			t.Fatal(err)
		}
		d := deadLease{key: fmt.Sprintf("dead/%x", g.ID)}
		if _, err := a.Put(ctx, d.key, "dead", clientv3.WithLease(g.ID)); err != nil {
			t.Fatal(err)
		}
		d.sent = now()
		if _, err := b.KeepAliveOnce(ctx, g.ID); err != nil {
			t.Fatal(err)
		}
		d.acked = now()
		list = append(list, d)
	}
	return list
}

// buried waits until all keys have been deleted. It returns how late the last deletion was,
// compared to the earliest instant at which its lease may end. The test fails if a key is deleted
// before the service may end its lease (L1).
func buried(t *testing.T, c *cluster, list []deadLease) (late time.Duration) {
	t.Helper()
	for _, d := range list {
		var last time.Duration // when the last successful read of the key was sent
		harness.Eventually(t, d.key+" is gone", func() error {
			for _, m := range c.members {
				if m.Ended() {
					continue
				}
				asked := now()
				ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
				r, err := m.admin.Get(ctx, d.key)
				cancel()
				switch {
				case err != nil:
					continue
				case len(r.Kvs) > 0:
					last = asked
					return fmt.Errorf("it exists at %v, renewed at %v", last, d.sent)
				}
				if at := now(); at < d.sent+deadTTL {
					t.Errorf("%s is gone at %v (L1), renewed at %v", d.key, at, d.sent)
				}
				return nil
			}
			return fmt.Errorf("no member answers")
		})
		late = max(late, last-d.acked-deadTTL)
	}
	return late
}

// TestDead checks that leases of dead holders end within TTL + 0.5 s + the time without a leader,
// even if the leader changes (L2, L7, T9).
func TestDead(t *testing.T) {
	tier.Campaign(t)
	c := newCluster(t, 3)
	for _, x := range []struct {
		name    string
		disturb func(t *testing.T, c *cluster) (leaderless time.Duration)
	}{
		{"leader killed midway", killInTheMiddle},
		{"five leader changes in a row", changeFiveTimes},
	} {
		t.Run(x.name, func(t *testing.T) {
			within := *c
			within.t = t
			before := stalled()
			list := leaveLeases(t, &within, 6)
			leaderless := x.disturb(t, &within)
			late := buried(t, &within, list)
			stood := stalled() - before
			t.Logf("the last lease ended %v late; %v without a leader; the machine stalled for %v",
				late.Round(time.Millisecond), leaderless.Round(time.Millisecond), stood)
			if limit := lateness + leaderless + scheduling + stood; late > limit {
				t.Errorf("%v late, want at most %v (L7)", late, limit)
			}
			for _, m := range c.members {
				if m.Ended() {
					m.launch()
				}
			}
			within.serves()
		})
	}
}

// killInTheMiddle kills the leader after the silent leases have been checkpointed.
func killInTheMiddle(_ *testing.T, c *cluster) time.Duration {
	c.wait(deadTTL * 6 / 10)
	leader := c.leader()
	leader.kill()
	return c.writes(c.others(leader)...)
}

// changeFiveTimes transfers leadership five times, between the checkpoint of the leases and the
// time at which they should end.
func changeFiveTimes(_ *testing.T, c *cluster) (leaderless time.Duration) {
	c.wait(deadTTL * 6 / 10)
	for range 5 {
		began := now()
		c.moveLeader()
		c.writes(c.members...)
		leaderless += now() - began
		c.wait(200 * time.Millisecond)
	}
	return leaderless
}
