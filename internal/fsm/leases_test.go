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

// expire lets a lease that is there expire.
func expire(t testing.TB, m *Machine, id lease.ID) {
	t.Helper()
	info, _ := m.lessor.Lookup(id)
	mustApply(t, m, &Expire{Term: 1, Leases: []lease.Due{{
		ID: id, Token: info.Token, Stamp: info.Stamp,
	}}})
}

// show is what lease events say, in short.
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

// The operations on leases in a transaction: each sees what those before it will
// have done, all changes are one revision, and what cannot be done wholly
// changes nothing.
func TestTxnLeases(t *testing.T) {
	grant := func(id lease.ID, name string) Op { return Op{Grant: &Grant{Terms: terms(id, name)}} }
	put := func(key string, id lease.ID) Op { return Op{Put: &Put{Key: key, Lease: id}} }
	revoke := func(id lease.ID, token lease.Token) Op {
		return Op{Revoke: &Revoke{ID: id, Token: token}}
	}
	touch := func(id lease.ID, token lease.Token) Op {
		return Op{Touch: &Touch{ID: id, Token: token}}
	}
	again := Op{Grant: &Grant{Terms: lease.Terms{ID: 7, TTL: 1, Name: "r", RequestID: "r"}}}
	var taken *lease.NameError
	var bounds *lease.TTLError
	var full *lease.KeyLimitError
	for _, c := range []struct {
		name string
		ops  []Op
		want any // nil, an error, or where to put one
	}{
		{"put on what it grants", []Op{grant(9, "x"), put("k", 9), put("l", 9)}, nil},
		{"put before the grant", []Op{put("k", 9), grant(9, "x")}, lease.ErrNotFound},
		{"two of one name", []Op{grant(8, "x"), grant(9, "x")}, &taken},
		{"two of one id", []Op{grant(9, ""), grant(9, "")}, lease.ErrExists},
		{"a name that is taken", []Op{put("k", 0), grant(9, "n")}, &taken},
		{"an id that is taken", []Op{grant(1, "")}, lease.ErrExists},
		{"a bad ttl", []Op{{Grant: &Grant{Terms: lease.Terms{ID: 9}}}}, &bounds},
		{"a bad id", []Op{grant(0, "")}, lease.ErrBadID},
		{"a name taken over", []Op{revoke(1, 0), grant(9, "n"), put("k", 9)}, nil},
		{"an id taken over", []Op{revoke(1, 0), grant(1, "n"), put("k", 1)}, nil},
		{"put on what it revokes", []Op{revoke(1, 0), put("k", 1)}, lease.ErrNotFound},
		{"revoked twice", []Op{revoke(1, 0), revoke(1, 0)}, lease.ErrNotFound},
		{"revoked with a token", []Op{revoke(1, 1)}, nil},
		{"revoked with another token", []Op{revoke(1, 2)}, lease.ErrNotFound},
		{"granted and revoked", []Op{grant(9, "x"), put("k", 9), revoke(9, 0), grant(8, "x")}, nil},
		{"touched", []Op{touch(1, 0), touch(1, 1)}, nil},
		{"touched with another token", []Op{touch(1, 2)}, lease.ErrNotFound},
		{"touched after the end", []Op{revoke(1, 0), touch(1, 0)}, lease.ErrNotFound},
		{"touched when new", []Op{grant(9, ""), touch(9, 0)}, nil},
		{"touched when new by a token", []Op{grant(9, ""), touch(9, 3)}, lease.ErrNotFound},
		{"delayed", []Op{touch(3, 0)}, lease.ErrNotFound},
		{"put on a delayed one", []Op{put("k", 3)}, lease.ErrNotFound},
		{"delayed, and revoked", []Op{revoke(3, 0), grant(3, "d")}, nil},
		{"repeated", []Op{again, put("k", 7), touch(7, 0)}, nil},
		{"repeated and real", []Op{again, put("k", 7), put("l", 2), put("m", 7)}, &full},
		{"repeated and ended", []Op{again, revoke(7, 0), put("k", 2)}, lease.ErrNotFound},
		{"repeated, ended and new", []Op{again, revoke(7, 0), again, put("k", 7)}, nil},
		{"too many keys", []Op{grant(9, ""), put("k", 9), put("l", 9), put("m", 9)}, &full},
		{"one key often", []Op{grant(9, ""), put("k", 9), put("l", 9), put("k", 9)}, nil},
		{"too many at last", []Op{put("k", 1), put("l", 1)}, &full},
		{"nested", []Op{grant(9, "x"), {Txn: &Txn{Then: []Op{put("k", 9), grant(8, "x")}}}}, &taken},
	} {
		m := New(Config{Lease: lease.Config{MaxKeys: 2}})
		mustApply(t, m, &Grant{Terms: terms(1, "n")})
		mustApply(t, m, &Put{Key: "a", Lease: 1})
		mustApply(t, m, &Grant{Terms: lease.Terms{ID: 2, TTL: 1, Name: "r", RequestID: "r"}})
		delayed := terms(3, "d")
		delayed.LockDelay = 1000
		mustApply(t, m, &Grant{Terms: delayed})
		expire(t, m, 3)
		before, sum := m.store.Revision(), hash(t, m)
		r := apply(t, m, &Txn{Then: c.ops})
		switch want := c.want.(type) {
		case nil:
			if r.Err != nil || r.Revision > before+1 {
				t.Errorf("%s: %v, %d revisions", c.name, r.Err, r.Revision-before)
			}
			for _, e := range after(t, m, 4) {
				if e.Revision != r.Revision {
					t.Errorf("%s: event %+v, the revision is %d", c.name, e, r.Revision)
				}
			}
			continue
		case error:
			if !errors.Is(r.Err, want) {
				t.Errorf("%s: %v, want %v", c.name, r.Err, want)
			}
		default:
			if r.Err == nil || !errors.As(r.Err, want) {
				t.Errorf("%s: %v, want %T", c.name, r.Err, want)
			}
		}
		if hash(t, m) != sum {
			t.Errorf("%s: it failed, and changed something", c.name)
		}
	}
}

