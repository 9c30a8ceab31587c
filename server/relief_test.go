package server

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
	"leasehold.dev/test/virtual"
)

// TestReliefBesideLeases checks that history is compacted when the quota is exhausted, even if
// leases use most of the space.
func TestReliefBesideLeases(t *testing.T) { virtual.Test(t, testReliefBesideLeases) }

func testReliefBesideLeases(t *testing.T) {
	const quota = 4 << 20
	c := testConfig(t.TempDir())
	c.Limits.QuotaBackendBytes = quota
	c.Compaction = Compaction{Mode: "periodic", Period: time.Hour, Revisions: 10_000}
	r := run(t, c)
	for i := 0; r.node.View().Bytes.Leases < quota/5*4; i++ {
		res, err := r.node.Propose(t.Context(), &fsm.Grant{Terms: lease.Terms{
			ID: lease.ID(i + 1), TTL: 600_000, Name: fmt.Sprint(strings.Repeat("n", 4000), i),
		}})
		if err != nil || res.Err != nil {
			t.Fatal(err, res.Err)
		}
	}
	for range 1000 {
		if _, err := r.client.Put(t.Context(), "k", strings.Repeat("v", 2000)); err != nil {
			break
		}
	}
	eventually(t, "a put goes through", func() bool {
		_, err := r.client.Put(t.Context(), "k", "v")
		return err == nil
	})
}
