package lock_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"testing"

	"go.etcd.io/etcd/client/v3/concurrency"

	"leasehold.dev/client"
	"leasehold.dev/client/lock"
	"leasehold.dev/client/store"
	"leasehold.dev/lease"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
	"leasehold.dev/test/virtual"
)

// TestElection tests elections with three members.
func TestElection(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 3)
		c := members.connect(t)
		for name, test := range map[string]func(*testing.T, *client.Client){
			"one at a time": oneLeader, "priority": priority, "hand over": handOver,
			"T17 lease": candidateLosesLease, "T17 observe": observe, "lead": lead,
			"leaves": candidateLeaves, "prefer": prefer, "depose": depose,
		} {
			virtual.Step(t, name, func(t *testing.T) { test(t, c) })
		}
	})
}

// stand campaigns in the background and returns once the candidate is registered.
func stand(
	t testing.TB, c *client.Client, name string, who lock.Candidate,
) (*client.Session, <-chan rig.Answer[*lock.Leading]) {
	t.Helper()
	s := session(t, c)
	return s, standAs(t, c, s, name, who)
}

func standAs(
	t testing.TB, c *client.Client, s *client.Session, name string, who lock.Candidate,
) <-chan rig.Answer[*lock.Leading] {
	t.Helper()
	ctx := rig.Soon(t)
	before := rig.Must[store.RangeResult](t)(c.Range(ctx, store.Range{
		Key: name + "~candidates/", End: store.Prefix(name + "~candidates/").End, CountOnly: true,
	})).Count
	got := rig.Async(func() (*lock.Leading, error) {
		return lock.NewElection(c, name).Campaign(ctx, s, who)
	})
	rig.Keys(t, c, name+"~candidates/", int(before)+1)
	return got
}

// leader campaigns without rivals.
func leader(t testing.TB, c *client.Client, name string, who lock.Candidate) *lock.Leading {
	t.Helper()
	e := lock.NewElection(c, name)
	l := rig.Must[*lock.Leading](t)(e.Campaign(rig.Soon(t), session(t, c), who))
	rig.Keys(t, c, name+"~candidates/", 0) // a leader is no longer a candidate
	return l
}

// wins waits until a campaign is won.
func wins(t testing.TB, got <-chan rig.Answer[*lock.Leading]) *lock.Leading {
	t.Helper()
	select {
	case a := <-got:
		return rig.Must[*lock.Leading](t)(a.Value, a.Err)
	case <-rig.Soon(t).Done():
		t.Fatal("the campaign was not won")
		return nil
	}
}

// loses checks that a campaign is still pending.
func loses(t testing.TB, got <-chan rig.Answer[*lock.Leading]) {
	t.Helper()
	select {
	case a := <-got:
		t.Fatalf("the campaign ended: %+v", a)
	default:
	}
}

func oneLeader(t *testing.T, c *client.Client) {
	ctx := rig.Soon(t)
	first := leader(t, c, "one", lock.Candidate{Value: []byte("first")})
	_, second := stand(t, c, "one", lock.Candidate{Value: []byte("second")})
	s, third := stand(t, c, "one", lock.Candidate{Value: []byte("third")})
	if _, err := lock.NewElection(c, "one").Campaign(ctx, s, lock.Candidate{}); !errors.Is(
		err, lock.ErrInUse,
	) {
		t.Errorf("second campaign of a session: %v", err)
	}
	if err := first.Proclaim(ctx, []byte("again")); err != nil {
		t.Fatal(err)
	}
	l := rig.Must[lock.LeaderInfo](t)(lock.NewElection(c, "one").Leader(ctx))
	if string(l.Value) != "again" || l.Key != first.Key() || l.Since != first.Revision() {
		t.Errorf("leader is %+v", l)
	}
	loses(t, second)
	if err := first.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if err := first.Proclaim(ctx, nil); !errors.Is(err, client.ErrReleased) {
		t.Errorf("Proclaim after Release: %v", err)
	}
	next := wins(t, second)
	loses(t, third)
	if next.Token() <= first.Token() {
		t.Errorf("token %d after %d", next.Token(), first.Token())
	}
	if err := next.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if l := wins(t, third); l.Token() <= next.Token() {
		t.Errorf("token %d after %d", l.Token(), next.Token())
	}
}

