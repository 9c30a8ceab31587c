package server

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"go.etcd.io/raft/v3"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

// TestLeaseLog checks that every lease event is logged at level debug, with lease, owner and TTL,
// and that none is logged at a higher level.
func TestLeaseLog(t *testing.T) {
	for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo} {
		var b bytes.Buffer
		m := fsm.New(fsm.Config{})
		r, err := replica.New(replica.Config{
			ID: 1, Log: raft.NewMemoryStorage(), Machine: m, ElectionTicks: 10, HeartbeatTicks: 1,
			Logger: raftLogger{slog.New(slog.DiscardHandler)},
		})
		if err != nil {
			t.Fatal(err)
		}
		c := &core{
			replica: r,
			log:     slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: level})),
		}
		old := m.View()
		m.Begin(1, 1)
		for id := range lease.ID(3) {
			m.Apply(&fsm.Grant{Terms: lease.Terms{ID: id + 1, TTL: 5000, Owner: "ann"}})
		}
		m.Apply(&fsm.Checkpoint{Term: 1, Leases: []lease.Checkpoint{{ID: 1, Token: 1, Remaining: 7}}})
		m.Apply(&fsm.Checkpoint{Term: 1, Leases: []lease.Checkpoint{{ID: 1, Token: 1}}})
		m.Apply(&fsm.Expire{Term: 1, Leases: []lease.Due{{ID: 2, Token: 2, Stamp: 1}}})
		m.Apply(&fsm.Revoke{ID: 3, By: "bob"})
		m.CountAfter(1)
		c.logLeases(old, m.View()) // these entries were in the log at startup
		if b.Len() > 0 {
			t.Errorf("logged again at a start:\n%s", &b)
		}
		m.CountAfter(0)
		c.logLeases(old, m.View())
		c.logRenewals(&replica.Output{
			Together: []*replica.Renewals{{
				IDs: []lease.ID{1, 9}, TTLs: []lease.TTL{4000, 0}, Kept: 1,
			}},
			Renewals: []replica.Renewal{{ID: 8, Err: lease.ErrNotFound}},
		})
		c.logRole(&replica.Status{}, &replica.Status{Primary: true, Term: 5})
		c.logRole(&replica.Status{Primary: true, Term: 5}, &replica.Status{Term: 6})
		if level > slog.LevelDebug {
			if b.Len() > 0 {
				t.Errorf("at level %v:\n%s", level, &b)
			}
			continue
		}
		for _, want := range []string{
			`msg="lease granted" lease=2 token=2 ttl=5000 name="" owner=ann`,
			`msg="lease checkpointed" lease=1 token=1 ttl=5000 name="" owner=ann remaining=7`,
			`msg="lease is no longer silent" lease=1`, `msg="lease expired" lease=2`,
			`msg="lease revoked" lease=3 token=3 ttl=5000 name="" owner=ann by=bob`,
			`msg="lease renewed" lease=1 token=1 ttl=4000 name="" owner=ann`,
			`msg="renewal refused" lease=8 token=0 ttl=0 name="" owner="" error="lease: not found"`,
			`msg="promoted: this member times leases" term=5`,
			`msg="demoted: this member no longer times leases" term=6`,
		} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("nothing of %s in\n%s", want, &b)
			}
		}
	}
}
