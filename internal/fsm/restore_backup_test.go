package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"leasehold.dev/internal/version"
	"leasehold.dev/lease"
)

// fromBackup restores a snapshot of m as a backup.
func fromBackup(t testing.TB, m *Machine, f Restoration) (*Machine, error) {
	t.Helper()
	return fromBackupAs(t, Config{}, m, f)
}

// fromBackupAs is like fromBackup, but restores with the configuration c.
func fromBackupAs(t testing.TB, c Config, m *Machine, f Restoration) (*Machine, error) {
	t.Helper()
	all := chunks(t, m)
	r, err := RestoreBackup(c, f, func() ([]byte, bool, error) {
		if len(all) == 0 {
			return nil, false, nil
		}
		c := all[0]
		all = all[1:]
		return c, true, nil
	})
	if err == nil {
		r.mustBeSound()
	}
	return r, err
}

func mustRestoreBackup(t testing.TB, m *Machine, f Restoration) *Machine {
	t.Helper()
	r, err := fromBackup(t, m, f)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// full returns a machine with members, leases, keys, a deletion and a compaction.
func full(t testing.TB) *Machine {
	t.Helper()
	m := New(Config{})
	m.AddMember(Member{ID: 1, Name: "old", PeerURLs: []string{"http://old:1"}})
	for i := range 5 {
		grant(t, m, lease.ID(i+1))
		mustApply(t, m, &Put{Key: fmt.Sprint("k", i), Value: []byte("v"), Lease: lease.ID(i + 1)})
	}
	silent := []lease.Checkpoint{{ID: 2, Token: 2, Remaining: 1500}}
	mustApply(t, m, &Checkpoint{Term: 1, Leases: silent})
	mustApply(t, m, &DeleteRange{Key: "k4"})
	mustApply(t, m, &Compact{Revision: 3})
	return m
}

// TestRestoreBackupKeepsTheState checks that keys, history and leases are restored unchanged.
// Members are replaced, and old alarms are dropped.
func TestRestoreBackupKeepsTheState(t *testing.T) {
	m := full(t)
	mustApply(t, m, &SetAlarm{Alarm: Alarm{Member: 1, Kind: NoSpace}})
	r := mustRestoreBackup(t, m, Restoration{Members: []Member{{ID: 7, Name: "new"}}})
	if r.Index() != m.Index() || r.View().Term != m.View().Term {
		t.Errorf("index %d term %d, want %d and %d",
			r.Index(), r.View().Term, m.Index(), m.View().Term)
	}
	want, _, err := m.View().KV.Hash(0)
	if err != nil {
		t.Fatal(err)
	}
	if got, _, err := r.View().KV.Hash(0); err != nil || got != want {
		t.Errorf("hash of the keys %x, %v; want %x", got, err, want)
	}
	equal := func(a, b lease.Info) bool { return fmt.Sprint(a) == fmt.Sprint(b) }
	a, b := slices.Collect(m.Lessor().Leases()), slices.Collect(r.Lessor().Leases())
	if !slices.EqualFunc(a, b, equal) {
		t.Errorf("leases %v\nwant %v", b, a)
	}
	if l, _ := r.Lessor().Lookup(2); l.Remaining != 1500 || l.TTL != 5000 {
		t.Errorf("the checkpointed lease is %+v", l)
	}
	if v := r.View(); len(v.Members) != 1 || v.Members[0].Name != "new" || len(v.Alarms) != 0 {
		t.Errorf("members %v, alarms %v", v.Members, v.Alarms)
	}
	if got, want := r.View().KV.Compacted(), m.View().KV.Compacted(); got != want {
		t.Errorf("compacted %d, want %d", got, want)
	}
	mustApply(t, r, &Put{Key: "next"})
	if got, want := r.View().KV.Revision(), m.View().KV.Revision()+1; got != want {
		t.Errorf("the next revision is %d, want %d", got, want)
	}
}

// TestRestoreBackupRaisesTokens (T27, L5) checks that new tokens are larger than all tokens in the
// snapshot, and larger than the token given by the caller, if any.
func TestRestoreBackupRaisesTokens(t *testing.T) {
	m := full(t)
	last := grant(t, m, 100)
	for _, c := range []struct {
		name        string
		above, want lease.Token
	}{
		{"none", 0, 1<<48 + 1},
		{"one below the last", last - 1, 1<<48 + 1},
		{"the last", last, 1<<48 + 1},
		{"one above the last", last + 1, last + 2},
		{"a generation", 9 << 48, 9<<48 + 1},
		{"inside a generation", 9<<48 + 77, 9<<48 + 78},
		{"the last generation", 1<<64 - 1<<20, 1<<64 - 1<<20 + 1},
	} {
		r := mustRestoreBackup(t, m, Restoration{Above: c.above})
		if got := grant(t, r, 200); got != c.want || got <= last || got <= c.above {
			t.Errorf("%s: the next token is %#x, want %#x", c.name, got, c.want)
		}
		if l, ok := r.Lessor().Lookup(100); !ok || l.Token != last {
			t.Errorf("%s: a lease of the snapshot got another token: %+v", c.name, l)
		}
	}
}

// TestTokensNeverRepeatAcrossRestores (T27) checks that generations restored from the same
// snapshot, and generations restored from them, never share a token.
func TestTokensNeverRepeatAcrossRestores(t *testing.T) {
	checkSee := make(map[lease.Token]string)
	id := lease.ID(1000)
	live := func(name string, m *Machine) *Machine {
		for range 20 {
			id++
			token := grant(t, m, id)
			if other := checkSee[token]; other != "" {
				t.Errorf("T27: token %#x in generation %s and in %s", token, other, name)
			}
			checkSee[token] = name
		}
		return m
	}
	first := full(t)
	backup := mustRestoreBackup(t, first, Restoration{}) // stands for any copy of the backup
	backup = restored(t, backup)
	live("first", first)
	b := live("second", mustRestoreBackup(t, backup, Restoration{Above: 5<<48 + 1<<20}))
	live("third", mustRestoreBackup(t, backup, Restoration{Above: 5<<48 + 2<<20}))
	live("child of the second", mustRestoreBackup(t, b, Restoration{Above: 5<<48 + 3<<20}))
	live("with a clock behind", mustRestoreBackup(t, b, Restoration{Above: 1}))
	live("a day later", mustRestoreBackup(t, backup, Restoration{Above: 7 << 48}))
}

// TestRestoreBackupRaisesEvents checks that event numbers continue far above any that could have
// been sent since the backup. Otherwise, a client could resume after events of another generation.
func TestRestoreBackupRaisesEvents(t *testing.T) {
	few, many := New(Config{}), New(Config{})
	draw := &Txn{}
	for range 50 {
		draw.Then = append(draw.Then, Op{Draw: true})
	}
	mustApply(t, few, draw) // tokens without events
	for id := range lease.ID(30) {
		token := grant(t, many, id+1)
		mustApply(t, many, &ChangeTTL{ID: id + 1, Token: token, TTL: 6000}) // events without tokens
	}
	for name, c := range map[string]struct {
		m    *Machine
		f    Restoration
		want uint64
	}{
		"tokens":     {few, Restoration{Above: 60}, 60},
		"generation": {few, Restoration{}, 1 << 48},
		"events":     {many, Restoration{Above: 31}, 60},
	} {
		r := mustRestoreBackup(t, c.m, c.f)
		grant(t, r, 99)
		if got := r.View().LeaseEvents.Last(); got != c.want+eventsGap+1 {
			t.Errorf("%s: the first event is %d, want %d", name, got, c.want+eventsGap+1)
		}
	}
}

// TestRestoreBackupRaisesTheVersion checks that a restored cluster has the version of the backup,
// or the oldest version that this release supports if that is higher.
func TestRestoreBackupRaisesTheVersion(t *testing.T) {
	for oldest := range byte(2) {
		c := Config{Versions: version.Range{Oldest: oldest + 1, Newest: 2}}
		r, err := fromBackupAs(t, c, New(Config{}), Restoration{})
		if err != nil || r.Version().Number != oldest+1 {
			t.Errorf("oldest %d: version %+v, %v", oldest+1, r.Version(), err)
		}
	}
}

// TestRestoreBackupForgetsRemovedMembers checks that the IDs of removed members can be used again
// in a restored cluster.
func TestRestoreBackupForgetsRemovedMembers(t *testing.T) {
	m := full(t)
	mustApply(t, m, &AddMember{Member{ID: 2, PeerURLs: []string{"x"}}})
	mustApply(t, m, &RemoveMember{ID: 2})
	r := mustRestoreBackup(t, m, Restoration{Members: []Member{{ID: 1}}})
	if removed := r.View().Removed; len(removed) != 0 {
		t.Errorf("removed are %v", removed)
	}
	mustApply(t, r, &AddMember{Member{ID: 2, PeerURLs: []string{"x"}}})
	r = mustRestoreBackup(t, m, Restoration{Members: []Member{{ID: 1}}, Removed: []uint64{1, 5, 3}})
	if removed := r.View().Removed; !slices.Equal(removed, []uint64{3, 5}) {
		t.Errorf("removed are %v", removed)
	}
}

// TestRestoreBackupResetsComparison checks that a restore drops an unfinished comparison of the old
// members' states.
func TestRestoreBackupResetsComparison(t *testing.T) {
	m := full(t)
	mustApply(t, m, &HashState{})
	mustApply(t, m, &StateHash{Member: 1, Index: m.HashedAt(), Hash: 7})
	r := mustRestoreBackup(t, m, Restoration{Members: []Member{{ID: 1}}})
	if r.HashedAt() != 0 || len(r.meta.comparison.hashes) != 0 {
		t.Errorf("comparison %+v", r.meta.comparison)
	}
}

// TestRestoreBackupBumpIsInRange checks that the revision can be raised to the largest possible
// revision, but no further.
func TestRestoreBackupBumpIsInRange(t *testing.T) {
	m := full(t)
	last := m.store.Revision()
	for bump, want := range map[int64]error{
		-1: ErrRevision, math.MaxInt64 - last + 1: ErrRevision, math.MaxInt64 - last: nil,
	} {
		if _, err := fromBackup(t, m, Restoration{BumpRevision: bump}); !errors.Is(err, want) {
			t.Errorf("raised by %d: %v", bump, err)
		}
	}
}

// TestRestoreBackupAtTheLastGeneration checks that a restore fails if tokens have reached the last
// generation and cannot be raised.
func TestRestoreBackupAtTheLastGeneration(t *testing.T) {
	m := mustRestoreBackup(t, full(t), Restoration{Above: math.MaxUint64 - 1})
	if _, err := fromBackup(t, m, Restoration{Above: 1}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("error %v", err)
	}
}

// TestRestoreBackupBumpsTheRevision checks that raising the revision leaves the data unchanged.
// With MarkCompacted, earlier revisions can no longer be read.
func TestRestoreBackupBumpsTheRevision(t *testing.T) {
	m := full(t)
	before := m.View().KV.Revision()
	r := mustRestoreBackup(t, m, Restoration{BumpRevision: 1_000_000})
	if got := r.View().KV.Revision(); got != before+1_000_000 {
		t.Errorf("revision %d", got)
	}
	if kv := r.View().KV.Get("k1"); kv == nil || kv.ModRevision > before {
		t.Errorf("k1 is %+v", kv)
	}
	mustApply(t, r, &Put{Key: "next"})
	if kv := r.View().KV.Get("next"); kv.ModRevision != before+1_000_001 {
		t.Errorf("the next put is revision %d", kv.ModRevision)
	}

	for least, want := range map[int64]int64{before: before + 5, before + 90: before + 90} {
		r = mustRestoreBackup(t, m, Restoration{BumpRevision: 5, MinRevision: least})
		if got := r.View().KV.Revision(); got != want {
			t.Errorf("at least %d: revision %d, want %d", least, got, want)
		}
	}

	r = mustRestoreBackup(t, m, Restoration{BumpRevision: 10, MarkCompacted: true})
	if got := r.View().KV.Compacted(); got != before+10 {
		t.Errorf("compacted %d, want %d", got, before+10)
	}
	if err := r.View().KV.Check(before); err == nil {
		t.Error("the revision before can be read")
	}
	if value(r, "k1") != "v" {
		t.Error("compaction took a live key")
	}
	again := restored(t, r) // the result can be restored again
	if hash(t, again) != hash(t, r) {
		t.Error("restored to another state")
	}
	// Compacting at a revision that is already compacted is not an error.
	r = mustRestoreBackup(t, r, Restoration{MarkCompacted: true})
	if got := r.View().KV.Compacted(); got != before+10 {
		t.Errorf("compacted %d, want %d", got, before+10)
	}

	for _, bump := range []int64{-1, math.MaxInt64} {
		if _, err := fromBackup(t, m, Restoration{BumpRevision: bump}); !errors.Is(err, ErrRevision) {
			t.Errorf("raised by %d: error %v", bump, err)
		}
	}
}

// TestRestoreBackupRefusesTokensFromTheFuture checks that a lease with a token that was never
// issued is rejected, even if the restore raises tokens.
func TestRestoreBackupRefusesTokensFromTheFuture(t *testing.T) {
	all := bytes.Join(chunks(t, full(t)), nil)
	d := &decoder{Decoder: snapshotFormat.Decoder(0, all[1:])}
	h := d.header()
	h.LastToken-- // the last of the five leases has the token that is now too large
	bad := appendHeader([]byte{tagHeader}, &h)
	bad = append(bad, d.Rest()...)
	_, err := RestoreBackup(Config{}, Restoration{Above: 1 << 50}, func() ([]byte, bool, error) {
		chunk := bad
		bad = nil
		return chunk, chunk != nil, nil
	})
	if !errors.Is(err, ErrCorrupt) ||
		!strings.Contains(err.Error(), "token 0x5, but the last token is 0x4") {
		t.Errorf("error %v", err)
	}
}
