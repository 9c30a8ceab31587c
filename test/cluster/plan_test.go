package cluster

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/plan"
	"leasehold.dev/test/harness"
	"leasehold.dev/test/tier"
)

var planFlag = flag.Int("plan", 0, "rounds of TestPlan, half a minute each (default: skip it)")

// planTTL is the length of the leases of TestPlan. They are renewed at a third.
const planTTL = 4 * time.Second

// A planHolder holds a name by a lease that it renews on a stream of its own.
type planHolder struct {
	t      *testing.T
	client *clientv3.Client
	stream pb.Lease_LeaseKeepAliveClient
	lease  clientv3.LeaseID
	key    string
	sent   time.Duration // of the last renewal that was acknowledged
}

// holdName grants a lease through a member, puts the key on it and renews once.
func holdName(t *testing.T, through *member, key string) *planHolder {
	t.Helper()
	h := &planHolder{t: t, client: client(t, through), key: key}
	g, err := h.client.Grant(t.Context(), int64(planTTL/time.Second))
	if err != nil {
		t.Fatal(err)
	}
	h.lease = g.ID
	if _, err := h.client.Put(t.Context(), key, "holder", clientv3.WithLease(g.ID)); err != nil {
		t.Fatal(err)
	}
	h.open()
	if err := h.renew(); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *planHolder) open() {
	h.t.Helper()
	harness.Eventually(h.t, "a stream of renewals opens", func() (err error) {
		h.stream, err = pb.NewLeaseClient(h.client.ActiveConnection()).LeaseKeepAlive(h.t.Context())
		return err
	})
}

// renew sends one renewal and waits for its answer.
func (h *planHolder) renew() error {
	at := now()
	if err := h.stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(h.lease)}); err != nil {
		return err
	}
	r, err := h.stream.Recv()
	if err != nil {
		return err
	}
	if r.TTL <= 0 {
		return fmt.Errorf("lease %x is gone", h.lease)
	}
	h.sent = at
	return nil
}

// die closes the connection, as the death of the process does.
func (h *planHolder) die() { _ = h.client.Close() }

// takeOver tries for the name through members until it has it, and returns when.
func takeOver(t *testing.T, c *cluster, key string, through []*member) time.Duration {
	t.Helper()
	took := time.Duration(0)
	harness.Eventually(t, "the next holder has "+key, func() error {
		m := through[0]
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		r, err := m.admin.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
			Then(clientv3.OpPut(key, "next")).Commit()
		if err != nil {
			return err
		}
		if !r.Succeeded {
			return errors.New("it is held")
		}
		took = now()
		return nil
	})
	return took
}

// TestPlan holds the bounds of package plan against real processes: the scenarios
// of its simulation, once each a round. The leader is killed, so the bounds are
// those of a recovery of at most RecoveryCutOff.
//
//	go test ./test/cluster -run TestPlan -plan 1 -v
func TestPlan(t *testing.T) {
	tier.Campaign(t)
	if *planFlag == 0 {
		t.Skip("takes half a minute a round: -plan 1")
	}
	if *foreignFlag {
		t.Skip("about what leasehold promises")
	}
	c := newCluster(t, 3)
	choice := plan.Holder{
		TTL: planTTL, RoundTrip: 100 * time.Millisecond, Retry: 100 * time.Millisecond,
		Drift: plan.DefaultDrift,
	}
	for round := range *planFlag {
		for _, x := range []struct {
			name   string
			silent bool
			kill   time.Duration // of the leader after the death; below 0: never
			least  time.Duration // how long the outage must last, to be near the bound
		}{
			{"the issuer is well", false, -1, planTTL - 100*time.Millisecond},
			{"killed with the holder", false, 0, planTTL - 100*time.Millisecond},
			{"killed in the middle", false, planTTL / 2, planTTL - 100*time.Millisecond},
			{
				"killed as the lease ends", false, planTTL - 50*time.Millisecond,
				planTTL - 100*time.Millisecond,
			},
			{
				"silent, killed before it counts", true, planTTL*2/5 - 100*time.Millisecond,
				planTTL * 135 / 100,
			},
			{"silent, killed after it counts", true, planTTL * 6 / 10, planTTL - 100*time.Millisecond},
		} {
			t.Run(fmt.Sprintf("%d/%s", round, x.name), func(t *testing.T) {
				within := *c
				within.t = t
				recovery := plan.RecoveryCutOff
				if x.kill < 0 {
					recovery = 0
				}
				issuer := plan.Leasehold(planTTL, recovery)
				if x.silent {
					issuer = issuer.Silent()
				}
				o, err := plan.Bounds(choice, issuer)
				if err != nil {
					t.Fatal(err)
				}
				key := fmt.Sprintf("plan/%d/%s", round, x.name)
				outage := within.outage(key, x.silent, x.kill)
				t.Logf("nobody held for %v; the bound is %v, typical %v",
					outage.Round(time.Millisecond), o.Worst, o.Typical)
				if outage > o.Worst {
					t.Errorf("%v without a holder, the bound is %v", outage, o.Worst)
				}
				if outage < x.least {
					t.Errorf("%v without a holder, want at least %v", outage, x.least)
				}
			})
		}
		t.Run(fmt.Sprintf("%d/healthy", round), func(t *testing.T) {
			within := *c
			within.t = t
			within.staysHealthy(fmt.Sprintf("plan/%d/healthy", round), choice)
		})
	}
}

// outage lets a holder die, or fall silent, just after a renewal, kills the leader
// so long after that, and returns how long nobody held.
func (c *cluster) outage(key string, silent bool, kill time.Duration) time.Duration {
	c.t.Helper()
	leader := c.leader()
	rest := c.others(leader)
	h := holdName(c.t, rest[0], key)
	death := h.sent
	if !silent {
		h.die()
	}
	if kill >= 0 {
		c.wait(death + kill - now())
		leader.kill()
	}
	taken := takeOver(c.t, c, key, rest[1:])
	if kill >= 0 {
		leader.launch()
		c.serves()
	}
	return taken - death
}

// staysHealthy kills the leader as a renewal is due, and looks whether a holder
// that goes on trying keeps its validity, as the bounds say.
func (c *cluster) staysHealthy(key string, choice plan.Holder) {
	c.t.Helper()
	o, err := plan.Bounds(choice, plan.Leasehold(planTTL, plan.RecoveryKilled))
	if err != nil {
		c.t.Fatal(err)
	}
	if o.HealthyLose() {
		c.t.Fatalf("the bounds say that it cannot: %v", o.Slack)
	}
	leader := c.leader()
	h := holdName(c.t, c.others(leader)[0], key)
	before := h.sent
	c.wait(before + choice.Interval() - now())
	leader.kill()
	harness.Eventually(c.t, "a renewal is acknowledged", func() error {
		err := h.renew()
		if err != nil {
			h.open()
		}
		return err
	})
	c.t.Logf("renewed %v after the renewal before; the holder may act for %v",
		(h.sent - before).Round(time.Millisecond), o.Valid)
	if gap := now() - before; gap > o.Valid {
		c.t.Errorf("it was %v without a renewal, and may act for %v", gap, o.Valid)
	}
	leader.launch()
	c.serves()
}
