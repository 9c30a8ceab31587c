package native

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// follower follows lease events in a synctest bubble.
type follower struct {
	t      *testing.T
	node   *fakeNode
	cancel context.CancelFunc
	got    []*pb.EventsResponse
	slow   chan struct{} // capacity 1; sending blocks while it is full
	ended  chan error
}

func follow(t *testing.T, n *fakeNode, r *pb.EventsRequest) *follower {
	ctx, cancel := context.WithCancel(t.Context())
	f := &follower{
		t: t, node: n, cancel: cancel,
		slow: make(chan struct{}, 1), ended: make(chan error, 1),
	}
	f.start(ctx, r)
	return f
}

func (f *follower) start(ctx context.Context, r *pb.EventsRequest) {
	s := service(f.node, Options{})
	go func() {
		f.ended <- s.events(ctx, r, func(m *pb.EventsResponse) error {
			f.got = append(f.got, m)
			f.slow <- struct{}{}
			<-f.slow
			return nil
		})
	}()
	synctest.Wait()
}

// stop ends the stream and returns its error.
func (f *follower) stop() error {
	f.cancel()
	return <-f.ended
}

// take returns the responses since the last call.
func (f *follower) take() []string {
	synctest.Wait()
	var out []string
	for _, m := range f.got {
		for _, e := range m.Events {
			kind := strings.TrimPrefix(e.Kind.String(), "KIND_")
			text := fmt.Sprintf("%s %d", kind, e.Lease.Id)
			if e.Seq > 0 {
				text = fmt.Sprintf("%d: %s", e.Seq, text)
			}
			if e.By != "" {
				text += " by " + e.By
			}
			if e.Kind == pb.LeaseEvent_KIND_EXPIRING {
				text += fmt.Sprint(" in ", e.Lease.RemainingMs)
			}
			if strings.HasPrefix(kind, "CACHE_SLOW") {
				text += fmt.Sprint(" of ", e.Lease.Owner, " after ", e.WaitedMs)
			}
			out = append(out, text)
		}
	}
	f.got = nil
	return out
}

func (f *follower) want(want ...string) {
	f.t.Helper()
	if got := f.take(); !slices.Equal(got, want) {
		f.t.Errorf("got %q, want %q", got, want)
	}
}

// pass advances the node's time and the timers.
func (f *follower) pass(d time.Duration) {
	f.node.advance(lease.Instant(d.Milliseconds()))
	<-time.After(d) // in virtual time
	synctest.Wait()
}

func (n *fakeNode) do(t *testing.T, c fsm.Command) fsm.Result {
	t.Helper()
	res, err := n.Propose(t.Context(), c)
	if err != nil || res.Err != nil {
		t.Fatalf("%+v: %v, %v", c, err, res.Err)
	}
	return res
}

func (n *fakeNode) grants(t *testing.T, terms lease.Terms) lease.Token {
	t.Helper()
	if terms.TTL == 0 {
		terms.TTL = 1000
	}
	return n.do(t, &fsm.Grant{Terms: terms}).Value.(*lease.Info).Token
}

// checkpoint records the remaining time of a silent lease or, if left is 0, that it was renewed.
func (n *fakeNode) checkpoint(t *testing.T, id lease.ID, left lease.TTL) {
	t.Helper()
	info, _ := n.machine.Lessor().Lookup(id)
	n.do(t, &fsm.Checkpoint{Term: 2, Leases: []lease.Checkpoint{
		{ID: id, Token: info.Token, Remaining: left},
	}})
}

