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

// keyOf returns the queue key of a lease with the given create revision.
func keyOf(prefix string, of lease.ID, created int64, value string) store.KV {
	return store.KV{
		Key: prefix + fmt.Sprintf("%016x", of), Value: []byte(value), Lease: of,
		CreateRevision: created, ModRevision: created,
	}
}

// TestObserverEmits checks that an observer yields each new leader once. All events of a revision
// are applied together, so a leader that led only within a revision is not yielded.
func TestObserverEmits(t *testing.T) {
	var reported []LeaderInfo
	o := &observer{
		queue: waitQueue{prefix: "e/"}, keys: make(map[string]store.KV),
		yield: func(l LeaderInfo, err error) bool {
			reported = append(reported, l)
			return err == nil && l.Lease != 7
		},
	}
	take := func(events ...store.Event) error {
		reported = nil
		return o.apply(events)
	}
	gone := func(of lease.ID, at int64) store.Event {
		kv := store.KV{Key: keyOf("e/", of, 0, "").Key, ModRevision: at}
		return store.Event{Delete: true, KV: kv}
	}
	one, two := keyOf("e/", 1, 2, "one"), keyOf("e/", 2, 3, "two")
	if err := take(store.Event{KV: one}, store.Event{KV: two}); err != nil || len(reported) != 1 ||
		reported[0].Lease != 1 || reported[0].Revision != 2 || reported[0].Since != 2 {
		t.Fatalf("two candidates: %v, %v", reported, err)
	}
	// The leader leaves and another candidate joins in one transaction.
	if err := take(gone(1, 4), store.Event{KV: keyOf("e/", 3, 4, "three")}); err != nil ||
		len(reported) != 1 || reported[0].Lease != 2 || string(reported[0].Value) != "two" {
		t.Fatalf("the second should lead: %v, %v", reported, err)
	}
	// All candidates leave in one transaction, so the third one never leads.
	if err := take(gone(2, 5), gone(3, 5)); err != nil || len(reported) != 1 || !reported[0].None() {
		t.Fatalf("there should be no leader: %v, %v", reported, err)
	}
	if err := take(store.Event{KV: store.KV{Key: "e/x", ModRevision: 6}}); err != nil ||
		len(reported) != 0 {
		t.Fatalf("a key that is not a candidate's: %v, %v", reported, err)
	}
	err := take(store.Event{KV: keyOf("e/", 7, 8, "")})
	if !errors.Is(err, errStop) || len(reported) != 1 {
		t.Fatalf("after a stop: %v, %v", reported, err)
	}
}

// TestLeaderTie checks which of two candidates leads if their keys were created in one transaction.
// As in the wait queue, all observers see the candidate with the smaller key as the leader.
func TestLeaderTie(t *testing.T) {
	small, large, late := keyOf("e/", 2, 5, ""), keyOf("e/", 3, 5, ""), keyOf("e/", 1, 6, "")
	o := &observer{keys: map[string]store.KV{small.Key: small, large.Key: large, late.Key: late}}
	for range 100 { // map order is random
		if l := o.leader(); l.Lease != 2 {
			t.Fatalf("lease %v leads, want 2", l.Lease)
		}
	}
}

// TestKeyInUse checks that the next ticket with the same key waits while the previous one is being
// abandoned, for as long as that takes. While the previous ticket is still in use, the next one is
// rejected immediately.
func TestKeyInUse(t *testing.T) {
	rig.Mute(t, rig.Unanswered, func(t *testing.T, c *client.Client) {
		s := &session{client: c, keys: uses.Of(uses.With(t.Context()))}
		if err := s.use(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		if err := s.use(t.Context(), "k"); !errors.Is(err, ErrInUse) {
			t.Errorf("second ticket with the key: %v", err)
		}
		left := make(chan struct{})
		s.giveUp("k", func(context.Context) { <-left })
		synctest.Wait()
		impatient, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.use(impatient, "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("use before the ticket is given up: %v", err)
		}
		time.AfterFunc(time.Second, func() { close(left) })
		if err := s.use(t.Context(), "k"); err != nil {
			t.Errorf("after the ticket was given up: %v", err)
		}
	})
}

// TestStandingOrder checks the order of candidates. A preferred candidate comes first, then the one
// with the highest priority, then the one that arrived first. An empty preference does not match
// candidates without an ID.
func TestStandingOrder(t *testing.T) {
	put := func(s *standing, of lease.ID, created int64, value string) {
		s.put(keyOf("e"+candidates, of, created, value))
	}
	s := &standing{name: "e", list: make(map[string]*stand)}
	want := func(what string, of lease.ID) {
		t.Helper()
		for range 100 { // map order is random
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
	want("a preferred candidate", 1)
	s.put(store.KV{Key: "e" + preferred, Value: []byte("nobody")})
	want("the preferred candidate is missing", 3)
	s.put(store.KV{Key: "e" + preferred})
	want("no preferred candidate", 3)
	put(s, 3, 6, `no candidate`) // an invalid update changes nothing
	want("after an invalid update", 3)
	s.put(store.KV{Key: keyOf("e"+candidates, 3, 6, "").Key}) // no longer attached to a lease
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
	want("the first of two preferred candidates", 9)
	if got := s.byID("nobody"); got != nil {
		t.Errorf("candidate with a missing ID: %v", got)
	}
}
