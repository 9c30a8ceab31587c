package server

import (
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"leasehold.dev/internal/listen"
	"leasehold.dev/test/harness"
	"leasehold.dev/test/virtual"
)

// TestHealthyClusterLogsNoWarning checks that founding a cluster, joining it, and stopping and
// restarting members logs no warnings or errors. Each member logs its connection limit.
func TestHealthyClusterLogsNoWarning(t *testing.T) { virtual.Test(t, testHealthyLife) }

func testHealthyLife(t *testing.T) {
	members, configs, logs := founded(t, 2)
	for i, m := range members {
		if err := m.stop(); err != nil {
			t.Error(err)
		}
		members[i] = begin(t, configs[i]).await(t)
		members[i].put(t, "k", "v")
	}
	for i := range logs {
		if line := logs[i].Line("ready to serve"); !strings.Contains(line, "max-connections=") {
			t.Errorf("a member does not say how many connections it takes: %s", line)
		}
		for _, level := range []string{"level=WARN", "level=ERROR"} {
			if line := logs[i].Line(level); line != "" {
				t.Errorf("%s: %s", configs[i].Name, line)
			}
		}
	}
}

// founded runs n members that found a cluster, and one more that is added as a voter.
func founded(t *testing.T, n int) ([]*running, []Config, []harness.Log) {
	t.Helper()
	configs := clusterConfigs(t, n+1)
	logs := make([]harness.Log, len(configs))
	for i := range configs {
		configs[i].Logger = slog.New(slog.NewTextHandler(&logs[i], nil))
		configs[i].Cluster.FoundersWait = time.Minute
		configs[i].Cluster.StrictReconfigCheck = false // the check would require a delay of five seconds
	}
	all := configs[n].Cluster.Initial
	founders := make(map[string][]url.URL)
	for _, c := range configs[:n] {
		founders[c.Name] = all[c.Name]
	}
	for i := range configs[:n] {
		configs[i].Cluster.Initial = founders
	}
	members := runAll(t, configs[:n]...)
	if _, err := members[0].client.MemberAdd(t.Context(),
		listen.URLTexts(configs[n].URLs.AdvertisePeer)); err != nil {
		t.Fatal(err)
	}
	configs[n].Cluster.State = "existing"
	return append(members, begin(t, configs[n]).await(t)), configs, logs
}
