package server

import (
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"leasehold.dev/test/crashfs"
	"leasehold.dev/test/harness"
	"leasehold.dev/test/tier"
)

// TestLeaderWithFailedDisk checks that a leader whose disk fails gives up leadership before it
// waits for calls that can no longer complete. Otherwise, other clients would have to wait as well.
// The order of its log lines shows this.
func TestLeaderWithFailedDisk(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	configs := clusterConfigs(t, 3)
	failed := make(map[string]*atomic.Bool)
	logs := make(map[string]*harness.Log)
	for i := range configs {
		fails := new(atomic.Bool)
		files := crashfs.New()
		files.Before = func(op crashfs.Op) error {
			if fails.Load() && op.Kind == crashfs.Write && strings.HasSuffix(op.Name, ".segment") {
				return syscall.EIO
			}
			return nil
		}
		c := &configs[i]
		failed[c.Name], logs[c.Name] = fails, new(harness.Log)
		c.host = withFiles(files)
		c.Logger = slog.New(slog.NewTextHandler(logs[c.Name], nil))
	}
	first, others := runLed(t, configs...)
	first.put(t, "k", "v")
	failed[first.cfg.Name].Store(true)
	go func() { _, _ = first.client.Put(t.Context(), "k", "w") }()
	eventually(t, "another leads", func() bool {
		return others[0].node.status.Load().Primary || others[1].node.status.Load().Primary
	})
	others[0].put(t, "k", "x")
	if err := first.stop(); !errors.Is(err, syscall.EIO) {
		t.Errorf("it ended with %v", err)
	}
	first.stop = func() error { return nil }
	before, _, cut := strings.Cut(logs[first.cfg.Name].String(), "cutting off calls")
	// The log may show a period without a leader, or only the next leader if both changes were
	// reported together.
	ledBy := func(m *running) int {
		return strings.LastIndex(before, "name="+m.cfg.Name+" term=")
	}
	led := ledBy(first)
	passed := max(ledBy(others[0]), ledBy(others[1]),
		strings.LastIndex(before, `msg="no leader`))
	if !cut || led < 0 || passed < led {
		t.Errorf("it cut off calls (%v), and handed over later:\n%s", cut, before)
	}
}