// priority checks that the candidate with the highest priority leads next, regardless of the order
// of arrival.
func priority(t *testing.T, c *client.Client) {
	ctx := rig.Soon(t)
	now := leader(t, c, "prio", lock.Candidate{})
	waiting := make(map[int]<-chan rig.Answer[*lock.Leading])
	for _, p := range []int{1, 3, 2} {
		_, waiting[p] = stand(t, c, "prio", lock.Candidate{
			ID: fmt.Sprint("p", p), Priority: p, Value: []byte{byte(p)},
		})
		// The candidate that arrived first is in the queue behind the leader.
		nextIs(t, c, "prio", highest(waiting))
	}
	for _, p := range []int{3, 2, 1} {
		nextIs(t, c, "prio", highest(waiting))
		if err := now.Release(ctx); err != nil {
			t.Fatal(err)
		}
		now = wins(t, waiting[p])
		delete(waiting, p)
	}
}

// highest returns the value of the waiting candidate with the highest priority.
func highest(waiting map[int]<-chan rig.Answer[*lock.Leading]) string {
	return string([]byte{byte(slices.Max(slices.Collect(maps.Keys(waiting))))})
}

// nextIs waits until the queue has two keys and the newer one has the given value.
func nextIs(t testing.TB, c *client.Client, name, value string) {
	t.Helper()
	ctx := rig.Soon(t)
	all := store.Prefix(name + "/").Range()
	for {
		r := rig.Must[store.RangeResult](t)(c.Range(ctx, all))
		if len(r.KVs) == 2 {
			i := 0
			if r.KVs[1].CreateRevision > r.KVs[0].CreateRevision {
				i = 1
			}
			if string(r.KVs[i].Value) == value {
				return
			}
		}
		w := rig.Must[*client.Watcher](t)(c.WatchFrom(store.Watch{
			Key: all.Key, End: all.End, From: r.Revision + 1,
		}))
		rig.Must[store.Update](t)(w.Next(ctx))
		w.Close()
	}
}

func handOver(t *testing.T, c *client.Client) {
	ctx := rig.Soon(t)
	now := leader(t, c, "over", lock.Candidate{ID: "a"})
	_, first := stand(t, c, "over", lock.Candidate{ID: "b", Priority: 9, Value: []byte("b")})
	nextIs(t, c, "over", "b")
	_, second := stand(t, c, "over", lock.Candidate{ID: "c", Value: []byte("c")})
	if err := now.HandOver(ctx, "nobody"); !errors.Is(err, lock.ErrNoCandidate) ||
		now.Err() != nil {
		t.Fatalf("hand-over to a missing candidate: %v; Err: %v", err, now.Err())
	}
	if err := now.HandOver(ctx, "c"); err != nil {
		t.Fatal(err)
	}
	next := wins(t, second)
	loses(t, first)
	if now.Err() == nil || next.Token() <= now.Token() {
		t.Errorf("two leaders, with tokens %d and %d", now.Token(), next.Token())
	}
	if err := next.Release(ctx); err != nil {
		t.Fatal(err)
	}
	wins(t, first)
}

// depose checks that a candidate can replace a leader without its cooperation, and that the leader
// is notified.
func depose(t *testing.T, c *client.Client) {
	ctx := rig.Soon(t)
	now := leader(t, c, "depose", lock.Candidate{})
	_, first := stand(t, c, "depose", lock.Candidate{ID: "b", Priority: 9, Value: []byte("b")})
	nextIs(t, c, "depose", "b")
	_, second := stand(t, c, "depose", lock.Candidate{ID: "c", Value: []byte("c")})
	outside := lock.NewElection(c, "depose") // not a candidate itself
	if err := outside.Depose(ctx, "nobody"); !errors.Is(err, lock.ErrNoCandidate) ||
		now.Err() != nil {
		t.Fatalf("depose for a missing candidate: %v; Err: %v", err, now.Err())
	}
	if err := outside.Depose(ctx, "c"); err != nil {
		t.Fatal(err)
	}
	next := wins(t, second)
	loses(t, first)
	<-now.Context().Done()
	if !errors.Is(now.Err(), client.ErrLost) || next.Token() <= now.Token() {
		t.Errorf("the old lead ended with %v; tokens %d and %d", now.Err(), now.Token(), next.Token())
	}
	if err := next.Release(ctx); err != nil {
		t.Fatal(err)
	}
	wins(t, first)
}

