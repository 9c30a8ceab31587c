package server

import (
	"net/url"
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/test/virtual"
)

// TestJoinWhileOneIsBehind checks that a new member can join even if the first member it contacts
// is behind. That member does not list the new member yet, and still lists a removed member with
// the same URLs.
func TestJoinWhileOneIsBehind(t *testing.T) { virtual.Test(t, testJoinWhileOneIsBehind) }

func testJoinWhileOneIsBehind(t *testing.T) {
	configs := clusterConfigs(t, 4)
	founders, joins := configs[:3], configs[3]
	for i := range founders {
		founders[i].Cluster.Initial = map[string][]url.URL{}
		for _, c := range founders {
			founders[i].Cluster.Initial[c.Name] = c.URLs.AdvertisePeer
		}
		founders[i].Cluster.StrictReconfigCheck = false
	}
	members := runAll(t, founders...)
	joins.Cluster.State = "existing"
	var before uint64
	for _, what := range []string{"the first", "in its place"} {
		joins.DataDir = t.TempDir()
		catchUp(t, members[0])
		behind := members[0].core.view.Load()
		if before != 0 {
			if _, err := members[1].client.MemberRemove(t.Context(), before); err != nil {
				t.Fatal(err)
			}
		}
		added, err := members[1].client.MemberAddAsLearner(t.Context(),
			[]string{joins.URLs.AdvertisePeer[0].String()})
		if err != nil {
			t.Fatal(err)
		}
		catchUp(t, members[0])
		members[0].shows(t, behind, func() {
			s, err := New(joins)
			if err != nil {
				t.Fatal(what, err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(what, err)
			}
		})
		learner := begin(t, joins).await(t)
		if before = learner.node.member; before != added.Member.ID {
			t.Errorf("%s: joined as %x, was added as %x", what, before, added.Member.ID)
		}
		if err := learner.stop(); err != nil {
			t.Fatal(what, err)
		}
	}
}

// shows runs f while a member publishes an earlier view. If the member published a newer view in
// the meantime, shows repeats f.
func (r *running) shows(t *testing.T, before *fsm.View, f func()) {
	t.Helper()
	for range 100 {
		newest := r.core.view.Swap(before)
		f()
		if r.core.view.CompareAndSwap(before, newest) {
			return
		}
	}
	t.Fatal("a member goes on and on")
}
