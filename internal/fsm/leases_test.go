package fsm

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"leasehold.dev/lease"
)

func terms(id lease.ID, name string) lease.Terms {
	return lease.Terms{ID: id, TTL: 5000, Name: name}
}

// expire applies a valid expiry of an existing lease.
func expire(t testing.TB, m *Machine, id lease.ID) {
	t.Helper()
	info, _ := m.lessor.Lookup(id)
	mustApply(t, m, &Expire{Term: 1, Leases: []lease.Due{{
		ID: id, Token: info.Token, Stamp: info.Stamp,
	}}})
}

// show formats lease events.
func show(events []LeaseEvent) (out []string) {
	for _, e := range events {
		kind := [...]string{
			"", "granted", "expired", "released", "revoked", "handed over",
			"resumed", "ttl changed",
		}[e.Kind]
		out = append(out, fmt.Sprintf("%d: lease %d %s %q at %d", e.Seq, e.Info.ID, kind, e.By,
			e.Revision))
	}
	return out
}

// TestGrantRenews (T3) checks that a repeatable grant of any form renews the existing lease that it
// returns, whatever its ID. Other grants do not renew it. If the lease was silent, the end of its
// silence is reported.
func TestGrantRenews(t *testing.T) {
	terms := lease.Terms{ID: 7, TTL: 5000, Name: "n", RequestID: "r"}
	again := terms
	again.ID = 8 // the existing lease is found by its name
	for name, tt := range map[string]struct {
		c      Command
		renews bool
	}{
		"plain":         {&Grant{Terms: terms}, false},
		"by itself":     {(&Grant{Terms: terms}).Repeatable(), true},
		"with a put":    {(&Grant{Terms: terms}).Repeatable(&Put{Key: "a", Lease: 7}), true},
		"another ID":    {(&Grant{Terms: again}).Repeatable(), true},
		"ID with a put": {(&Grant{Terms: again}).Repeatable(&Put{Key: "a", Lease: 8}), true},
		"in a transaction": {&Txn{Then: []Op{
			{Grant: &Grant{Terms: again, Renew: true}}, {Touch: &Touch{ID: 8}},
		}}, true},
	} {
		m := New(Config{})
		mustApply(t, m, &Grant{Terms: terms})
		mustApply(t, m, &Checkpoint{Term: m.term, Leases: []lease.Checkpoint{
			{ID: 7, Token: 1, Remaining: 1000, Stamp: 1},
		}})
		v := mustApply(t, m, tt.c)
		if txn, ok := v.(*TxnResult); ok {
			v = txn.Responses[0]
		}
		info, existed := GrantResult(v)
		if !existed || info.ID != 7 || info.Token != 1 || (info.Remaining == 0) != tt.renews {
			t.Errorf("%s: %+v, existed %t", name, info, existed)
		}
		if m.isSilent(7) == tt.renews || value(m, "a") != "none" {
			t.Errorf("%s: silent %t, a is %s", name, m.isSilent(7), value(m, "a"))
		}
		renewed := 0
		m.View().Silences.Since(0, func(s *Silence) {
			if s.Until == 0 {
				renewed++
			}
		})
		if (renewed > 0) != tt.renews {
			t.Errorf("%s: heard %d times", name, renewed)
		}
	}
}