// prefer checks that a preferred candidate leads next, until the preference is removed.
func prefer(t *testing.T, c *client.Client) {
	ctx := rig.Soon(t)
	now := leader(t, c, "prefer", lock.Candidate{})
	_, high := stand(t, c, "prefer", lock.Candidate{ID: "high", Priority: 1, Value: []byte("h")})
	nextIs(t, c, "prefer", "h")
	_, low := stand(t, c, "prefer", lock.Candidate{ID: "low", Value: []byte("l")})
	e := lock.NewElection(c, "prefer")
	for _, step := range []struct{ id, next string }{{"low", "l"}, {"", "h"}, {"low", "l"}} {
		if err := e.Prefer(ctx, step.id); err != nil {
			t.Fatal(err)
		}
		nextIs(t, c, "prefer", step.next)
	}
	loses(t, high)
	if err := now.Release(ctx); err != nil {
		t.Fatal(err)
	}
	wins(t, low)
}

// candidateLosesLease checks that a candidate is notified promptly when its lease ends, and does
// not win.
func candidateLosesLease(t *testing.T, c *client.Client) {
	ctx := rig.Soon(t)
	now := leader(t, c, "t17", lock.Candidate{})
	s, second := stand(t, c, "t17", lock.Candidate{})
	rig.Keys(t, c, "t17/", 2)
	_, third := stand(t, c, "t17", lock.Candidate{})
	if err := s.Lease().Revoke(ctx); err != nil {
		t.Fatal(err)
	}
	if a := <-second; !errors.Is(a.Err, client.ErrReleased) {
		t.Errorf("candidate: %v, want ErrReleased", a.Err)
	}
	rig.Must[store.DeleteResult](t)(c.Delete(ctx, store.Delete{Key: now.Key()}))
	<-now.Context().Done()
	wins(t, third)
}

// candidateLeaves checks that a canceled campaign leaves no keys behind.
func candidateLeaves(t *testing.T, c *client.Client) {
	now := leader(t, c, "leaves", lock.Candidate{})
	s := session(t, c)
	ctx, cancel := context.WithCancel(rig.Soon(t))
	got := rig.Async(func() (*lock.Leading, error) {
		return lock.NewElection(c, "leaves").Campaign(ctx, s, lock.Candidate{})
	})
	rig.Keys(t, c, "leaves/", 2)
	cancel()
	if a := <-got; !errors.Is(a.Err, context.Canceled) {
		t.Errorf("canceled campaign: %v", a.Err)
	}
	rig.Keys(t, c, "leaves/", 1)
	rig.Keys(t, c, "leaves~candidates/", 0)
	again := standAs(t, c, s, "leaves", lock.Candidate{})
	if err := now.Release(rig.Soon(t)); err != nil {
		t.Fatal(err)
	}
	wins(t, again)
}

func lead(t *testing.T, c *client.Client) {
	ctx := rig.Soon(t)
	s, e := session(t, c), lock.NewElection(c, "lead")
	mine := errors.New("mine")
	err := e.Lead(ctx, s, lock.Candidate{}, func(ctx context.Context, l *lock.Leading) error {
		r := rig.Must[client.TxnResult](t)(c.Txn(ctx, store.Txn{
			If:   []store.Compare{l.Condition()},
			Then: []store.Op{store.Put{Key: "led"}},
		}))
		if !r.Succeeded {
			t.Error("the leader's transaction failed")
		}
		return mine
	})
	if !errors.Is(err, mine) {
		t.Error(err)
	}
	var tokens []lease.Token
	err = e.Lead(ctx, s, lock.Candidate{}, func(during context.Context, l *lock.Leading) error {
		if tokens = append(tokens, l.Token()); len(tokens) == 2 {
			return mine
		}
		rig.Must[store.DeleteResult](t)(c.Delete(ctx, store.Delete{Key: l.Key()}))
		<-during.Done()
		return nil
	})
	if !errors.Is(err, mine) || len(tokens) != 2 || tokens[0] >= tokens[1] {
		t.Errorf("after losing the lead: %v, tokens %v", err, tokens)
	}
	err = e.Lead(ctx, s, lock.Candidate{}, func(during context.Context, _ *lock.Leading) error {
		if err := s.Release(ctx); err != nil {
			t.Error(err)
		}
		<-during.Done()
		return nil
	})
	if !errors.Is(err, client.ErrReleased) {
		t.Errorf("after the session ended: %v", err)
	}
	if l := rig.Must[lock.LeaderInfo](t)(e.Leader(ctx)); !l.None() {
		t.Errorf("leader is %+v, want none", l)
	}
}

