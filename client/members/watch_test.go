package members_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/client/members"
	"leasehold.dev/client/store"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
)

// TestWatchStartsCompacted checks that a watch that starts during compactions delivers each member
// once. The watch's first requests fail with ErrCompacted. Before the second, one member leaves and
// another joins.
func TestWatchStartsCompacted(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		direct, ctx := r.Dial(client.Config{}), rig.Soon(t)
		g := members.New(direct, "g")
		a := register(t, g, registration{ID: "a", TTL: time.Minute})
		register(t, g, registration{ID: "stays", TTL: time.Minute})
		c := rig.Through(t, r.Members[0], rig.Watches, func(n int) *pb.Response {
			switch n {
			case 1:
				if err := a.Release(ctx); err != nil {
					t.Error(err)
				}
				register(t, g, registration{ID: "b", TTL: time.Minute})
				return rig.Refusal(pb.Reason_REASON_COMPACTED)
			case 2, 3:
				return rig.Refusal(pb.Reason_REASON_COMPACTED)
			}
			return nil
		})
		w := rig.Must[*members.Watch](t)(members.New(c, "g").Watch(ctx))
		defer w.Close()
		want := "a joined ; stays joined ; a gone ; b joined "
		if got := format(rig.Must[[]members.Event](t)(w.Next(ctx))); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// TestWatchCanceled checks that a watch can be canceled while compactions are faster than its
// reads.
func TestWatchCanceled(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		ctx, cancel := context.WithCancel(rig.Soon(t))
		defer cancel()
		var began time.Time
		c := rig.Through(t, r.Members[0], rig.Watches, func(n int) *pb.Response {
			switch n {
			case 1:
				began = time.Now()
			case 8: // by now, the pauses are at least a quarter of a second in total
				if d := time.Since(began); d < 300*time.Millisecond {
					t.Errorf("8 attempts within %v", d)
				}
				time.AfterFunc(10*time.Millisecond, cancel)
			}
			return rig.Refusal(pb.Reason_REASON_COMPACTED)
		})
		if _, err := members.New(c, "g").Watch(ctx); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// TestWatchRecovers checks that a watch that cannot read the group again returns the error, and
// recovers as soon as it can. Changes without a known reason are delivered as well.
func TestWatchRecovers(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		direct, ctx := r.Dial(client.Config{}), rig.Soon(t)
		g := members.New(direct, "g")
		a := register(t, g, registration{ID: "a", TTL: time.Minute})
		lost, looks, ended := false, 0, make(chan struct{}, 10)
		b := &rig.Between{
			Instead: func(r *pb.Request) *pb.Response {
				if r.GetCancel() != 0 {
					ended <- struct{}{}
				}
				if rig.Reads(r) {
					if looks++; looks == 2 {
						return rig.Refused(1)
					}
				}
				return nil
			},
			Seen: func(r *pb.Response) {
				if w := r.GetWatch(); w != nil && len(w.Events) > 0 && !lost {
					lost = true
					r.Body = rig.Refusal(pb.Reason_REASON_COMPACTED).Body
				}
			},
		}
		w := rig.Must[*members.Watch](t)(members.New(b.Serve(t, r.Members[0]), "g").Watch(ctx))
		if got := format(rig.Must[[]members.Event](t)(w.Next(ctx))); got != "a joined " {
			t.Errorf("got %q, want a join", got)
		}
		if err := a.Release(ctx); err != nil {
			t.Fatal(err)
		}
		if list, err := w.Next(ctx); !errors.Is(err, client.ErrPermissionDenied) {
			t.Errorf("got %q, %v, want permission denied", format(list), err)
		}
		if got := format(rig.Must[[]members.Event](t)(w.Next(ctx))); got != "a gone " {
			t.Errorf("got %q, want a to be gone", got)
		}
		short, end := context.WithCancel(ctx)
		end()
		if list, err := w.Next(short); !errors.Is(err, context.Canceled) {
			t.Errorf("canceled: got %q, %v", format(list), err)
		}
		for len(ended) > 0 {
			<-ended
		}
		w.Close()
		<-ended
	})
}

