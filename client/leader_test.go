package client

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/store"
)

// soon is enough time to connect to a reachable leader.
const soon = time.Second

// followed is like inBubble with three members, one of which is the leader. The client is connected
// to the leader.
func followed(t *testing.T, c Config, test func(*testing.T, *Client, *fake)) {
	t.Helper()
	inBubble(t, 3, c, func(t *testing.T, c *Client, f *fake) {
		f.lead("b")
		pass(soon)
		if at := f.openedAt(); at != "b" {
			t.Fatalf("it is with %q", at)
		}
		withSession(t, c, f)
		test(t, c, f)
	})
}

// TestFollowsLeader checks that a client follows the leader. A request in flight is answered by the
// member that received it and is not sent to another. A watch resumes, and leases remain valid.
func TestFollowsLeader(t *testing.T) {
	followed(t, exact, func(t *testing.T, c *Client, f *fake) {
		l, w := grant(t, c, Grant{}), watch(t, c, 0)
		id, _ := f.watchID()
		f.last().say(watchResponse(id, 7, false, "k"))
		if u := next(t, w); u.Revision != 7 {
			t.Errorf("got %+v", u)
		}
		for _, leads := range []string{"c", "a", "b"} {
			old := f.last()
			f.set(func() { f.answer, f.seen = silent, nil })
			errs := make(chan error, 2)
			go func() {
				_, err := c.Put(t.Context(), store.Put{Key: "k"})
				errs <- err
			}()
			go func() {
				_, err := c.GrantOnly(t.Context(), Grant{TTL: time.Minute})
				errs <- err
			}()
			synctest.Wait()
			asked := f.requests()
			f.set(func() { f.answer = f.obey })
			f.lead(leads)
			pass(minSearchDelay<<3 + 1) // less time than a move takes
			if at := f.openedAt(); !strings.Contains(at, leads) || len(at) != 2 {
				t.Fatalf("it is with %q", at)
			}
			if _, from := f.watchID(); from != 8 {
				t.Errorf("the watch goes on from %d", from)
			}
			for _, r := range asked {
				old.say(f.obey(old, r)...)
			}
			for range cap(errs) {
				if err := <-errs; err != nil {
					t.Error(err)
				}
			}
			if at := f.openedAt(); at != leads {
				t.Errorf("it is with %q", at)
			}
			var cancelled, watched int
			for _, r := range f.requests() {
				switch {
				case r.GetCancel() != 0:
					cancelled++
				case r.GetWatch() != nil:
					watched++
				case r.GetRenew() == nil && !slices.Contains(asked, r):
					t.Errorf("asked for %v", r)
				}
			}
			if cancelled != 1 || watched != 1 {
				t.Errorf("%d watches, %d cancelled", watched, cancelled)
			}
		}
		pass(3 * ttl)
		is(t, l, nil)
		id, _ = f.watchID()
		f.last().say(watchResponse(id, 9, false, "k"))
		if u := next(t, w); u.Revision != 9 {
			t.Errorf("got %+v", u)
		}
	})
}

// TestFollowsUnanswered checks that requests left unanswered by the previous member are sent to the
// leader, and that writes keep their original numbers.
func TestFollowsUnanswered(t *testing.T) {
	followed(t, Config{}, func(t *testing.T, c *Client, f *fake) {
		f.set(func() { f.frozen["b"] = true })
		errs, n := make(chan error, 10), 1 // n includes the grant
		go func() {
			_, err := c.GrantOnly(t.Context(), Grant{TTL: time.Minute})
			errs <- err
		}()
		for kind, write := range writes(c) {
			if kind != "hand over" && kind != "change ttl" { // these two start with a grant
				go func() { errs <- write(t.Context()) }()
				n++
			}
		}
		synctest.Wait()
		start := time.Now()
		f.set(func() {
			f.leader = "c" // the old leader does not answer
			f.opened[len(f.opened)-1].out <- f.leadership("b")
		})
		for range n {
			if err := <-errs; err != nil {
				t.Error(err)
			}
			if n--; n == 1 && time.Since(start) > soon {
				t.Errorf("the writes took %v", time.Since(start))
			}
		}
		sent := make(map[uint64]int)
		_, numbered := f.sentNumbers()
		for _, r := range numbered {
			sent[r.Number]++
		}
		for number, times := range sent {
			if times != 2 {
				t.Errorf("number %d was sent %d times", number, times)
			}
		}
		synctest.Wait()
		if f.sessions != 1 || len(sent) < 4 || f.openedAt() != "c" {
			t.Errorf("%d sessions, %d numbers, with %q", f.sessions, len(sent), f.openedAt())
		}
	})
}