// observe checks that each leader, and each period without a leader, is yielded once and in order.
func observe(t *testing.T, c *client.Client) {
	ctx, cancel := context.WithCancel(rig.Soon(t))
	defer cancel()
	next, stop := iter.Pull2(lock.NewElection(c, "obs").Observe(ctx))
	defer stop()
	expect := func(value string, none bool) {
		t.Helper()
		l, err, _ := next()
		if err != nil || l.None() != none || string(l.Value) != value {
			t.Errorf("%+v, %v; want %q", l, err, value)
		}
	}
	expect("", true)
	first := leader(t, c, "obs", lock.Candidate{Value: []byte("one")})
	expect("one", false)
	_, second := stand(t, c, "obs", lock.Candidate{Value: []byte("two")})
	rig.Keys(t, c, "obs/", 2)
	if err := errors.Join(
		first.Proclaim(ctx, []byte("uno")), first.Release(ctx),
	); err != nil {
		t.Fatal(err)
	}
	two := wins(t, second)
	rig.Must[store.DeleteResult](t)(c.Delete(ctx, store.Delete{Key: two.Key()}))
	rig.Must[store.PutResult](t)(c.Put(ctx, store.Put{Key: "obs/nested/1"}))
	leader(t, c, "obs", lock.Candidate{Value: []byte("three")})
	for _, v := range []string{"uno", "two", "", "three"} {
		expect(v, v == "")
	}
	cancel()
	if _, err, ok := next(); !ok || !errors.Is(err, context.Canceled) {
		t.Errorf("at the end: %v", err)
	}
}

// TestElectionWithEtcd checks that etcd's concurrency.Election and lock.Election exclude each other
// on the same name. Each sees the other's leader, and candidates are served in order of arrival.
func TestElectionWithEtcd(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		all := newCluster(t, 1)
		ctx := rig.Soon(t)
		c, e := all.connect(t), all.etcd(t)
		s := rig.Must[*concurrency.Session](t)(concurrency.NewSession(e))
		t.Cleanup(func() { _ = s.Close() })
		theirs := concurrency.NewElection(s, "both")
		ours := leader(t, c, "both", lock.Candidate{ID: "ours", Value: []byte("ours")})
		for range 3 {
			waits := rig.Async(func() (struct{}, error) {
				return struct{}{}, theirs.Campaign(ctx, "theirs")
			})
			rig.Keys(t, c, "both/", 2)
			r, err := theirs.Leader(ctx)
			if err != nil || string(r.Kvs[0].Value) != "ours" {
				t.Fatalf("etcd's Leader: %v, %v", r, err)
			}
			_, next := stand(t, c, "both", lock.Candidate{
				ID: "next", Priority: 9, Value: []byte("ours"),
			})
			rig.Keys(t, c, "both/", 3)
			if err := ours.HandOver(ctx, "next"); !errors.Is(err, lock.ErrNoCandidate) {
				t.Fatalf("hand-over past a candidate of etcd's client: %v", err)
			}
			if err := ours.Release(ctx); err != nil {
				t.Fatal(err)
			}
			if a := <-waits; a.Err != nil {
				t.Fatal(a.Err)
			}
			l := rig.Must[lock.LeaderInfo](t)(lock.NewElection(c, "both").Leader(ctx))
			if string(l.Value) != "theirs" {
				t.Fatalf("our Leader: %+v", l)
			}
			loses(t, next)
			if err := theirs.Resign(ctx); err != nil {
				t.Fatal(err)
			}
			later := wins(t, next)
			if later.Token() <= ours.Token() {
				t.Fatalf("token %d after %d", later.Token(), ours.Token())
			}
			ours = later
		}
	})
}
