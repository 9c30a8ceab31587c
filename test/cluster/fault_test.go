package cluster

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"leasehold.dev/test/harness"
	"leasehold.dev/test/history"
	"leasehold.dev/test/tier"
)

// A fault disturbs the cluster for a while and then heals. No fault disables a majority for long,
// so leases that are kept alive must survive.
type fault struct {
	name string
	run  func(c *cluster, rng *rand.Rand)
}

var processFaults = []fault{
	{"the leader is killed", func(c *cluster, rng *rand.Rand) {
		c.kill(c.leader(), between(rng, 500, 1500))
	}},
	{"a follower is killed", func(c *cluster, rng *rand.Rand) {
		c.kill(c.followers()[rng.IntN(2)], between(rng, 100, 1500))
	}},
	{"the leader is stopped", func(c *cluster, rng *rand.Rand) { c.stop(c.leader(), pause(rng)) }},
	{"a follower is stopped", func(c *cluster, rng *rand.Rand) {
		c.stop(c.followers()[rng.IntN(2)], pause(rng))
	}},
	{"the leader hands over", func(c *cluster, _ *rand.Rand) { c.moveLeader() }},
	{"all are killed", func(c *cluster, _ *rand.Rand) {
		for _, m := range c.members {
			m.kill()
		}
		for _, m := range c.members {
			m.launch()
		}
	}},
}

// linkFaults lists faults that cut links between members. The last one also cuts links to clients.
var linkFaults = []fault{
	{"the leader is cut off", func(c *cluster, rng *rand.Rand) {
		c.partition(pause(rng), c.around(c.leader(), true, true))
	}},
	{"no member hears the leader", func(c *cluster, rng *rand.Rand) {
		c.partition(pause(rng), c.around(c.leader(), true, false))
	}},
	{"the leader hears no member", func(c *cluster, rng *rand.Rand) {
		c.partition(pause(rng), c.around(c.leader(), false, true))
	}},
	{"a follower is cut off", func(c *cluster, rng *rand.Rand) {
		c.partition(pause(rng), c.around(c.followers()[rng.IntN(2)], true, true))
	}},
	{"leader and follower are apart", func(c *cluster, rng *rand.Rand) {
		a, b := c.index(c.leader()), c.index(c.followers()[rng.IntN(2)])
		c.partition(pause(rng), [][2]int{{a, b}, {b, a}})
	}},
	{"the leader is unplugged", func(c *cluster, rng *rand.Rand) {
		i := c.index(c.leader())
		c.links.unplug(i)
		c.wait(pause(rng))
		c.links.replug(i)
	}},
}

func between(rng *rand.Rand, low, high int) time.Duration {
	return time.Duration(low+rng.IntN(high-low)) * time.Millisecond
}

// pause returns how long a fault lasts: longer than an election.
func pause(rng *rand.Rand) time.Duration {
	if *longFlag {
		return between(rng, 1000, 10_000)
	}
	return between(rng, 1000, 3000)
}

func (c *cluster) kill(m *member, away time.Duration) {
	c.t.Helper()
	m.kill()
	c.wait(away)
	m.launch()
}

func (c *cluster) stop(m *member, away time.Duration) {
	c.t.Helper()
	m.pause()
	defer m.resume()
	c.wait(away)
}

func (c *cluster) index(m *member) int { return slices.Index(c.members, m) }

// around lists the directed links from a member, to it, or both.
func (c *cluster) around(m *member, from, to bool) (list [][2]int) {
	at := c.index(m)
	for i := range c.members {
		if i != at && from {
			list = append(list, [2]int{at, i})
		}
		if i != at && to {
			list = append(list, [2]int{i, at})
		}
	}
	return list
}

// partition cuts the given directions for a while.
func (c *cluster) partition(away time.Duration, directions [][2]int) {
	c.t.Helper()
	for _, d := range directions {
		c.links.cut(d[0], d[1])
	}
	c.wait(away)
	for _, d := range directions {
		c.links.join(d[0], d[1])
	}
}

// TestFaults checks the history of clients while processes are killed and paused: S1, S2, S3, L1,
// L3, L4, L5, W1.
func TestFaults(t *testing.T) {
	tier.Campaign(t)
	underFaults(t, newCluster(t, 3), processFaults)
}

// TestPartitions is like TestFaults, but links are cut, in one direction or both.
func TestPartitions(t *testing.T) {
	tier.Campaign(t)
	underFaults(t, newNetCluster(t, 3), linkFaults)
}

func underFaults(t *testing.T, c *cluster, faults []fault) {
	t.Helper()
	underWork(t, c, func(rng *rand.Rand) {
		order := rng.Perm(len(faults))
		for i := range *roundsFlag {
			f := faults[order[i%len(order)]]
			began := now()
			f.run(c, rng)
			c.serves()
			took := (now() - began).Round(time.Millisecond)
			t.Logf("round %d: %s; all members serve after %v", i+1, f.name, took)
			c.wait(500 * time.Millisecond)
		}
	})
}

// underWork runs clients during a fault and checks their history.
func underWork(t *testing.T, c *cluster, happens func(*rand.Rand)) {
	t.Helper()
	rng := choices(t)
	h := history.New()
	stopWatches := watchAll(t, c, h, c.revision()+1)
	stopWork := work(t, c, rng, h)
	stopKeepers := keep(t, c, 3, keeperTTL)
	stopContenders := contend(t, c, rng, h)
	happens(rng)
	stopContenders()
	stopKeepers()
	stopWork()
	stopWatches(c.revision())
	for _, v := range h.Check() {
		t.Error(v)
	}
	t.Log(h.Counts())
	sameHash(t, c)
}

// revision returns the store's current revision.
func (c *cluster) revision() (revision int64) {
	c.t.Helper()
	harness.Eventually(c.t, "a read", func() error {
		r, err := c.members[0].admin.Get(c.t.Context(), "none")
		if err == nil {
			revision = r.Header.Revision
		}
		return err
	})
	return revision
}
