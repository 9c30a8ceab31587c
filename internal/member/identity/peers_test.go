package identity

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/transport"
	"leasehold.dev/internal/version"
)

// newPeers returns the peers of a member that has founded a cluster. The member's state is view.
func newPeers(t *testing.T, view *fsm.View, stop func(error)) *Peers {
	t.Helper()
	c := config()
	b, err := Open(c, transport.Way{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Disk.Close() })
	return NewPeers(PeersConfig{
		Disk: b.Disk, Dir: c.DataDir, Logger: c.Logger, View: func() *fsm.View { return view },
		Versions: version.Range{Oldest: 2, Newest: 3}, Stop: stop,
	})
}

// TestClaimExpires checks that another cluster's claim to a member, which might have been a
// mistake, is dropped if it is not repeated within ten minutes (the constant young). A cluster that
// claims the member after that is itself mistaken. A member stopped earlier keeps the claim. The
// claim is on the member's disk, and time is virtual.
func TestClaimExpires(t *testing.T) {
	p := newPeers(t, fsm.New(fsm.Config{}).View(), nil)
	if !p.claim(time.Now()) {
		t.Fatal("a young member is not claimed")
	}
	synctest.Test(t, func(t *testing.T) {
		late := time.Now().Add(100 * 365 * 24 * time.Hour)
		for _, left := range []struct {
			alone   time.Duration
			claimed bool
		}{{young - 1, true}, {young, false}, {young, false}} {
			stop := p.ResetClaim()
			time.Sleep(left.alone)
			synctest.Wait()
			stop()
			time.Sleep(time.Hour)
			if got := p.claim(late); got != left.claimed {
				t.Errorf("left alone for %v: claimed %v", left.alone, got)
			}
		}
	})
}

// TestOldMemberNotClaimed checks that a single-member cluster that is no longer new keeps running
// when another cluster claims its member. The other cluster's configuration is wrong.
func TestOldMemberNotClaimed(t *testing.T) {
	p := newPeers(t, fsm.New(fsm.Config{}).View(), nil)
	for _, c := range []struct {
		age  time.Duration
		want bool
	}{
		{-time.Hour, false},
		{young + time.Hour, false},
		{time.Minute, true},
		{young + time.Hour, true}, // already claimed before
	} {
		if got := p.claim(time.Now().Add(c.age)); got != c.want {
			t.Errorf("founded %v ago: claimed %v", c.age, got)
		}
	}
}

// TestAgreement covers two members, one of which does not support the cluster version. That member
// stops, no matter which of the two calls the other. A member that has not yet learned of a version
// change does not make another member stop.
func TestAgreement(t *testing.T) {
	v := *fsm.New(fsm.Config{}).View()
	v.Version = fsm.ClusterVersion{Number: 2, Decided: 7}
	v.Members = []fsm.Member{{ID: 1}}
	var stopped error
	p := newPeers(t, &v, func(err error) { stopped = err })
	wantForeign := func(err error) {
		t.Helper()
		if !errors.Is(err, ErrUnsupportedVersion) {
			t.Errorf("it stops because of %v", err)
		}
	}
	for name, c := range map[string]struct {
		caller         transport.Visitor
		refused, stops bool
	}{
		"the same": {caller: transport.Visitor{
			Formats: transport.Formats{Oldest: 2, Newest: 3}, Version: 2, Decided: 7,
		}},
		"older, and speaks it": {caller: transport.Visitor{
			Formats: transport.Formats{Oldest: 1, Newest: 2}, Version: 1, Decided: 3,
		}},
		"older": {caller: transport.Visitor{
			Formats: transport.Formats{Oldest: 1, Newest: 1}, Version: 1, Decided: 3,
		}, refused: true},
		"newer": {caller: transport.Visitor{
			Formats: transport.Formats{Oldest: 3, Newest: 4}, Version: 3,
		}, refused: true},
		"knows better": {caller: transport.Visitor{
			Formats: transport.Formats{Oldest: 3, Newest: 4}, Version: 3, Decided: 8,
		}},
		"knows better, and what this one does not speak": {caller: transport.Visitor{
			Formats: transport.Formats{Oldest: 1, Newest: 1}, Version: 1, Decided: 8,
		}, stops: true},
	} {
		stopped = nil
		c.caller.Member = 9
		err := p.Admit(c.caller)
		if c.refused != errors.Is(err, transport.ErrVersion) || c.stops != (stopped != nil) ||
			(err == nil) != (!c.refused && !c.stops) {
			t.Errorf("%s: %v, stopped by %v", name, err, stopped)
		}
		if c.refused && !strings.Contains(err.Error(), version.Range(c.caller.Formats).String()) {
			t.Errorf("%s: %v", name, err)
		}
		if c.stops {
			wantForeign(stopped)
		}
	}
	p.Expelled(9, fmt.Errorf("that is 0.1: %w", transport.ErrVersion))
	wantForeign(stopped)
	v.Members = nil // as when the member joins
	if err := p.Admit(transport.Visitor{Member: 9, Version: 1, Decided: 1}); err != nil {
		t.Errorf("a member without a state: %v", err)
	}
}

// TestCopyLogRateLimited checks that only a few lines are logged no matter how often others
// report a copy of this member.
func TestCopyLogRateLimited(t *testing.T) {
	var log bytes.Buffer
	p := newPeers(t, fsm.New(fsm.Config{}).View(), nil)
	p.c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	for range 1000 {
		p.Copied(p.self.Member)
		p.Copied(p.self.Member + 1)
	}
	if n := strings.Count(log.String(), "data directory is in use"); n != 2 || p.Copies() != 2000 {
		t.Errorf("%d lines of %d copies", n, p.Copies())
	}
}
