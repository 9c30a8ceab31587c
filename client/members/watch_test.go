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

// Goal: a watch that begins while history is forgotten tells what is there, once. Method: its first
// request is refused so; a member leaves and another comes before the second.
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
			t.Errorf("told %q, want %q", got, want)
		}
	})
}

// Goal: a watch that is given up while history is forgotten as fast as it reads says so.
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
			case 8: // it waits for a quarter of a second then, at least
				if d := time.Since(began); d < 300*time.Millisecond {
					t.Errorf("it is tried again and again within %v", d)
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

// Goal: a watch that cannot read the group anew says so, and goes on when it can; an event that it
// does not know the reason of is told. Method: history is forgotten, and reading is refused.
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
			t.Errorf("told %q", got)
		}
		if err := a.Release(ctx); err != nil {
			t.Fatal(err)
		}
		if list, err := w.Next(ctx); !errors.Is(err, client.ErrPermissionDenied) {
			t.Errorf("told %q, %v", format(list), err)
		}
		if got := format(rig.Must[[]members.Event](t)(w.Next(ctx))); got != "a gone " {
			t.Errorf("told %q", got)
		}
		short, end := context.WithCancel(ctx)
		end()
		if list, err := w.Next(short); !errors.Is(err, context.Canceled) {
			t.Errorf("given up: told %q, %v", format(list), err)
		}
		for len(ended) > 0 {
			<-ended
		}
		w.Close()
		<-ended
	})
}

// Goal: a watch tells nothing of keys that are no members: of the empty ID, and of a group whose
// name begins with this one's; nor of a member that goes of which it has not heard, as one that a
// restore has brought back. Method: it is told of another key when that one comes.
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
			t.Errorf("told %q", got)
		}
	})
}

// Goal: a watch that begins anew leaves nothing behind, so that the client has room for others.
// Method: history is forgotten; the program begins watches before and after, until it may not.
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
			t.Errorf("told %q", got)
		}
		if after := room(); after != before {
			t.Errorf("there is room for %d watches, and was for %d", after, before)
		}
	})
}

// Goal: a program that stops to read the events goes on with the next one; the last that it reads
// is the error.
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
					t.Errorf("told %+v, %v, want %s", e, err, want)
				}
				break
			}
		}
		end()
		n := 0
		for e, err := range w.Events(short) {
			if n++; !errors.Is(err, context.Canceled) || e.Change != 0 {
				t.Errorf("told %+v, %v", e, err)
			}
		}
		if n != 1 {
			t.Errorf("told of %d errors", n)
		}
	})
}

// Goal: Close ends a Next that waits.
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

// Goal: changes have names.
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
