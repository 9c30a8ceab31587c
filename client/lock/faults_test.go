package lock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/client/lock"
	"leasehold.dev/client/store"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
)

// wires returns a client that connects to each member through its own Line, and those lines.
func (c cluster) wires(t testing.TB) (*client.Client, []*inprocess.Line) {
	t.Helper()
	var list []*inprocess.Line
	for _, m := range c {
		list = append(list, m.Line())
	}
	return inprocess.Connect(t, client.Config{}, inprocess.Endpoints(list)...), list
}

func setDeaf(list []*inprocess.Line, deaf bool) {
	for _, l := range list {
		l.SetDeaf(deaf)
		if !deaf {
			l.Break()
		}
	}
}

func setCut(list []*inprocess.Line, cut bool) {
	for _, l := range list {
		l.SetCut(cut)
	}
}

// TestLostAnswers checks a session that cannot determine whether its key was created or deleted. It
// leaves no key behind and can use the name again.
func TestLostAnswers(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		ctx := rig.Soon(t)
		direct := members.connect(t)
		c, list := members.wires(t)
		m := lock.NewMutex(session(t, c), "lost")
		held := rig.Must[*lock.Held](t)(m.Lock(ctx)) // after this, the client is ready for writes
		if err := held.Release(ctx); err != nil {
			t.Fatal(err)
		}

		setDeaf(list, true)
		brief, cancel := context.WithCancel(ctx)
		entering := rig.Async(func() (*lock.Held, error) { return m.Lock(brief) })
		rig.Keys(t, direct, "lost/", 1) // the client has not received the response
		cancel()
		if a := <-entering; !errors.Is(a.Err, context.Canceled) {
			t.Fatalf("canceled lock: %+v", a)
		}
		setDeaf(list, false)
		rig.Keys(t, direct, "lost/", 0)

		held = rig.Must[*lock.Held](t)(m.Lock(ctx))
		setDeaf(list, true)
		brief, cancel = context.WithCancel(ctx)
		leaving := rig.Async(func() (struct{}, error) { return struct{}{}, held.Release(brief) })
		rig.Keys(t, direct, "lost/", 0)
		cancel()
		if a := <-leaving; !errors.Is(a.Err, context.Canceled) || held.Err() == nil {
			t.Fatalf("canceled release: %v, %v", a.Err, held.Err())
		}
		setDeaf(list, false)
		held = rig.Must[*lock.Held](t)(m.Lock(ctx))
		if err := held.Release(ctx); err != nil {
			t.Fatal(err)
		}
		rig.Keys(t, direct, "lost/", 0)
	})
}

// TestUnknownOutcome checks the error if one attempt to release a lock may have been applied, or
// may be applied later. The error reports this even if the next attempt is refused. The same
// applies to deposing a leader.
func TestUnknownOutcome(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		ctx := rig.Soon(t)
		direct := members.connect(t)
		for name, call := range map[string]func(c *client.Client) error{
			"unlock": func(c *client.Client) error {
				return rig.Must[*lock.Held](t)(lock.NewMutex(session(t, c), "unlock").Lock(ctx)).Release(ctx)
			},
			"depose": func(c *client.Client) error {
				leader(t, direct, "depose", lock.Candidate{ID: "a"})
				stand(t, direct, "depose", lock.Candidate{ID: "b"})
				return lock.NewElection(c, "depose").Depose(ctx, "b")
			},
		} {
			c := rig.Through(t, members[0], leaves(name), func(n int) *pb.Response {
				if n == 3 {
					return rig.Refused(n)
				}
				return rig.Unsure(nothing)(n)
			})
			err := call(c)
			if !errors.Is(err, client.ErrUnknownOutcome) || !errors.Is(err, client.ErrPermissionDenied) {
				t.Errorf("%s: %v", name, err)
			}
		}
		rig.Keys(t, direct, "unlock/", 0) // the release continues in the background
	})
}

// TestUnlockUnreachable checks that a release that cannot reach the cluster in time is completed
// later.
func TestUnlockUnreachable(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		ctx := rig.Soon(t)
		direct := members.connect(t)
		c, list := members.wires(t)
		held := rig.Must[*lock.Held](t)(lock.NewMutex(session(t, c), "far").Lock(ctx))
		setCut(list, true)
		brief, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		if err := held.Release(brief); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		rig.Keys(t, direct, "far/", 1)
		setCut(list, false)
		rig.Keys(t, direct, "far/", 0)
	})
}

// TestCompacted checks that a disconnected waiter or holder finds out what happened in the
// meantime, even if the history has been compacted.
func TestCompacted(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		ctx := rig.Soon(t)
		direct, e := members.connect(t), members.etcd(t)
		c, list := members.wires(t)
		other := rig.Must[*lock.Held](t)(lock.NewMutex(session(t, direct), "gone").Lock(ctx))
		m := lock.NewMutex(session(t, c), "gone")
		waiting := rig.Async(func() (*lock.Held, error) { return m.Lock(ctx) })
		rig.Keys(t, direct, "gone/", 2)
		forget := func(change func()) {
			t.Helper()
			setCut(list, true)
			change()
			r := rig.Must[store.PutResult](t)(direct.Put(ctx, store.Put{Key: "later"}))
			if _, err := e.Compact(ctx, r.Revision); err != nil {
				t.Fatal(err)
			}
			setCut(list, false)
		}
		forget(func() {
			if err := other.Release(ctx); err != nil {
				t.Fatal(err)
			}
		})
		a := <-waiting
		if a.Err != nil {
			t.Fatal(a.Err)
		}
		forget(func() {}) // the holder's key still exists
		if !holds(t, direct, a.Value) || a.Value.Err() != nil {
			t.Fatalf("the lock ended: %v", a.Value.Err())
		}
		forget(func() {
			rig.Must[store.DeleteResult](t)(direct.Delete(ctx, store.Delete{Key: a.Value.Key()}))
		})
		<-a.Value.Context().Done()
		if !errors.Is(a.Value.Err(), client.ErrLost) {
			t.Errorf("holder: %v, want ErrLost", a.Value.Err())
		}
	})
}
