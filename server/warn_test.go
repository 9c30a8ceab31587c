package server

import (
	"log/slog"
	"net/url"
	"testing"

	"leasehold.dev/internal/fsm"
)

// What is legal and most likely a mistake is in the log; what is on this machine is none.
func TestWarnOfAddresses(t *testing.T) {
	t.Parallel()
	c := testConfig(t.TempDir())
	s := run(t, c).Server
	other := fsm.Member{ID: 99, Name: c.Name}
	v := *s.node.View()
	v.Members = append(v.Members[:1:1], other)
	for _, loud := range []bool{false, true} {
		var log lockedBuffer
		loudly := &Server{cfg: c, node: &node{core: &core{}, member: s.node.member}}
		loudly.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		loudly.node.core.view.Store(s.node.View())
		if loud {
			every := []url.URL{{Scheme: "http", Host: "0.0.0.0:2380"}}
			loudly.cfg.URLs.ListenPeer, loudly.cfg.URLs.AdvertisePeer = every, every
			loudly.node.core.view.Store(&v)
		}
		loudly.warnOfAddresses()
		for _, words := range []string{"has no TLS", "every address", "the same name"} {
			if log.contains(words) != loud {
				t.Errorf("the log says %q: %v", words, !loud)
			}
		}
	}
}

// TestWarnOfVoters: a member that becomes the fourth voter is warned of, at its promotion and at
// each start, and other numbers of voters are not, nor are learners.
func TestWarnOfVoters(t *testing.T) {
	t.Parallel()
	of := func(voters, learners int) (list []fsm.Member) {
		for i := range voters + learners {
			list = append(list, fsm.Member{ID: uint64(i + 1), Learner: i >= voters})
		}
		return list
	}
	for _, c := range []struct {
		before, now []fsm.Member
		warns       bool
	}{
		{of(3, 1), of(4, 0), true},
		{of(5, 0), of(4, 0), true},
		{nil, of(6, 1), true},
		{of(4, 0), of(4, 1), false},
		{of(3, 0), of(3, 1), false},
		{of(4, 1), of(5, 0), false},
		{of(1, 1), of(2, 0), false},
	} {
		var log lockedBuffer
		warnOfVoters(slog.New(slog.NewTextHandler(&log, nil)), c.before, c.now)
		if log.contains("even number") != c.warns {
			t.Errorf("from %d to %d: %v", len(c.before), len(c.now), !c.warns)
		}
	}
}
