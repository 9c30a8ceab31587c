package cache

import (
	"testing"
	"time"

	"leasehold.dev/internal/copies"
	"leasehold.dev/internal/keyrange"

	"leasehold.dev/client/store"
)

// TestFollowerOfRestoredCluster checks that a follower's ranges become invalid if the cluster
// returns a revision older than theirs, even if they were updated recently. They become valid again
// once they have been reread (T34).
func TestFollowerOfRestoredCluster(t *testing.T) {
	ended := 0
	end := func() { ended++ }
	f := &Follower{o: FollowOptions{MaxAge: time.Hour}, parts: []*part{
		{what: keyrange.Range{Key: "a"}, revision: 100, asOf: now(), restart: end},
		{what: keyrange.Range{Key: "b"}, revision: 40, asOf: now(), restart: end},
	}}
	f.set = copies.New(copies.Config[store.KV]{})
	f.view.Store(f.set.View())
	f.addProbe(probe{at: now(), revision: 100}, f.maxRevision())
	if _, ok := f.Age(); !ok || ended != 0 {
		t.Fatalf("Age is known: %v, %d watches ended", ok, ended)
	}
	f.addProbe(probe{at: now(), revision: 50}, f.maxRevision())
	if age, ok := f.Age(); ok || f.valid() || ended != 1 {
		t.Fatalf("after the restore: age %v, %d watches ended", age, ended)
	}
	if len(f.probes) != 0 {
		t.Errorf("%d earlier probes are left", len(f.probes))
	}
	// Neither an event in the other range nor another probe makes this range valid again.
	f.apply(f.parts[1], &store.Update{Revision: 50})
	f.addProbe(probe{at: now(), revision: 101}, f.maxRevision())
	if f.valid() {
		t.Error("the follower is valid before the range was read again")
	}
}

// TestFollowerAge checks that a follower's age is the age of its oldest range, in whatever order
// probes and events arrive, and that no event makes it older.
func TestFollowerAge(t *testing.T) {
	began := now()
	at := func(s int) moment {
		d := time.Duration(s) * time.Second
		return moment{at: began.at.Add(d), wall: began.wall + int64(d)}
	}
	for name, turn := range map[string]int{"the first": 0, "the second": 1} {
		t.Run(name, func(t *testing.T) {
			parts := []*part{{revision: 5, asOf: at(1)}, {revision: 5, asOf: at(2)}}
			f := &Follower{parts: []*part{parts[turn], parts[1-turn]}}
			f.set = copies.New(copies.Config[store.KV]{})
			old, young := parts[0], parts[1]
			want := func(when string, s int) {
				t.Helper()
				if m := f.asOf.Load(); m == nil || *m != at(s) {
					t.Fatalf("%s: as of %v, want %v", when, m, at(s))
				}
			}
			f.addProbe(probe{at: at(3), revision: 7}, 5)
			want("neither range has caught up", 1)
			f.apply(young, &store.Update{Revision: 7})
			want("one range has caught up", 1)
			f.addProbe(probe{at: at(4), revision: 9}, 7)
			f.apply(old, &store.Update{Revision: 8})
			want("both have caught up with the first probe", 3)
			f.addProbe(probe{at: at(5), revision: 8}, 8)
			f.apply(young, &store.Update{Revision: 8})
			want("both have caught up with the last probe", 5)
			f.apply(young, &store.Update{Revision: 9})
			f.apply(old, &store.Update{Revision: 9})
			want("both have caught up with an earlier probe", 5)
			f.addProbe(probe{at: at(6), revision: 9}, 9)
			want("the probe finds nothing new", 6)
			f.apply(young, &store.Update{Revision: 8})
			if young.revision != 9 {
				t.Errorf("revision 8 delivered after 9: complete up to %d, want 9", young.revision)
			}
		})
	}
}

// TestFollowerLosesNewerRanges checks that after a restore, a follower keeps the ranges that are
// not ahead of the cluster. A lost range remains lost until it is read again, whatever later probes
// return.
func TestFollowerLosesNewerRanges(t *testing.T) {
	f := &Follower{o: FollowOptions{MaxAge: time.Hour}, parts: []*part{
		{revision: 100, asOf: now()}, {revision: 50, asOf: now()}, // neither is watched
	}}
	for _, revision := range []int64{50, 100} {
		f.addProbe(probe{at: now(), revision: revision}, revision+1)
		if a, b := f.parts[0].lost, f.parts[1].lost; !a || b {
			t.Errorf("probe %d: the newer range is lost: %v; the other: %v", revision, a, b)
		}
	}
}