// TestEvents checks that each client receives the events that it requested, from its position on,
// as they happen.
func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.grants(t, lease.Terms{ID: 1, Name: "early"})
		all := follow(t, n, &pb.EventsRequest{})
		if len(all.got) != 1 || all.got[0].Seq != 1 || all.got[0].Events != nil {
			t.Errorf("the stream begins with %v", all.got)
		}
		jobs := follow(t, n, &pb.EventsRequest{NamePrefix: "job/"})
		anns := follow(t, n, &pb.EventsRequest{Owner: "ann"})
		east := follow(t, n, &pb.EventsRequest{Labels: map[string]string{"zone": "east"}})
		token := n.grants(t, lease.Terms{
			ID: 2, Name: "job/2", Owner: "ann", Labels: map[string]string{"zone": "east"},
		})
		n.do(t, &fsm.HandOver{ID: 2, Token: token, Owner: "bob"})
		n.do(t, &fsm.Revoke{ID: 2, By: "ann"})
		n.grants(t, lease.Terms{ID: 3, Labels: map[string]string{"zone": "west"}})
		all.want("2: GRANTED 2", "3: HANDED_OVER 2 by ann", "4: REVOKED 2 by ann", "5: GRANTED 3")
		jobs.want("2: GRANTED 2", "3: HANDED_OVER 2 by ann", "4: REVOKED 2 by ann")
		anns.want("2: GRANTED 2", "3: HANDED_OVER 2 by ann")
		east.want("2: GRANTED 2", "3: HANDED_OVER 2 by ann", "4: REVOKED 2 by ann")
		late := follow(t, n, &pb.EventsRequest{After: 3})
		late.want("4: REVOKED 2 by ann", "5: GRANTED 3")
		for _, f := range []*follower{all, jobs, anns, east, late} {
			if err := f.stop(); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		if len(n.news) != 0 {
			t.Errorf("%d are still woken", len(n.news))
		}
	})
}

// TestEventsCacheSlow checks that a client receives CACHE_SLOW once for each slow cache of the
// leases that it follows, and CACHE_SLOW_ENDED later, after all numbered events. The first response
// to a new follower includes caches that are already slow.
func TestEventsCacheSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(id lease.ID, owner string, since lease.Instant) SlowCache {
			return SlowCache{
				Lease: lease.Info{Terms: lease.Terms{ID: id, Owner: owner}, Token: lease.Token(id)},
				Since: since,
			}
		}
		n := newNode()
		n.advance(5000)
		all := follow(t, n, &pb.EventsRequest{})
		all.want()
		one, two := slow(1, "ann", 4001), slow(2, "bob", 3000)
		n.waitsFor(one)
		all.want("CACHE_SLOW 1 of ann after 1000")
		n.advance(500)
		anns := follow(t, n, &pb.EventsRequest{Owner: "ann"})
		if synctest.Wait(); len(anns.got) != 1 {
			t.Errorf("%d responses to a new follower", len(anns.got))
		}
		anns.want("CACHE_SLOW 1 of ann after 1500")
		n.grants(t, lease.Terms{ID: 3, Owner: "ann"})
		n.waitsFor(two, one)
		all.want("1: GRANTED 3", "CACHE_SLOW 2 of bob after 2501")
		anns.want("1: GRANTED 3")
		n.advance(100)
		n.waitsFor(two)
		all.want("CACHE_SLOW_ENDED 1 of ann after 1600")
		anns.want("CACHE_SLOW_ENDED 1 of ann after 1600")
		again := one
		again.Lease.Token++ // a new token
		n.waitsFor(two, one)
		all.want("CACHE_SLOW 1 of ann after 1600")
		n.waitsFor(two, again)
		all.want("CACHE_SLOW_ENDED 1 of ann after 1600", "CACHE_SLOW 1 of ann after 1600")
		all.slow <- struct{}{} // a slow reader receives only the result
		n.grants(t, lease.Terms{ID: 4})
		synctest.Wait()
		n.waitsFor()
		n.waitsFor(again)
		<-all.slow
		all.want("2: GRANTED 4", "CACHE_SLOW_ENDED 2 of bob after 2601")
		_, _ = all.stop(), anns.stop()
	})
}

// TestEventsProgress checks that a client with few events receives an occasional progress
// notification, so that it can resume elsewhere.
func TestEventsProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		f := follow(t, n, &pb.EventsRequest{NamePrefix: "none"})
		f.take()
		n.grants(t, lease.Terms{ID: 1})
		f.pass(progressAfter)
		if len(f.got) != 1 || f.got[0].Seq != 1 {
			t.Errorf("after a while: %v", f.got)
		}
		f.take()
		f.pass(progressAfter)
		for id := range lease.ID(progressEvery) {
			n.grants(t, lease.Terms{ID: id + 2})
		}
		synctest.Wait()
		if len(f.got) != 1 || f.got[0].Seq < progressEvery {
			t.Errorf("after many: %v", f.got)
		}
		_ = f.stop()
	})
}

