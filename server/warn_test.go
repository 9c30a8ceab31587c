package server

import (
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/listen"
	"leasehold.dev/test/harness"
	"leasehold.dev/test/virtual"
)

// TestWarnOfAddresses checks that settings that are valid but probably mistakes are logged as
// warnings.
func TestWarnOfAddresses(t *testing.T) { virtual.Test(t, testWarnOfAddresses) }

func testWarnOfAddresses(t *testing.T) {
	c := testConfig(t.TempDir())
	s := run(t, c).Server
	other := fsm.Member{ID: 99, Name: c.Name}
	v := *s.node.View()
	v.Members = append(v.Members[:1:1], other)
	for _, loud := range []bool{false, true} {
		var log harness.Log
		loudly := &Server{cfg: c, node: &node{core: &core{}, member: s.node.member}}
		loudly.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		loudly.node.core.view.Store(s.node.View())
		if loud {
			every := []url.URL{{Scheme: "http", Host: "0.0.0.0:2380"}}
			loudly.cfg.URLs.ListenPeer, loudly.cfg.URLs.AdvertisePeer = every, every
			loudly.node.core.view.Store(&v)
		}
		loudly.warnOfAddresses()
		loudly.warnOfMembers()
		for _, words := range []string{"without TLS", "unspecified address", "the same name"} {
			if log.Contains(words) != loud {
				t.Errorf("the log says %q: %v", words, !loud)
			}
		}
	}
}

// TestWarnOpenURLs checks that a member reachable from other machines logs a single line about
// missing protection, unless --insecure is set.
func TestWarnOpenURLs(t *testing.T) { virtual.Test(t, testWarnOfStrangers) }

func testWarnOfStrangers(t *testing.T) {
	on := access.New(true, 2, nil, nil)
	alone := TLS{CertFile: "c", KeyFile: "k"}
	asking := TLS{CertFile: "c", KeyFile: "k", TrustedCAFile: "ca"}
	for _, c := range []struct {
		urls  string
		tls   TLS
		users *access.State
		lacks string // what the line must mention; "" means no line
	}{
		{"http://127.0.0.1:1,http://localhost:1,http://[::1]:1,unix:///s", TLS{}, nil, ""},
		{"http://127.0.0.1:1,http://0.0.0.0:2", TLS{}, nil, "TLS access [http://0.0.0.0:2]"},
		{"http://10.0.0.1:1", TLS{}, on, "TLS [http://10.0.0.1:1]"},
		{"https://10.0.0.1:1", alone, nil, "access [https://10.0.0.1:1]"},
		{"https://10.0.0.1:1", alone, on, ""},
		{"https://10.0.0.1:1", asking, nil, ""},
		{"https://10.0.0.1:1,http://10.0.0.1:2", asking, nil, "TLS access [http://10.0.0.1:2]"},
		{"https://10.0.0.1:1,http://10.0.0.1:2", asking, on, "TLS [http://10.0.0.1:2]"},
	} {
		urls, err := listen.ParseURLs(c.urls)
		if err != nil {
			t.Fatal(err)
		}
		m := &Server{node: &node{core: &core{}}}
		m.node.core.view.Store(&fsm.View{Access: c.users})
		m.cfg.URLs.ListenClientHTTP, m.cfg.ClientTLS = urls, c.tls
		var log harness.Log
		m.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		m.warnOpenURLs()
		if lines := log.Count("\n"); c.lacks == "" && lines != 0 || c.lacks != "" && lines != 1 {
			t.Errorf("%+v: %d lines: %s", c, lines, log.String())
		}
		for _, word := range []string{"TLS", "access"} {
			if log.Contains(word) != strings.Contains(c.lacks, word) {
				t.Errorf("%+v: whether it says %s: %s", c, word, log.String())
			}
		}
		if _, at, _ := strings.Cut(c.lacks, "["); c.lacks != "" && !log.Contains("["+at) {
			t.Errorf("%+v: the log does not say where: %s", c, log.String())
		}
		var quiet harness.Log
		m.cfg.Logger = slog.New(slog.NewTextHandler(&quiet, nil))
		m.cfg.Access.Insecure = true
		if m.warnOpenURLs(); quiet.String() != "" {
			t.Errorf("%+v: with --insecure: %s", c, quiet.String())
		}
	}
}

// TestWarnOfMembersAsTheyAre checks that a member starting from an old snapshot warns about the
// current members, not the members in the snapshot.
func TestWarnOfMembersAsTheyAre(t *testing.T) { virtual.Test(t, testWarnOfMembersAsTheyAre) }

func testWarnOfMembersAsTheyAre(t *testing.T) {
	c := testConfig(t.TempDir())
	c.Raft.SnapshotCount = 5
	m := run(t, c)
	list, err := m.client.MemberAddAsLearner(t.Context(), []string{"unix:///no/such/socket"})
	if err != nil {
		t.Fatal(err)
	}
	other := &fsm.SetMember{Member: fsm.Member{
		ID: list.Member.ID, Name: c.Name, Incarnation: 5, ClientURLs: []string{"unix:///none"},
	}}
	if r, err := m.node.ProposeOwn(t.Context(), other); err != nil || r.Err != nil {
		t.Fatal(err, r.Err)
	}
	named := m.node.View().Index
	eventually(t, "a snapshot has it", func() bool {
		m.put(t, "k", "v")
		return m.core.disk.Usage().SnapshotIndex > named
	})
	c.Raft.SnapshotCount = 1 << 20
	for _, removed := range []bool{false, true} {
		if err := m.stop(); err != nil {
			t.Fatal(err)
		}
		var log harness.Log
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		m = run(t, c)
		current := make(chan bool, 1)
		eventually(t, "the member knows its state", func() bool {
			m.core.inbox.task(func() { current <- m.core.began.current })
			return <-current
		})
		if log.Contains("the same name") == removed {
			t.Errorf("removed %v: it warns %v", removed, removed)
		}
		if !removed {
			if _, err := m.client.MemberRemove(t.Context(), list.Member.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestWarnOfVoters checks that an even number of voters above two causes a warning when it arises
// and at each start. No warning is logged for other numbers or for learners.
func TestWarnOfVoters(t *testing.T) { virtual.Test(t, testWarnOfVoters) }

func testWarnOfVoters(t *testing.T) {
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
		var log harness.Log
		warnOfVoters(slog.New(slog.NewTextHandler(&log, nil)), c.before, c.now)
		if log.Contains("even number") != c.warns {
			t.Errorf("from %d to %d: %v", len(c.before), len(c.now), !c.warns)
		}
	}
}
