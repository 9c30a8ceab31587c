package cache

import (
	"testing"
	"time"

	"leasehold.dev/internal/copies"
	"leasehold.dev/internal/keyrange"

	"leasehold.dev/client/store"
)

// TestFollowerOfAClusterThatWentBack (T34): once the cluster answers with a revision below
// what a follower was told before, what the follower has is not true any more, however young
// it seems. Those ranges count again when they were read again.
func TestFollowerOfAClusterThatWentBack(t *testing.T) {
	ended := 0
	end := func() { ended++ }
	f := &Follower{o: FollowOptions{MaxAge: time.Hour}, parts: []*part{
		{what: keyrange.Range{Key: "a"}, told: 100, asOf: now(), again: end},
		{what: keyrange.Range{Key: "b"}, told: 40, asOf: now(), again: end},
	}}
	f.set = copies.New(copies.Config[store.KV]{})
	f.view.Store(f.set.View())
	f.answered(asked{at: now(), revision: 100}, f.told())
	if _, ok := f.Age(); !ok || ended != 0 {
		t.Fatalf("age %v, %d watches ended", ok, ended)
	}
	f.answered(asked{at: now(), revision: 50}, f.told())
	if age, ok := f.Age(); ok || f.valid() || ended != 1 {
		t.Fatalf("it has an age of %v, and %d watches ended", age, ended)
	}
	// News of the other range makes nothing of this one true again, nor does another answer.
	f.take(f.parts[1], &store.Update{Revision: 50})
	f.answered(asked{at: now(), revision: 101}, f.told())
	if f.valid() {
		t.Error("it answers from memory before the range was read again")
	}
}