// TestWatchOthers checks that a watch ignores keys that are not members: a key with an empty ID,
// and the keys of another group whose name starts with this group's name. It also ignores the end
// of a member that it never saw, such as a member that a restore brought back.
func TestWatchOthers(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		direct, ctx := r.Dial(client.Config{}), rig.Soon(t)
		b := &rig.Between{Seen: func(r *pb.Response) {
			for _, e := range r.GetWatch().GetEvents() {
				if string(e.Kv.Key) == "g/a" && e.Kind == pb.Event_KIND_PUT {
					e.Kv.Key = []byte("g/")
				}
			}
		}}
		w := rig.Must[*members.Watch](t)(members.New(b.Serve(t, r.Members[0]), "g").Watch(ctx))
		defer w.Close()
		g := members.New(direct, "g")
		register(t, members.New(direct, "g/h"), registration{ID: "a", TTL: time.Minute})
		a := register(t, g, registration{ID: "a", TTL: time.Minute})
		if err := a.Release(ctx); err != nil {
			t.Fatal(err)
		}
		register(t, g, registration{ID: "b", TTL: time.Minute})
		if got := format(rig.Must[[]members.Event](t)(w.Next(ctx))); got != "b joined " {
			t.Errorf("got %q, want b to join", got)
		}
	})
}

// TestWatchReplaced checks that a watch closes its old watcher when it restarts. Otherwise, the old
// watcher would still count against the client's limit.
func TestWatchReplaced(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		ctx, lost := rig.Soon(t), new(atomic.Bool)
		b := &rig.Between{Seen: func(r *pb.Response) {
			if w := r.GetWatch(); w != nil && len(w.Events) > 0 && lost.CompareAndSwap(false, true) {
				r.Body = rig.Refusal(pb.Reason_REASON_COMPACTED).Body
			}
		}}
		c := b.Serve(t, r.Members[0])
		g := members.New(c, "g")
		w := rig.Must[*members.Watch](t)(g.Watch(ctx))
		defer w.Close()
		room := func() (n int) {
			for ; ; n++ {
				other, err := c.WatchFrom(store.Watch{Key: "other"})
				if err != nil {
					return n
				}
				defer other.Close()
			}
		}
		before := room()
		register(t, g, registration{ID: "a", TTL: time.Minute})
		if got := format(rig.Must[[]members.Event](t)(w.Next(ctx))); got != "a joined " || !lost.Load() {
			t.Errorf("got %q, want a to join", got)
		}
		if after := room(); after != before {
			t.Errorf("%d more watches could be opened, want %d", after, before)
		}
	})
}

// TestEventsStop checks that a program that stops reading events can resume with the next event. An
// error is yielded last.
func TestEventsStop(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		c, ctx := r.Dial(client.Config{}), rig.Soon(t)
		g := members.New(c, "g")
		for _, id := range []string{"a", "b", "c"} {
			register(t, g, registration{ID: id, TTL: time.Minute})
		}
		w := rig.Must[*members.Watch](t)(g.Watch(ctx))
		defer w.Close()
		short, end := context.WithCancel(ctx)
		defer end()
		for _, want := range []string{"a", "b", "c"} {
			for e, err := range w.Events(short) {
				if err != nil || e.Member.ID != want || e.Member.Joined == 0 || e.Revision != e.Member.Joined {
					t.Errorf("got %+v, %v, want %s", e, err, want)
				}
				break
			}
		}
		end()
		n := 0
		for e, err := range w.Events(short) {
			if n++; !errors.Is(err, context.Canceled) || e.Change != 0 {
				t.Errorf("got %+v, %v, want canceled", e, err)
			}
		}
		if n != 1 {
			t.Errorf("got %d errors, want 1", n)
		}
	})
}

// TestCloseDuringNext checks that Close ends a pending call to Next.
func TestCloseDuringNext(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		ctx := rig.Soon(t)
		g := members.New(rig.New(t, 1).Dial(client.Config{}), "g")
		w := rig.Must[*members.Watch](t)(g.Watch(ctx))
		next := rig.Async(func() ([]members.Event, error) { return w.Next(ctx) })
		synctest.Wait()
		w.Close()
		if got := <-next; !errors.Is(got.Err, client.ErrClosed) {
			t.Errorf("Next returned %v", got)
		}
		if _, err := w.Next(ctx); !errors.Is(err, client.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		w.Close()
	})
}

// TestChanges checks that every Change has a name.
func TestChanges(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		for c, want := range map[members.Change]string{
			members.Joined: "joined", members.Gone: "gone",
			0: "unknown change 0", members.Gone + 1: "unknown change 6",
		} {
			if got := c.String(); got != want {
				t.Errorf("%d is %q, want %q", c, got, want)
			}
		}
	})
}