// TestLeaderDies checks that the client immediately connects to another member when the leader's
// machine disappears, and to the next leader once there is one.
func TestLeaderDies(t *testing.T) {
	followed(t, exact, func(t *testing.T, c *Client, f *fake) {
		l := grant(t, c, Grant{})
		f.set(func() {
			f.dead["b"], f.leader = true, ""
			close(f.opened[len(f.opened)-1].cut)
		})
		start := time.Now()
		if _, err := c.Put(t.Context(), store.Put{Key: "k"}); err != nil || time.Since(start) > soon/2 {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		for _, leads := range []string{"a", "c"} {
			f.lead(leads)
			pass(soon)
			if at := f.openedAt(); at != leads {
				t.Errorf("it is with %q", at)
			}
		}
		pass(2 * ttl)
		is(t, l, nil)
	})
}

// TestLeaderFallsSilent checks when a client leaves a leader that becomes unresponsive without
// closing the stream. It leaves once another member reports a new leader. Until then, the leader
// has the full timeout to respond.
func TestLeaderFallsSilent(t *testing.T) {
	for name, tt := range map[string]struct {
		silent, next string
		least, most  time.Duration
	}{
		"next leader": {"b", "c", 0, 1700 * time.Millisecond},
		"no other":    {"b", "b", 3 * time.Second, 5 * time.Second},
		"none":        {"b", "", 3 * time.Second, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			followed(t, exact, func(t *testing.T, c *Client, f *fake) {
				f.set(func() { f.frozen[tt.silent], f.leader = true, tt.next })
				start := time.Now()
				if _, err := c.Put(t.Context(), store.Put{Key: "k"}); err != nil {
					t.Error(err)
				}
				if took := time.Since(start); took < tt.least || took > tt.most {
					t.Errorf("it took %v", took)
				}
				pass(soon)
				if at := f.openedAt(); tt.next == "c" && at != "c" {
					t.Errorf("it is with %q", at)
				}
			})
		})
	}
}

// TestMovesFromBroken checks that watches and caches continue on the leader if the old stream
// breaks during the move and the client detects this late.
func TestMovesFromBroken(t *testing.T) {
	followed(t, exact, func(t *testing.T, c *Client, f *fake) {
		watch(t, c, 0)
		k, err := c.linkCache(grant(t, c, Grant{}), &fakeCache{})
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close()
		synctest.Wait()
		old, late := c.mux.current(), make(chan struct{})
		old.mu.Lock() // so that it is not sent before the stream ends
		old.out.urgent.push(&call{done: func(*pb.Response, error) { <-late }})
		old.mu.Unlock()
		broken := f.last()
		f.lead("c")
		close(broken.cut)
		pass(soon)
		f.set(func() { f.answer, f.seen = silent, nil })
		close(late)
		synctest.Wait()
		var asked []string
		for _, s := range f.seen {
			for _, r := range s.message.Requests {
				asked = append(asked, fmt.Sprintf("%s %T", s.stream.name, r.Body))
			}
		}
		slices.Sort(asked)
		want := []string{"c *leaseholdv1.Request_Cache", "c *leaseholdv1.Request_Watch"}
		if !slices.Equal(asked, want) {
			t.Errorf("asked %q", asked)
		}
	})
}