// What the operations of a transaction answer.
func TestTxnLeaseResults(t *testing.T) {
	m := New(Config{})
	old := grant(t, m, 1)
	mustApply(t, m, &Put{Key: "a", Lease: 1})
	mustApply(t, m, &Put{Key: "b", Lease: 1})
	r := mustApply(t, m, &Txn{Then: []Op{
		{Touch: &Touch{ID: 1}},
		{Revoke: &Revoke{ID: 1, By: "me"}},
		{Grant: &Grant{Terms: terms(1, "n")}},
		{Put: &Put{Key: "a", Lease: 1}},
	}}).(*TxnResult)
	if i := r.Responses[0].(*lease.Info); i.Token != old || i.Stamp != 2 {
		t.Errorf("touched %+v", i)
	}
	if d := r.Responses[1].(*RevokeResult); d.Deleted != 2 {
		t.Errorf("revoked %+v", d)
	}
	if i := r.Responses[2].(*lease.Info); i.Token <= old || i.Name != "n" {
		t.Errorf("granted %+v", i)
	}
	if m.lessor.LeaseOf("a") != 1 || value(m, "b") != "none" {
		t.Error("a is not on the new lease, or b is there")
	}
	want := []string{
		`1: lease 1 granted "" at 1`, `2: lease 1 revoked "me" at 4`,
		`3: lease 1 granted "" at 4`,
	}
	if got := show(after(t, m, 0)); !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
	txn := &Txn{Then: []Op{{Grant: &Grant{Terms: terms(5, "")}}}}
	if txn.ReadOnly() || Growth(txn) == 0 {
		t.Error("a transaction that grants reads only, or makes room")
	}
	mustApply(t, m, &SetAlarm{Alarm: Alarm{Member: 1, Kind: NoSpace}})
	if r := apply(t, m, txn); !errors.Is(r.Err, ErrNoSpace) {
		t.Errorf("without space: %v", r.Err)
	}
}

// TestGrantExisting: the outcome of a grant that is repeated says so (T3), by itself, in a
// transaction, and in a snapshot, where the answers of numbers are.
func TestGrantExisting(t *testing.T) {
	m := New(Config{})
	mustApply(t, m, &OpenSession{Nonce: 5})
	s := Session{ID: 1, Nonce: 5}
	c := &Grant{Terms: lease.Terms{ID: 7, TTL: 5000, RequestID: "r"}}
	if info, existed := GrantResult(mustApply(t, m, c)); existed || info.ID != 7 {
		t.Errorf("the first: %+v, existed %t", info, existed)
	}
	if info, existed := GrantResult(mustApply(t, m, c)); !existed || info.ID != 7 {
		t.Errorf("again: %+v, existed %t", info, existed)
	}
	once := &Once{Session: s, Number: 1, Command: c.Repeatable(&Put{Key: "a", Lease: 7})}
	for range 2 {
		r := mustApply(t, m, once).(*TxnResult)
		info, existed := GrantResult(r.Responses[0])
		if r.Succeeded || !existed || info.ID != 7 || len(r.Responses) != 1 {
			t.Errorf("in a transaction: %+v", r)
		}
		m = restored(t, m)
	}
	if value(m, "a") != "none" {
		t.Error("the repetition put a key")
	}
}

