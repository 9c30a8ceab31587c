package cache

import (
	"testing"
	"time"

	"leasehold.dev/internal/copies"
	"leasehold.dev/internal/keyrange"

	"leasehold.dev/client/store"
)

// TestFollowerOfRestoredCluster (T34): once the cluster answers with a revision below
// what a follower was told before, what the follower has is not true any more, however young
// it seems. Those ranges count again when they were read again.
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
		t.Fatalf("age %v, %d watches ended", ok, ended)
	}
	f.addProbe(probe{at: now(), revision: 50}, f.maxRevision())
	if age, ok := f.Age(); ok || f.valid() || ended != 1 {
		t.Fatalf("it has an age of %v, and %d watches ended", age, ended)
	}
	if len(f.probes) != 0 {
		t.Errorf("%d answers from before count still", len(f.probes))
	}
	// News of the other range makes nothing of this one true again, nor does another answer.
	f.apply(f.parts[1], &store.Update{Revision: 50})
	f.addProbe(probe{at: now(), revision: 101}, f.maxRevision())
	if f.valid() {
		t.Error("it answers from memory before the range was read again")
	}
}

// Goal: what a follower has is as old as that of its ranges of which least is known, in whichever
// order the answers and the news come; and no news makes it older. Method: two ranges, and moments
// that the test chooses.
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
			want("nobody has told of what there is by now", 1)
			f.apply(young, &store.Update{Revision: 7})
			want("one range is told", 1)
			f.addProbe(probe{at: at(4), revision: 9}, 7)
			f.apply(old, &store.Update{Revision: 8})
			want("both are told of the first answer", 3)
			f.addProbe(probe{at: at(5), revision: 8}, 8)
			f.apply(young, &store.Update{Revision: 8})
			want("both are told of the last answer", 5)
			f.apply(young, &store.Update{Revision: 9})
			f.apply(old, &store.Update{Revision: 9})
			want("both are told of an earlier one", 5)
			f.addProbe(probe{at: at(6), revision: 9}, 9)
			want("what is answered is known by then", 6)
			f.apply(young, &store.Update{Revision: 8})
			if young.revision != 9 {
				t.Errorf("told of revision 8 after 9: known up to %d", young.revision)
			}
		})
	}
}

// TestFollowerLosesNewerRanges: when a cluster went back, a follower keeps the ranges of which it
// was told nothing later. A lost range stays so until it is read again, whatever is answered.
func TestFollowerLosesNewerRanges(t *testing.T) {
	f := &Follower{o: FollowOptions{MaxAge: time.Hour}, parts: []*part{
		{revision: 100, asOf: now()}, {revision: 50, asOf: now()}, // neither is watched just now
	}}
	for _, revision := range []int64{50, 100} {
		f.addProbe(probe{at: now(), revision: revision}, revision+1)
		if a, b := f.parts[0].lost, f.parts[1].lost; !a || b {
			t.Errorf("answered %d: the range ahead is lost: %v; the other: %v", revision, a, b)
		}
	}
}
