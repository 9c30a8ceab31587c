package lock_test

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/client/lock"
	"leasehold.dev/client/store"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
)

// openWatches tracks the watches that a client has not yet ended.
type openWatches struct {
	t *testing.T

	mu   sync.Mutex // guards the following fields
	keys map[uint64]string
	news chan struct{} // signals a request
}

func (o *openWatches) take(r *pb.Request) *pb.Response {
	o.mu.Lock()
	defer o.mu.Unlock()
	if w := r.GetWatch(); w != nil {
		o.keys[r.Id] = string(w.Key)
	}
	delete(o.keys, r.GetCancel())
	select {
	case o.news <- struct{}{}:
	default:
	}
	return nil
}

func (o *openWatches) left() map[uint64]string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.keys)
}

// none waits until no watches are open.
func (o *openWatches) none(after string) {
	o.t.Helper()
	over := rig.Soon(o.t).Done()
	for len(o.left()) > 0 {
		select {
		case <-o.news:
		case <-over:
			o.t.Fatalf("after %s: %v are watched", after, o.left())
		}
	}
}

// TestWatchesClosed checks that calls that watch keys close their watches when they return.
func TestWatchesClosed(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		direct, ctx := members.connect(t), rig.Soon(t)
		o := &openWatches{t: t, keys: make(map[uint64]string), news: make(chan struct{}, 1)}
		heir := newStandIn(t, direct, "e")
		late := false
		b := &rig.Between{Instead: func(r *pb.Request) *pb.Response {
			if late && watchesFrom("e/")(r) {
				late = false
				heir.queues()
			}
			return o.take(r)
		}}
		c := b.Serve(t, members[0])
		e := lock.NewElection(c, "e")
		now := leader(t, c, "e", lock.Candidate{})
		o.none("a campaign")
		for l := range e.Observe(ctx) {
			if len(l.Value) > 0 {
				break
			}
			if err := now.Proclaim(ctx, []byte("news")); err != nil {
				t.Error(err)
			}
		}
		o.none("observing")
		heir.stands()
		late = true
		if err := now.HandOver(ctx, "heir"); err != nil {
			t.Fatal(err)
		}
		o.none("a hand-over")
		other := newStandIn(t, direct, "e")
		other.put("~candidates/", `{"id":"other"}`)
		other.queues()
		if err := e.Depose(ctx, "other"); err != nil {
			t.Fatal(err)
		}
		o.none("deposing")
	})
}

// fill opens as many watches as the client's stream allows.
func fill(c *client.Client) (room []*client.Watcher) {
	for {
		w, err := c.WatchFrom(store.Watch{Key: "other", From: 1})
		if err != nil {
			return room
		}
		room = append(room, w)
	}
}

// TestTooManyWatches checks that a call that cannot open a watch on the client's stream fails and
// changes nothing.
func TestTooManyWatches(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		direct, c, ctx := members.connect(t), members.connect(t), rig.Soon(t)
		s, e := session(t, c), lock.NewElection(c, "e")
		leads := leader(t, direct, "e", lock.Candidate{})
		newStandIn(t, direct, "e").stands()
		room := fill(c)
		var observed error
		for _, err := range e.Observe(ctx) {
			observed = err
		}
		_, campaign := e.Campaign(ctx, s, lock.Candidate{})
		depose := e.Depose(ctx, "heir")
		room[0].Close()
		for name, err := range map[string]error{
			"observe": observed, "campaign": campaign, "depose": depose,
			"depose with room for the candidates": e.Depose(ctx, "heir"),
		} {
			if !errors.Is(err, client.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if leads.Err() != nil {
			t.Errorf("the lead was lost: %v", leads.Err())
		}
	})
}

// TestTicketsFreed checks that a ticket that timed out, or that left the queue, does not count
// toward the client's limit.
func TestTicketsFreed(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		direct, c, ctx := members.connect(t), members.connect(t), rig.Soon(t)
		s := session(t, c)
		room := fill(c)
		for _, w := range room {
			w.Close()
		}
		rig.Must[*lock.Held](t)(lock.NewMutex(session(t, direct), "m").Lock(ctx))
		if _, err := lock.NewMutex(s, "m").LockWithin(ctx, 1); !errors.Is(err, lock.ErrLocked) {
			t.Errorf("second session: %v, want ErrLocked", err)
		}
		leader(t, direct, "e", lock.Candidate{})
		brief, cancel := context.WithCancel(ctx)
		waits := rig.Async(func() (*lock.Leading, error) {
			return lock.NewElection(c, "e").Campaign(brief, s, lock.Candidate{})
		})
		rig.Keys(t, direct, "e/", 2)
		other := newStandIn(t, direct, "e")
		other.put("~candidates/", `{"id":"other","priority":1}`)
		rig.Keys(t, direct, "e/", 1)
		other.leaves()
		rig.Keys(t, direct, "e/", 2)
		cancel()
		<-waits
		if again := fill(c); len(again) != len(room) {
			t.Errorf("there is room for %d watches, and was for %d", len(again), len(room))
		}
	})
}
