package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/leases"
)

// happened returns a response with the given events. All events up to seq have been sent.
func happened(id, seq uint64, events ...uint64) *pb.Response {
	m := &pb.EventsResponse{Seq: seq}
	for _, n := range events {
		m.Events = append(m.Events, &pb.LeaseEvent{
			Seq: n, Kind: pb.LeaseEvent_KIND_GRANTED, Lease: &pb.Lease{Id: int64(n)},
		})
	}
	return &pb.Response{Id: id, More: true, Body: &pb.Response_Events{Events: m}}
}

// eventsRequest returns the last request for events and the number of such requests.
func (f *fake) eventsRequest() (id uint64, r *pb.EventsRequest, n int) {
	for _, q := range f.requests() {
		if e := q.GetEvents(); e != nil {
			id, r = q.Id, e
			n++
		}
	}
	return id, r, n
}

func leaseEvents(t *testing.T, c *Client, ask leases.Watch) *LeaseWatcher {
	t.Helper()
	w, err := c.LeaseEvents(t.Context(), ask)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// beginsAt makes members start each event stream at a given sequence number.
func (f *fake) beginsAt(seq uint64) {
	f.set(func() {
		f.answer = func(s *fakeStream, r *pb.Request) []*pb.Response {
			if e := r.GetEvents(); e != nil {
				return []*pb.Response{happened(r.Id, max(seq, e.After))}
			}
			return f.obey(s, r)
		}
	})
}

// TestLeaseEvents checks that filters are sent to the member and that events arrive in order. The
// stream resumes on another member after the last known event, even if that event was filtered out.
func TestLeaseEvents(t *testing.T) {
	inBubble(t, 2, Config{}, func(t *testing.T, c *Client, f *fake) {
		f.beginsAt(7)
		w := leaseEvents(t, c, leases.Watch{
			NamePrefix: "p", Owner: "o", Labels: map[string]string{"l": "v"},
			ExpiringWithin: 1500 * time.Microsecond,
		})
		id, ask, _ := f.eventsRequest()
		if ask.After != 0 || ask.NamePrefix != "p" || ask.Owner != "o" || ask.Labels["l"] != "v" ||
			ask.ExpiringWithinMs != 2 {
			t.Errorf("asked for %v", ask)
		}
		f.last().say(happened(id, 9, 8, 9), happened(id, 20))
		u, err := w.Next(t.Context())
		if err != nil || len(u.Events) != 2 || u.Events[1].Seq != 9 || u.Seq != 9 ||
			u.Events[0].Kind != leases.Granted || u.Events[0].Lease.ID != 8 {
			t.Errorf("got %+v, %v", u, err)
		}
		synctest.Wait()
		if w.Seq() != 20 {
			t.Errorf("got events up to %d", w.Seq())
		}
		close(f.last().cut)
		synctest.Wait()
		id, ask, n := f.eventsRequest()
		if n != 2 || ask.After != 20 {
			t.Errorf("resumed %d times, after %d", n-1, ask.After)
		}
		f.last().say(refuse(&pb.Request{Id: id}, pb.Reason_REASON_UNAVAILABLE)...)
		pass(10 * time.Second)
		if id, _, n = f.eventsRequest(); n != 3 {
			t.Errorf("asked %d times", n)
		}
		f.last().say(happened(id, 21, 21))
		f.last().say(refuse(&pb.Request{Id: id}, pb.Reason_REASON_COMPACTED)...)
		if u, err := w.Next(t.Context()); err != nil || u.Seq != 21 {
			t.Errorf("got %+v, %v", u, err)
		}
		_, err = w.Next(t.Context())
		want(t, err, ErrCompacted)
		w.Close()
	})
}

// TestLeaseEventsBegin checks that a stream that cannot start reports the reason. A stream that
// started before the first event resumes from the beginning, and so does a program with a Seq of 0.
func TestLeaseEventsBegin(t *testing.T) {
	inBubble(t, 2, Config{}, func(t *testing.T, c *Client, f *fake) {
		f.beginsAt(0)
		w := leaseEvents(t, c, leases.Watch{})
		if _, r, _ := f.eventsRequest(); r.Resume || r.After != 0 {
			t.Errorf("begun by %v", r)
		}
		close(f.last().cut)
		synctest.Wait()
		if _, r, n := f.eventsRequest(); n != 2 || !r.Resume || r.After != 0 {
			t.Errorf("went on by %v", r)
		}
		w.Close()
		leaseEvents(t, c, leases.Watch{After: w.Seq(), Resume: true}).Close()
		if _, r, n := f.eventsRequest(); n != 3 || !r.Resume || r.After != 0 {
			t.Errorf("begun again by %v", r)
		}
		f.set(func() {
			f.answer = func(_ *fakeStream, r *pb.Request) []*pb.Response {
				return refuse(r, pb.Reason_REASON_COMPACTED)
			}
		})
		_, err := c.LeaseEvents(t.Context(), leases.Watch{After: 5})
		want(t, err, ErrCompacted)
		f.set(func() { f.answer = silent })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.LeaseEvents(ctx, leases.Watch{}); err == nil {
			t.Error("it has begun without a word")
		}
	})
}

// TestLeaseEventsOnce checks that every event arrives once and in order, even if streams break
// often and the program is slow.
func TestLeaseEventsOnce(t *testing.T) {
	const total = 3 * maxEvents
	for seed := range uint64(10) {
		inBubble(t, 3, Config{}, func(t *testing.T, c *Client, f *fake) {
			rng := rand.New(rand.NewPCG(seed, 7))
			// a separate source, because the fake answers on its own goroutines
			slow := rand.New(rand.NewPCG(seed, 8))
			f.set(func() {
				f.answer = func(s *fakeStream, r *pb.Request) []*pb.Response {
					if r.GetEvents() == nil {
						return nil
					}
					at := r.GetEvents().After
					out := []*pb.Response{happened(r.Id, at)}
					for breaks := rng.IntN(200); at < total; breaks-- {
						if breaks == 0 {
							time.AfterFunc(time.Millisecond, func() { close(s.cut) })
							break
						}
						var list []uint64
						for n := rng.IntN(400); n > 0 && at < total; n-- {
							at++
							list = append(list, at)
						}
						out = append(out, happened(r.Id, at, list...))
					}
					return out
				}
			})
			w := leaseEvents(t, c, leases.Watch{After: 1})
			for last := uint64(1); last < total; {
				if slow.IntN(50) == 0 {
					// enough events arrive that the client leaves some with the cluster
					pass(20 * time.Millisecond)
				}
				u, err := w.Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range u.Events {
					if last++; e.Seq != last {
						t.Fatalf("seed %d: event %d, want %d", seed, e.Seq, last)
					}
				}
				if u.Seq != last {
					t.Fatalf("seed %d: events up to %d, not %d", seed, last, u.Seq)
				}
			}
			w.Close()
			if _, err := w.Next(t.Context()); !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
		})
	}
}

// TestLeaseEventsSlowCaches checks that a program is notified once when a cache becomes slow and
// once when it no longer is. This holds even if the change happens while the client is between
// members, because the first response on a stream lists all slow caches.
func TestLeaseEventsSlowCaches(t *testing.T) {
	inBubble(t, 2, Config{}, func(t *testing.T, c *Client, f *fake) {
		slow := func(id uint64, kind pb.LeaseEvent_Kind, leases ...int64) *pb.Response {
			m := &pb.EventsResponse{Seq: 7}
			for _, l := range leases {
				m.Events = append(m.Events, &pb.LeaseEvent{
					Kind: kind, Lease: &pb.Lease{Id: l, Token: uint64(l)}, WaitedMs: 1000 * l,
				})
			}
			return &pb.Response{Id: id, More: true, Body: &pb.Response_Events{Events: m}}
		}
		const now, over = pb.LeaseEvent_KIND_CACHE_SLOW, pb.LeaseEvent_KIND_CACHE_SLOW_ENDED
		begins := func(leases ...int64) {
			f.set(func() {
				f.answer = func(s *fakeStream, r *pb.Request) []*pb.Response {
					if r.GetEvents() != nil {
						return []*pb.Response{slow(r.Id, now, leases...)}
					}
					return f.obey(s, r)
				}
			})
		}
		begins(1, 2)
		w := leaseEvents(t, c, leases.Watch{})
		wantUpdates := func(want ...string) {
			t.Helper()
			var got []string
			for len(got) < len(want) {
				u, err := w.Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range u.Events {
					got = append(got, fmt.Sprintf("%d %s %s", e.Lease.ID, e.Kind, e.Waited))
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		wantUpdates("1 cache slow 1s", "2 cache slow 2s")
		id, _, _ := f.eventsRequest()
		f.last().say(slow(id, over, 2), slow(id, now, 3), slow(id, now, 4))
		wantUpdates("2 cache slow ended 2s", "3 cache slow 3s", "4 cache slow 4s")
		begins(3, 5)
		close(f.last().cut)
		wantUpdates("1 cache slow ended 1s", "4 cache slow ended 4s", "5 cache slow 5s")
		begins(3, 5)
		close(f.last().cut)
		synctest.Wait()
		begins()
		close(f.last().cut)
		wantUpdates("3 cache slow ended 3s", "5 cache slow ended 5s")
		id, _, _ = f.eventsRequest()
		f.last().say(happened(id, 8, 8))
		wantUpdates("8 granted 0s")
		w.Close()
	})
}