// TestDeadEndpoints checks that dead members do not prevent a starting client from reaching live
// ones.
func TestDeadEndpoints(t *testing.T) {
	inBubble(t, 5, Config{}, func(t *testing.T, c *Client, f *fake) {
		f.set(func() {
			for _, name := range []string{"a", "b", "c", "d", "e"} {
				f.dead[name] = name != f.opened[0].name
			}
			close(f.opened[0].cut)
		})
		start := time.Now()
		if _, err := c.Get(t.Context(), "k"); time.Since(start) > soon {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		pass(time.Minute)
		if f.streams() != 2 {
			t.Errorf("%d streams", f.streams())
		}
	})
}

// TestLeaderOutOfReach checks that a client that cannot reach a working leader retries it at
// increasing intervals. In the meantime, the client remains connected to its current member.
func TestLeaderOutOfReach(t *testing.T) {
	for name, fault := range map[string]func(*fake) map[string]bool{
		"refused": func(f *fake) map[string]bool { return f.down },
		"dead":    func(f *fake) map[string]bool { return f.dead },
	} {
		t.Run(name, func(t *testing.T) {
			followed(t, Config{}, func(t *testing.T, c *Client, f *fake) {
				f.set(func() { fault(f)["c"] = true })
				f.lead("c")
				begun := f.streams()
				for range 60 {
					pass(10 * time.Second)
					if _, err := c.Put(t.Context(), store.Put{Key: "k"}); err != nil {
						t.Fatal(err)
					}
				}
				if at := f.openedAt(); at != "b" || f.streams() > begun+2 {
					t.Errorf("with %q, %d streams", at, f.streams()-begun)
				}
				synctest.Wait()
				if f.refused > 60 {
					t.Errorf("%d tries in ten minutes", f.refused)
				}
				f.set(func() { delete(fault(f), "c") })
				pass(2 * maxSearchDelay)
				if at := f.openedAt(); at != "c" {
					t.Errorf("it is with %q", at)
				}
			})
		})
	}
}

// TestLeaderUnknown checks a client whose endpoints do not include the leader. It tries each
// endpoint once and stays connected to its member until one of the endpoints becomes the leader.
func TestLeaderUnknown(t *testing.T) {
	followed(t, Config{}, func(t *testing.T, c *Client, f *fake) {
		f.set(func() { f.down["a"] = true })
		f.lead("y")
		pass(time.Minute)
		begun := f.streams()
		pass(time.Hour)
		if at := f.openedAt(); at != "b" || f.streams() != begun || begun > 5 {
			t.Errorf("with %q, %d streams, then %d", at, begun, f.streams())
		}
		f.set(func() { f.down["a"] = false })
		pass(2 * maxSearchDelay) // the client tries the endpoint that was down once more
		if at := f.openedAt(); at != "b" || f.streams() != begun+1 {
			t.Errorf("with %q, %d streams, then %d", at, begun, f.streams())
		}
		f.lead("a")
		pass(soon)
		if at := f.openedAt(); at != "a" || f.streams() != begun+2 {
			t.Errorf("with %q, %d streams, then %d", at, begun, f.streams())
		}
	})
}

// TestAnyMember checks that a client with AnyMember remains connected to its member.
func TestAnyMember(t *testing.T) {
	inBubble(t, 3, Config{AnyMember: true}, func(t *testing.T, c *Client, f *fake) {
		for _, leads := range []string{"a", "b", "", "c"} {
			f.lead(leads)
			pass(time.Minute)
		}
		if f.streams() != 1 {
			t.Errorf("%d streams", f.streams())
		}
	})
}

// TestLeaderFlaps checks that a client moves at increasing intervals while the leader changes
// rapidly, and that all requests are answered. Once the leader is stable, the client connects to
// it.
func TestLeaderFlaps(t *testing.T) {
	followed(t, exact, func(t *testing.T, c *Client, f *fake) {
		l, begun := grant(t, c, Grant{}), f.streams()
		for i := range 600 {
			f.lead([]string{"a", "b", "c", ""}[i%4])
			pass(100 * time.Millisecond)
			if _, err := c.Put(t.Context(), store.Put{Key: "k"}); err != nil {
				t.Fatal(err)
			}
		}
		if n := f.streams() - begun; n > 30 {
			t.Errorf("%d streams in a minute", n)
		}
		is(t, l, nil)
		f.lead("b")
		pass(2 * maxSearchDelay)
		if at := f.openedAt(); at != "b" {
			t.Errorf("it is with %q", at)
		}
	})
}

// TestUrgent checks that a client whose leases are about to expire tries to connect as often as
// necessary. A client without leases, or with only long ones, does not. There is always a pause
// between attempts.
func TestUrgent(t *testing.T) {
	for _, tt := range []struct {
		ttl, outage time.Duration
		most        int // maximum number of attempts during the outage
	}{
		{200 * time.Millisecond, 120 * time.Millisecond, 40},
		{time.Second, 600 * time.Millisecond, 100},
		{time.Hour, 10 * time.Second, 150},
	} {
		inBubble(t, 3, exact, func(t *testing.T, c *Client, f *fake) {
			f.set(func() {
				f.answer = func(s *fakeStream, r *pb.Request) []*pb.Response {
					out := f.obey(s, r)
					for i := range out[0].GetRenew().GetTtlMs() {
						out[0].GetRenew().TtlMs[i] = tt.ttl.Milliseconds()
					}
					return out
				}
			})
			l := grant(t, c, Grant{TTL: tt.ttl})
			f.set(func() {
				f.down["a"], f.down["b"], f.down["c"] = true, true, true
				close(f.opened[len(f.opened)-1].cut)
			})
			pass(tt.outage)
			f.set(func() { clear(f.down) })
			pass(tt.ttl)
			synctest.Wait()
			if f.refused > tt.most {
				t.Errorf("%v: %d tries", tt.ttl, f.refused)
			}
			is(t, l, nil)
		})
	}
}