// TestEventsSlow checks that a slow reader does not delay others and that its memory is bounded.
// Eventually it receives an error because events have been dropped. It receives the remaining
// events in order.
func TestEventsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.machine = fsm.New(fsm.Config{LeaseEvents: 2 * maxEvents})
		f := follow(t, n, &pb.EventsRequest{})
		f.take()
		f.slow <- struct{}{}
		for id := range lease.ID(2 * maxEvents) {
			n.grants(t, lease.Terms{ID: id + 1})
		}
		synctest.Wait()
		if len(f.got) != 1 {
			t.Errorf("%d responses while the first is in flight", len(f.got))
		}
		<-f.slow
		seen := f.take()
		if len(seen) != 2*maxEvents || !strings.HasPrefix(seen[len(seen)-1], "1024: ") {
			t.Errorf("%d events, the last is %s", len(seen), seen[len(seen)-1])
		}
		f.slow <- struct{}{}
		for id := range lease.ID(4 * maxEvents) {
			n.do(t, &fsm.Grant{Terms: lease.Terms{ID: 10_000 + id, TTL: 1000}})
		}
		<-f.slow
		if err := <-f.ended; !errors.Is(err, fsm.ErrEventsCompacted) {
			t.Errorf("late reader: %v", err)
		}
	})
}

// TestEventsBegin checks that a client that has received later events from another member waits for
// this member to catch up. A request for compacted or unknown events returns an error.
func TestEventsBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		s := service(n, Options{})
		end := func(r *pb.EventsRequest) error {
			return s.events(t.Context(), r, func(*pb.EventsResponse) error { return nil })
		}
		if err := end(&pb.EventsRequest{After: 7}); !errors.Is(err, fsm.ErrEventsCompacted) {
			t.Errorf("from the future: %v", err)
		}
		n.fail = errors.New("no leader")
		if err := end(&pb.EventsRequest{After: 7}); !errors.Is(err, n.fail) {
			t.Errorf("from the future, perhaps: %v", err)
		}
		for _, r := range []*pb.EventsRequest{
			{ExpiringWithinMs: -1},
			{NamePrefix: strings.Repeat("n", 1025)},
			{Owner: strings.Repeat("n", 1025)},
			{Labels: map[string]string{"": ""}},
		} {
			if err := end(r); err == nil || errors.Is(err, fsm.ErrEventsCompacted) {
				t.Errorf("%v: %v", r, err)
			}
		}
	})
}

// TestEventsResume checks that a client that has not received any event yet can resume with the
// first one, unless that event was compacted or precedes a restore. A client that starts from 0
// without resuming receives only new events.
func TestEventsResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		began := follow(t, n, &pb.EventsRequest{})
		if len(began.got) != 1 || began.got[0].Seq != 0 {
			t.Fatalf("begun by %v", began.got)
		}
		_ = began.stop()
		n.do(t, &fsm.Grant{Terms: lease.Terms{ID: 7, TTL: 5000}})
		for _, tt := range []struct {
			resume bool
			want   []string
		}{{true, []string{"1: GRANTED 7"}}, {false, nil}} {
			f := follow(t, n, &pb.EventsRequest{Resume: tt.resume})
			f.want(tt.want...)
			_ = f.stop()
		}
		for range 20_000 {
			n.do(t, &fsm.Revoke{ID: 7})
			n.do(t, &fsm.Grant{Terms: lease.Terms{ID: 7, TTL: 5000}})
		}
		f := follow(t, n, &pb.EventsRequest{Resume: true})
		if err := <-f.ended; !errors.Is(err, fsm.ErrEventsCompacted) {
			t.Errorf("from the first, which is gone: %v", err)
		}
	})
}

// TestExpiring checks that a client receives one notice for each lease that is not renewed,
// including leases that are already silent, and none for leases renewed in time.
func TestExpiring(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		for id := range lease.ID(6) {
			n.grants(t, lease.Terms{ID: id + 1, Name: fmt.Sprint("n/", id+1), TTL: 60_000})
		}
		n.grants(t, lease.Terms{ID: 7, Name: "other", TTL: 60_000})
		n.checkpoint(t, 1, 9000)
		n.checkpoint(t, 2, 1500)
		f := follow(t, n, &pb.EventsRequest{NamePrefix: "n/", ExpiringWithinMs: 2000})
		f.want("EXPIRING 2 in 1500")
		n.checkpoint(t, 3, 5000)
		n.checkpoint(t, 4, 5000)
		n.checkpoint(t, 5, 5000)
		n.checkpoint(t, 7, 5000)
		f.want()
		f.pass(2000 * time.Millisecond)
		n.checkpoint(t, 3, 0)
		n.do(t, &fsm.Revoke{ID: 4})
		f.want("8: REVOKED 4")
		f.pass(999 * time.Millisecond)
		f.want()
		f.pass(time.Millisecond)
		f.want("EXPIRING 5 in 2000")
		n.checkpoint(t, 5, 1900) // still silent, so there is nothing to report
		f.want()
		n.checkpoint(t, 5, 0)
		f.want("RENEWED 5")
		n.checkpoint(t, 5, 0)
		n.do(t, &fsm.Revoke{ID: 2})
		n.checkpoint(t, 6, 100)
		f.want("9: REVOKED 2", "EXPIRING 6 in 100")
		f.pass(4000 * time.Millisecond)
		f.want("EXPIRING 1 in 2000")
		_ = f.stop()
	})
}

