package server

import (
	"log/slog"
	"testing"

	"leasehold.dev/test/virtual"
)

// Goal: the log says who leads, and that nobody does when the majority is gone.
func TestLeaderIsLogged(t *testing.T) { virtual.Test(t, testLeaderIsLogged) }

func testLeaderIsLogged(t *testing.T) {
	configs := clusterConfigs(t, 3)
	logs := make([]lockedBuffer, len(configs))
	for i := range configs {
		configs[i].Logger = slog.New(slog.NewTextHandler(&logs[i], nil))
	}
	members := runAll(t, configs...)
	for i := range members {
		eventually(t, "the log says who leads", func() bool {
			return logs[i].contains(`msg="a member leads"`) && logs[i].contains("name=m")
		})
	}
	for _, m := range members[1:] {
		if err := m.stop(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the log says that nobody leads", func() bool {
		return logs[0].contains(`msg="no member leads at present"`)
	})
}
