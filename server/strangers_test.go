package server

import (
	"net/url"
	"testing"

	"leasehold.dev/test/virtual"
)

// TestLeaderWhoJoinedMeanwhile checks that a member can follow a leader that joined while the
// member was down. The member responds to the address that the leader announces. Until it has
// responded, it has no other way to learn this address.
func TestLeaderWhoJoinedMeanwhile(t *testing.T) { virtual.Test(t, testLeaderWhoJoinedMeanwhile) }

func testLeaderWhoJoinedMeanwhile(t *testing.T) {
	configs := clusterConfigs(t, 4)
	initial := make(map[string][]url.URL)
	for _, c := range configs[:3] {
		initial[c.Name] = c.URLs.AdvertisePeer
	}
	for i := range configs {
		configs[i].Cluster.Initial = initial
		configs[i].Cluster.StrictReconfigCheck = false
	}
	members := runAll(t, configs[:3]...)
	absent := members[2]
	if err := absent.stop(); err != nil {
		t.Fatal(err)
	}
	joins := configs[3]
	joins.Cluster.State = "existing"
	joins.Cluster.Initial = map[string][]url.URL{joins.Name: joins.URLs.AdvertisePeer}
	for name, urls := range initial {
		joins.Cluster.Initial[name] = urls
	}
	added, err := members[0].client.MemberAddAsLearner(
		t.Context(), []string{joins.URLs.AdvertisePeer[0].String()})
	if err != nil {
		t.Fatal(err)
	}
	newcomer := begin(t, joins).await(t)
	eventually(t, "it is promoted", func() bool {
		_, err := members[0].client.MemberPromote(t.Context(), added.Member.ID)
		return err == nil
	})
	present := []*running{members[0], members[1], newcomer}
	eventually(t, "it leads", func() bool {
		first, _ := leader(t, present)
		if first == newcomer {
			return true
		}
		_, _ = first.client.MoveLeader(t.Context(), added.Member.ID)
		return false
	})
	newcomer.put(t, "k", "v")
	back := begin(t, absent.cfg).await(t)
	if got := back.get(t, "k"); got != "v" {
		t.Errorf("through the member that was down: %q", got)
	}
}