// TestExpiringMissed checks that a stream that missed notices of silent leases scans all leases to
// find out what changed.
func TestExpiringMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		for id := range lease.ID(5) {
			n.grants(t, lease.Terms{ID: id + 1, TTL: 60_000})
		}
		for id := range lease.ID(4) {
			n.checkpoint(t, id+1, 1000)
		}
		f := follow(t, n, &pb.EventsRequest{ExpiringWithinMs: 2000})
		f.want("EXPIRING 1 in 1000", "EXPIRING 2 in 1000", "EXPIRING 3 in 1000", "EXPIRING 4 in 1000")
		f.slow <- struct{}{}
		n.grants(t, lease.Terms{ID: 6}) // its event is in flight
		synctest.Wait()
		n.checkpoint(t, 1, 0)
		n.do(t, &fsm.Revoke{ID: 2})
		n.do(t, &fsm.Revoke{ID: 3})
		n.grants(t, lease.Terms{ID: 3, TTL: 60_000}) // another incarnation
		n.checkpoint(t, 3, 500)
		n.checkpoint(t, 5, 1500)
		for range 5000 {
			n.checkpoint(t, 6, 30_000)
		}
		<-f.slow
		f.want("6: GRANTED 6", "7: REVOKED 2", "8: REVOKED 3", "9: GRANTED 3",
			"RENEWED 1", "EXPIRING 3 in 500", "EXPIRING 5 in 1500")
		_ = f.stop()
	})
}

// TestExpiringMany checks that no matter how many leases are silent, a stream tracks only a few
// thousand of them and misses none.
func TestExpiringMany(t *testing.T) {
	const many = 3 * maxSilent
	n := newNode()
	c := &fsm.Checkpoint{Term: 2}
	for id := lease.ID(1); id <= many; id++ {
		token := n.grants(t, lease.Terms{ID: id, TTL: 600_000})
		left := lease.TTL(1000 + 10*(id*7919%many)) // each at a different time
		if id > many-100 {
			left = 1000 + 10*many // but some at the same time
		}
		c.Leases = append(c.Leases, lease.Checkpoint{ID: id, Token: token, Remaining: left})
	}
	n.do(t, c)
	e := newExpiring(n, &pb.EventsRequest{ExpiringWithinMs: 500},
		func(*lease.Info) bool { return true })
	if err := e.follow(t.Context(), n.View()); err != nil {
		t.Fatal(err)
	}
	seen := make(map[int64]bool)
	for len(seen) < many {
		ms, ok := e.wait()
		if !ok {
			t.Fatalf("nothing to wait for after %d", len(seen))
		}
		n.advance(lease.Instant(ms))
		list, err := e.take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range list {
			if seen[m.Lease.Id] || m.Lease.RemainingMs != 500 {
				t.Fatalf("%d: reported before, or with %d left", m.Lease.Id, m.Lease.RemainingMs)
			}
			seen[m.Lease.Id] = true
		}
		if len(e.next) > maxSilent+100 || e.reported > maxSilent || len(e.leases) != len(e.next)+e.reported {
			t.Fatalf("%d to report, %d reported, %d kept", len(e.next), e.reported, len(e.leases))
		}
	}
	if e.sweep < 3 {
		t.Errorf("only %d scans: the bound was not reached", e.sweep)
	}
	for i := range c.Leases { // still silent, so there is nothing to report
		c.Leases[i].Remaining = 300
		n.do(t, &fsm.Checkpoint{Term: 2, Leases: c.Leases[i : i+1]})
		if err := e.follow(t.Context(), n.View()); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := e.take(t.Context()); err != nil || len(list) > 0 {
		t.Errorf("%d reported again, %v", len(list), err)
	}
}