// TestLeaseEvents checks the events of leases from grant to end, and the causes of deletion in the
// history of their keys, before and after a restart.
func TestLeaseEvents(t *testing.T) {
	m := New(Config{})
	first := terms(1, "n")
	first.Owner, first.Secret, first.LockDelay = "alice", lease.Secret{1}, 1000
	token := mustApply(t, m, &Grant{Terms: first}).(*lease.Info).Token
	mustApply(t, m, &Put{Key: "a", Lease: 1}) // revision 2
	mustApply(t, m, &ChangeTTL{ID: 1, Token: token, TTL: 7})
	mustApply(t, m, &HandOver{ID: 1, Token: token, Owner: "bob"}) // without a secret
	r := apply(t, m, &ChangeTTL{ID: 1, Token: token, TTL: 7})
	if !errors.Is(r.Err, lease.ErrNotFound) {
		t.Errorf("the token before: %v", r.Err)
	}
	if r := apply(t, m, &Resume{ID: 1}); !errors.Is(r.Err, lease.ErrNotFound) {
		t.Errorf("no secret: %v", r.Err)
	}
	expire(t, m, 1)
	m = restored(t, m)
	if events := after(t, m, 4); events != nil || m.events.Last() != 4 {
		t.Errorf("after a restart: %v, the last is %d", show(events), m.events.Last())
	}
	expire(t, m, 1) // the lock delay has passed: revision 3
	second := lease.Terms{ID: 2, TTL: 5, Secret: lease.Secret{2}, KeepKeys: true}
	mustApply(t, m, &Grant{Terms: second})
	mustApply(t, m, &Resume{ID: 2, Secret: lease.Secret{2}})
	mustApply(t, m, &Put{Key: "b", Value: []byte("v"), Lease: 2}) // revision 4
	expire(t, m, 2)                                               // revision 5
	mustApply(t, m, &Grant{Terms: terms(3, "")})
	mustApply(t, m, &Put{Key: "c", Lease: 3})    // revision 6
	mustApply(t, m, &Revoke{ID: 3, By: "carol"}) // revision 7
	mustApply(t, m, &DeleteRange{Key: "b"})      // revision 8
	want := []string{
		`5: lease 1 released "" at 3`, `6: lease 2 granted "" at 3`,
		`7: lease 2 resumed "" at 3`,
		`8: lease 2 expired "" at 5`, `9: lease 3 granted "" at 5`,
		`10: lease 3 revoked "carol" at 7`,
	}
	if got := show(after(t, m, 4)); !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
	for seq, n := range map[uint64]int{4: 6, 9: 1, 10: 0} {
		if got := after(t, m, seq); len(got) != n {
			t.Errorf("events after %d: %q", seq, show(got))
		}
	}
	for _, seq := range []uint64{3, 11} {
		if _, err := m.events.After(seq); !errors.Is(err, ErrEventsCompacted) {
			t.Errorf("events after %d: %v", seq, err)
		}
	}
	history, _, err := restored(t, m).View().KV.Events(2, 0)
	if err != nil {
		t.Fatal(err)
	}
	var reasons []string
	for i := range history {
		e := &history[i]
		reason, id := WhyDeleted(e)
		reasons = append(reasons, fmt.Sprint(e.KV.Key, " ", e.Delete, " ", reason, " ", id))
	}
	wantReasons := []string{
		"a false 0 0", "a true 1 1", "b false 0 0", "b false 0 0", "c false 0 0",
		"c true 2 3", "b true 0 0",
	}
	if !slices.Equal(reasons, wantReasons) {
		t.Errorf("reasons %q, want %q", reasons, wantReasons)
	}
}

// TestLeaseEventsKept checks that only the most recent events are kept, and that views of the
// events do not change.
func TestLeaseEventsKept(t *testing.T) {
	for _, most := range []int{4, 20} { // chunks of one event and of two
		testKept(t, most)
	}
}

// TestLeaseEventsAreBounded checks that fewer events are kept if their leases have long texts,
// because events do not count against the quota.
func TestLeaseEventsAreBounded(t *testing.T) {
	m := New(Config{})
	labels := map[string]string{"l": strings.Repeat("v", recentBytes/40)}
	for i := range lease.ID(200) {
		m.Begin(uint64(i+1), 1)
		m.Apply(&Grant{Terms: lease.Terms{ID: i + 1, TTL: 5000, Labels: labels}})
		m.Apply(&Revoke{ID: i + 1})
		n := m.events.Last() - m.events.Compacted()
		if got := uint64(len(after(t, m, m.events.Compacted()))); got != n || n > 60 {
			t.Fatalf("%d events are kept, %d are told", n, got)
		}
	}
	if n := m.events.Last() - m.events.Compacted(); n < 40 {
		t.Errorf("only %d events are kept", n)
	}
}

func testKept(t *testing.T, most int) {
	m := New(Config{LeaseEvents: most})
	var all []LeaseEvent
	var pictures []LeaseEvents
	for i := range 30 {
		grant(t, m, lease.ID(i+1))
		pictures = append(pictures, m.View().LeaseEvents)
		all = append(all, after(t, m, uint64(i))...)
		from := max(0, i+1-most)
		if got := after(t, m, uint64(from)); !slices.Equal(show(got), show(all[from:])) {
			t.Fatalf("after %d grants: %v", i+1, show(got))
		}
	}
	for i, e := range all {
		if e.Seq != uint64(i+1) || e.Info.ID != lease.ID(i+1) {
			t.Errorf("event %d is %+v", i, e)
		}
	}
	if _, err := m.events.After(1); !errors.Is(err, ErrEventsCompacted) {
		t.Errorf("the first events: %v", err)
	}
	for i := range 20 {
		mustApply(t, m, &Revoke{ID: lease.ID(i + 1)})
	}
	for i, p := range pictures {
		got, err := p.After(p.Last() - 1)
		if err != nil || len(got) != 1 || got[0].Info.ID != lease.ID(i+1) {
			t.Errorf("the picture after %d grants has changed: %v, %v", i+1, show(got), err)
		}
	}
}

// after returns all events after a sequence number.
func after(t *testing.T, m *Machine, seq uint64) []LeaseEvent {
	t.Helper()
	var out []LeaseEvent
	for {
		piece, err := m.events.After(seq)
		if err != nil {
			t.Fatal(err)
		}
		if len(piece) == 0 {
			return out
		}
		out = append(out, piece...)
		seq = out[len(out)-1].Seq
	}
}
