package lock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/internal/uses"
	"leasehold.dev/client/store"
	"leasehold.dev/lease"
	"leasehold.dev/test/rig"
)

// keyOf returns the key of a lease in a queue, which a revision has made.
func keyOf(prefix string, of lease.ID, created int64, value string) store.KV {
	return store.KV{
		Key: prefix + fmt.Sprintf("%016x", of), Value: []byte(value), Lease: of,
		CreateRevision: created, ModRevision: created,
	}
}

// TestObserverTakes: an observer is told of each new leader once, and of none that led only within
// one revision: all events of a revision count before anything is told.
func TestObserverTakes(t *testing.T) {
	var told []LeaderInfo
	o := &observer{
		queue: waitQueue{prefix: "e/"}, keys: make(map[string]store.KV),
		yield: func(l LeaderInfo, err error) bool {
			told = append(told, l)
			return err == nil && l.Lease != 7
		},
	}
	take := func(events ...store.Event) error {
		told = nil
		return o.apply(events)
	}
	gone := func(of lease.ID, at int64) store.Event {
		kv := store.KV{Key: keyOf("e/", of, 0, "").Key, ModRevision: at}
		return store.Event{Delete: true, KV: kv}
	}
	one, two := keyOf("e/", 1, 2, "one"), keyOf("e/", 2, 3, "two")
	if err := take(store.Event{KV: one}, store.Event{KV: two}); err != nil || len(told) != 1 ||
		told[0].Lease != 1 || told[0].Revision != 2 || told[0].Since != 2 {
		t.Fatalf("of two candidates: %v, %v", told, err)
	}
	// The leader leaves and another candidate joins in one transaction.
	if err := take(gone(1, 4), store.Event{KV: keyOf("e/", 3, 4, "three")}); err != nil ||
		len(told) != 1 || told[0].Lease != 2 || string(told[0].Value) != "two" {
		t.Fatalf("the second leads: %v, %v", told, err)
	}
	// All leave at once: nobody is told that the third has led in between.
	if err := take(gone(2, 5), gone(3, 5)); err != nil || len(told) != 1 || !told[0].None() {
		t.Fatalf("nobody leads: %v, %v", told, err)
	}
	if err := take(store.Event{KV: store.KV{Key: "e/x", ModRevision: 6}}); err != nil ||
		len(told) != 0 {
		t.Fatalf("a key that is no candidate's: %v, %v", told, err)
	}
	err := take(store.Event{KV: keyOf("e/", 7, 8, "")})
	if !errors.Is(err, errStop) || len(told) != 1 {
		t.Fatalf("a program that wants no more: %v, %v", told, err)
	}
}

// TestLeaderOfOneRevision: of two candidates whose keys one transaction made, the one with the
// smaller key leads for all observers, as in the wait queue.
func TestLeaderOfOneRevision(t *testing.T) {
	small, large, late := keyOf("e/", 2, 5, ""), keyOf("e/", 3, 5, ""), keyOf("e/", 1, 6, "")
	o := &observer{keys: map[string]store.KV{small.Key: small, large.Key: large, late.Key: late}}
	for range 100 { // the order of a map differs
		if l := o.leader(); l.Lease != 2 {
			t.Fatalf("lease %v leads, want 2", l.Lease)
		}
	}
}

// TestKeyInUse: while a ticket is being given up, however long that takes, the next one with its
// key waits; a ticket that is not given up yet refuses it at once.
func TestKeyInUse(t *testing.T) {
	rig.Mute(t, rig.Unanswered, func(t *testing.T, c *client.Client) {
		s := &session{client: c, keys: uses.Of(uses.With(t.Context()))}
		if err := s.use(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		if err := s.use(t.Context(), "k"); !errors.Is(err, ErrInUse) {
			t.Errorf("a second ticket with the key: %v", err)
		}
		left := make(chan struct{})
		s.giveUp("k", func(context.Context) { <-left })
		synctest.Wait()
		impatient, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.use(impatient, "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the key is in use before the ticket is given up: %v", err)
		}
		time.AfterFunc(time.Second, func() { close(left) })
		if err := s.use(t.Context(), "k"); err != nil {
			t.Errorf("after the ticket was given up: %v", err)
		}
	})
}

// TestStandingOrder: a candidate that is preferred is before all others, then one with a higher
// priority, then the one that came first. Candidates without an ID are not preferred by "".
func TestStandingOrder(t *testing.T) {
	put := func(s *standing, of lease.ID, created int64, value string) {
		s.put(keyOf("e"+candidates, of, created, value))
	}
	s := &standing{name: "e", list: make(map[string]*stand)}
	want := func(what string, of lease.ID) {
		t.Helper()
		for range 100 { // the order of a map differs
			if got := s.first(); got != of {
				t.Fatalf("%s: lease %v is first, want %v", what, got, of)
			}
		}
	}
	want("no candidate", 0)
	put(s, 1, 5, `{"id":"a"}`)
	put(s, 2, 4, `{"id":"b"}`)
	want("equal priorities", 2)
	put(s, 3, 6, `{"id":"c","priority":1}`)
	put(s, 4, 7, `{"id":"","priority":1}`)
	want("a higher priority", 3)
	s.put(store.KV{Key: "e" + preferred, Value: []byte("a")})
	want("a preferred one", 1)
	s.put(store.KV{Key: "e" + preferred, Value: []byte("nobody")})
	want("the preferred one does not stand", 3)
	s.put(store.KV{Key: "e" + preferred})
	want("no preferred candidate", 3)
	put(s, 3, 6, `no candidate`) // an update that nobody understands changes nothing
	want("after such an update", 3)
	s.put(store.KV{Key: keyOf("e"+candidates, 3, 6, "").Key}) // it is on no lease any more
	want("without its lease", 4)
	if got := s.byID("a"); got == nil || got.lease != 1 {
		t.Errorf("candidate a: %v", got)
	}
	put(s, 9, 3, `{"id":"a"}`)
	for range 100 {
		if got := s.byID("a"); got == nil || got.lease != 9 {
			t.Fatalf("the first candidate a: %v", got)
		}
	}
	s.put(store.KV{Key: "e" + preferred, Value: []byte("a")})
	want("the first of two preferred ones", 9)
	if got := s.byID("nobody"); got != nil {
		t.Errorf("candidate of no such ID: %v", got)
	}
}