// TestGrantRenews: a grant that may be repeated, by itself, with puts or in a transaction,
// renews the lease that it finds under whatever ID, and one that may not does not (T3). It is
// reported of if the lease was silent.
func TestGrantRenews(t *testing.T) {
	terms := lease.Terms{ID: 7, TTL: 5000, Name: "n", RequestID: "r"}
	again := terms
	again.ID = 8 // the name finds it
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
		heard := 0
		m.View().Silences.Since(0, func(s *Silence) {
			if s.Until == 0 {
				heard++
			}
		})
		if (heard > 0) != tt.renews {
			t.Errorf("%s: heard %d times", name, heard)
		}
	}
}

// Conditions on leases are evaluated at apply.
func TestCompareLeases(t *testing.T) {
	m := New(Config{})
	token := mustApply(t, m, &Grant{Terms: terms(1, "n")}).(*lease.Info).Token
	delayed := terms(2, "d")
	delayed.LockDelay = 1000
	mustApply(t, m, &Grant{Terms: delayed})
	expire(t, m, 2)
	for _, c := range []struct {
		Compare
		want bool
	}{
		{Compare{Target: TargetLeaseAlive, Number: 1}, true},
		{Compare{Target: TargetLeaseAlive, Number: 1, Relation: NotEqual}, false},
		{Compare{Target: TargetLeaseAlive, Number: 2}, false},
		{Compare{Target: TargetLeaseAlive, Number: 2, Relation: NotEqual}, true},
		{Compare{Target: TargetLeaseAlive, Number: 3}, false},
		{Compare{Target: TargetNameToken, Key: "n", Number: int64(token)}, true},
		{Compare{Target: TargetNameToken, Key: "n", Number: int64(token) + 1}, false},
		{Compare{Target: TargetNameToken, Key: "n", Number: -1, Relation: Less}, true},
		{Compare{Target: TargetNameToken, Key: "d"}, true},
		{Compare{Target: TargetNameToken, Key: "x"}, true},
	} {
		txn := &Txn{Compare: []Compare{c.Compare}}
		if txn.ReadOnly() || (&Txn{Then: []Op{{Txn: txn}}}).ReadOnly() {
			t.Errorf("%+v reads only", c.Compare)
		}
		if r := mustApply(t, m, txn).(*TxnResult); r.Succeeded != c.want {
			t.Errorf("%+v: %v", c.Compare, r.Succeeded)
		}
	}
}

// An incarnation of a lease with everything in it, and what the history says of its keys,
// before and after a restart.
func TestLeaseEvents(t *testing.T) {
	m := New(Config{})
	first := terms(1, "n")
	first.Owner, first.Secret, first.LockDelay = "alice", lease.Secret{1}, 1000
	token := mustApply(t, m, &Grant{Terms: first}).(*lease.Info).Token
	mustApply(t, m, &Put{Key: "a", Lease: 1})                     // revision 2
	mustApply(t, m, &ChangeTTL{ID: 1, Token: token, TTL: 7})      //
	mustApply(t, m, &HandOver{ID: 1, Token: token, Owner: "bob"}) // no secret
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
	expire(t, m, 1) // the delay has passed: revision 3
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

// Only the last events are kept, and who was handed some keeps them as they were.
func TestLeaseEventsKept(t *testing.T) {
	for _, most := range []int{4, 20} { // in chunks of one, and of two
		testKept(t, most)
	}
}

// Events of leases with very many texts are kept for less long: they are no part of what the quota
// bounds, and leases that are gone are in them.
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

// after returns the events after a number.
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

// A picture of the leases stays while they go on.
func TestLeasesStay(t *testing.T) {
	m := New(Config{})
	grant(t, m, 1)
	v := m.Leases()
	mustApply(t, m, &Revoke{ID: 1})
	if v.Len() != 1 || m.Leases().Len() != 0 {
		t.Errorf("%d leases in the picture, %d now", v.Len(), m.Leases().Len())
	}
}
