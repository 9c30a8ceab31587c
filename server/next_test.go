//go:build next && !afternext

package server

import (
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/version"
)

// Goal: a member does not say that an earlier release can start on its disk while its log has
// something of the version before. Method: the cluster version rises and falls before a snapshot
// of the later one is written.
func TestStorageVersionOfLog(t *testing.T) {
	cfg := testConfig(shortDir(t))
	r := begin(t, cfg)
	r.core.inbox.task(func() { r.core.snap.retry.next = 1 << 60 }) // as if snapshots failed
	r.await(t)
	eventually(t, "the version rises", func() bool { return r.node.View().Version.Number == 2 })
	for _, c := range []fsm.Command{&fsm.Put{Key: "k"}, &fsm.SetVersion{Version: 1, Hold: true}} {
		if res, err := r.node.propose(t.Context(), c); err != nil || res.Err != nil {
			t.Fatal(res.Err, err)
		}
	}
	if v := r.node.storageVersion(); v != 2 {
		t.Errorf("storage version %d with entries of version 2 in the log", v)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	r = run(t, cfg)
	eventually(t, "nothing of version 2", func() bool { return r.node.storageVersion() == 1 })
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	cfg.Versions = version.Range{Oldest: 1, Newest: 1}
	run(t, cfg)
}
