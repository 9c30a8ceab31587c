package e2e

import (
	"fmt"
	"syscall"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/test/harness"
	"leasehold.dev/test/tier"
)

// A lease that nobody renews goes on to its end when the only member is killed late in the
// lease's life: what remained is checkpointed again every two fifths of the TTL.
func TestKilledWithSilentLease(t *testing.T) {
	tier.Campaign(t)
	ours(t)
	t.Parallel()
	m := startMember(t)
	id, left := silentLease(t, m, 20, 6)
	m.kill()
	m.start()
	const step = 20 * 2 / 5
	if after := remaining(t, m.client(), id); after > left+step {
		t.Errorf("%d s were left before the kill, %d s after the restart", left, after)
	}
}

// At an orderly stop nothing is left to the next checkpoint.
func TestStoppedWithSilentLease(t *testing.T) {
	tier.Campaign(t)
	ours(t)
	t.Parallel()
	m := startMember(t, "--election-timeout=10000") // as long as it waits for its disk in the end
	id, left := silentLease(t, m, 60, 53)
	if err := m.end(syscall.SIGTERM); err != nil {
		t.Errorf("SIGTERM ends the process with %v", err)
	}
	m.start()
	if after := remaining(t, m.client(), id); after > left {
		t.Errorf("%d s were left before the stop, %d s after the restart", left, after)
	}
}

// silentLease grants a lease, renews it never, and returns when it has at most so many
// seconds left.
func silentLease(t *testing.T, m *member, ttl, atMost int64) (clientv3.LeaseID, int64) {
	t.Helper()
	c := m.client()
	for {
		g, err := c.Grant(t.Context(), ttl)
		if err != nil {
			t.Fatal(err)
		}
		left := ttl
		harness.Eventually(t, "the lease grows old", func() error {
			if left = remaining(t, c, g.ID); left > atMost {
				return fmt.Errorf("%d s are left", left)
			}
			return nil
		})
		if left >= 0 { // else the machine stood still until the lease was over
			return g.ID, left
		}
	}
}

// remaining returns how many seconds a lease has left, -1 if there is none.
func remaining(t *testing.T, c *clientv3.Client, id clientv3.LeaseID) int64 {
	t.Helper()
	r, err := c.TimeToLive(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return r.TTL
}
