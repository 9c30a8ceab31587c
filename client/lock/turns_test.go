package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/client/lock"
	"leasehold.dev/client/store"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
)

// enters and leaves match transactions that put or delete a key in a name's queue.
func enters(name string) func(*pb.Request) bool {
	return func(r *pb.Request) bool {
		for _, o := range r.GetTxn().GetSuccess() {
			if strings.HasPrefix(string(o.GetPut().GetKey()), name+"/") {
				return true
			}
		}
		return false
	}
}

func leaves(name string) func(*pb.Request) bool {
	return func(r *pb.Request) bool {
		for _, o := range r.GetTxn().GetSuccess() {
			if strings.HasPrefix(string(o.GetDeleteRange().GetKey()), name+"/") {
				return true
			}
		}
		return false
	}
}

// first calls do before the first matching request and answers that request with answer.
func first(do func(), answer *pb.Response) func(n int) *pb.Response {
	return func(n int) *pb.Response {
		if n > 1 {
			return nil
		}
		do()
		return answer
	}
}

func nothing() {}

// TestOutranked checks a candidate that waits behind the leader and is no longer first. It leaves
// the queue, or leads if it is too late for that. If it lacks a permission, it returns the error.
func TestOutranked(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		direct := members.connect(t)
		denied := rig.Refused(1)
		reads := func(name string) func(*pb.Request) bool { return readsFrom(name + "/") }
		for name, x := range map[string]struct {
			at     func(name string) func(*pb.Request) bool
			answer func(name string, depose func()) func(n int) *pb.Response
			want   error
		}{
			"leader goes": {reads, func(_ string, depose func()) func(int) *pb.Response {
				return first(depose, nil)
			}, nil},
			"leader goes late": {leaves, func(_ string, depose func()) func(int) *pb.Response {
				return first(depose, nil)
			}, nil},
			"leader goes unnoticed": {reads, func(name string, _ func()) func(int) *pb.Response {
				return goneAfterALook(t, direct, name)
			}, client.ErrLost},
			"look refused": {reads, func(string, func()) func(int) *pb.Response {
				return first(nothing, denied)
			}, client.ErrPermissionDenied},
			"step refused": {leaves, func(string, func()) func(int) *pb.Response {
				return first(nothing, denied)
			}, client.ErrPermissionDenied},
			"step unknown": {leaves, func(string, func()) func(int) *pb.Response {
				return rig.Unsure(nothing)
			}, client.ErrUnknownOutcome},
		} {
			name = strings.ReplaceAll(name, " ", "-")
			now := leader(t, direct, name, lock.Candidate{})
			other := newStandIn(t, direct, name)
			answer := x.answer(name, func() { other.remove(now.Key()) })
			c := rig.Through(t, members[0], x.at(name), answer)
			s := session(t, c)
			got := rig.Async(func() (*lock.Leading, error) {
				return lock.NewElection(c, name).Campaign(rig.Soon(t), s, lock.Candidate{})
			})
			rig.Keys(t, direct, name+"/", 2)
			other.put("~candidates/", `{"id":"other","priority":1}`)
			a := <-got
			if !errors.Is(a.Err, x.want) || x.want == nil && a.Err != nil {
				t.Errorf("%s: %v, want %v", name, a.Err, x.want)
			}
			if x.want != nil {
				rig.Keys(t, direct, name+"/", 1) // its key is deleted
			}
		}
	})
}

// TestCampaignDenied checks that a campaign fails if the candidate is not allowed to follow the
// other candidates or to wait behind the leader, or if its key is deleted.
func TestCampaignDenied(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		direct := members.connect(t)
		for name, at := range map[string]func(*pb.Request) bool{
			"list": readsFrom("list~"), "news": watchesFrom("news~"), "queue": enters("queue"),
		} {
			leader(t, direct, name, lock.Candidate{})
			other := newStandIn(t, direct, name)
			if name != "queue" {
				other.put("~candidates/", `{"id":"other","priority":1}`)
			}
			c := rig.Through(t, members[0], at, first(nothing, rig.Refused(1)))
			_, err := lock.NewElection(c, name).Campaign(rig.Soon(t), session(t, c), lock.Candidate{})
			if !errors.Is(err, client.ErrPermissionDenied) {
				t.Errorf("%s: %v", name, err)
			}
		}
		leader(t, direct, "later", lock.Candidate{})
		b := &rig.Between{Seen: func(r *pb.Response) {
			if len(r.GetWatch().GetEvents()) > 0 {
				r.Body, r.More = rig.Refused(1).Body, false
			}
		}}
		c := b.Serve(t, members[0])
		s := session(t, c)
		waits := rig.Async(func() (*lock.Leading, error) {
			return lock.NewElection(c, "later").Campaign(rig.Soon(t), s, lock.Candidate{})
		})
		rig.Keys(t, direct, "later/", 2)
		newStandIn(t, direct, "later").stands()
		if a := <-waits; !errors.Is(a.Err, client.ErrPermissionDenied) {
			t.Errorf("campaign after losing the permission: %v", a.Err)
		}
		leader(t, direct, "deleted", lock.Candidate{})
		s, waits = stand(t, direct, "deleted", lock.Candidate{})
		rig.Keys(t, direct, "deleted/", 2)
		rig.Must[store.DeleteResult](t)(direct.Delete(rig.Soon(t), store.Delete{
			Key: fmt.Sprintf("deleted~candidates/%x", int64(s.Lease().ID())),
		}))
		if a := <-waits; !errors.Is(a.Err, client.ErrLost) {
			t.Errorf("campaign after deleting its key: %v", a.Err)
		}
	})
}

// TestCampaignCompacted checks a candidate that waits to become first while changes are compacted.
// It reads the list again, or fails if that is denied.
func TestCampaignCompacted(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		direct := members.connect(t)
		for name, x := range map[string]struct {
			look *pb.Response
			want error
		}{"looks": {nil, nil}, "may-not": {rig.Refused(1), client.ErrPermissionDenied}} {
			other := newStandIn(t, direct, name)
			other.put("~candidates/", `{"id":"other","priority":1}`)
			follows := func(r *pb.Request) bool {
				return readsFrom(name+"~")(r) || watchesFrom(name+"~")(r)
			}
			c := rig.Through(t, members[0], follows, func(n int) *pb.Response {
				switch n {
				case 2: // the watch after the first read
					other.leaves()
					return rig.Refusal(pb.Reason_REASON_COMPACTED)
				case 3:
					return x.look
				}
				return nil
			})
			_, err := lock.NewElection(c, name).Campaign(rig.Soon(t), session(t, c), lock.Candidate{})
			if !errors.Is(err, x.want) || x.want == nil && err != nil {
				t.Errorf("%s: %v, want %v", name, err, x.want)
			}
		}
	})
}

// TestObserveTurns checks that a change made just as an observer starts to watch is yielded, even
// if it has been compacted. A refused watch is an error. Nothing is yielded after the program stops
// the iteration.
func TestObserveTurns(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		direct, ctx := members.connect(t), rig.Soon(t)
		for name, answer := range map[string]*pb.Response{
			"at-once": nil, "forgotten": rig.Refusal(pb.Reason_REASON_COMPACTED),
		} {
			s := newStandIn(t, direct, name)
			c := rig.Through(t, members[0], watchesFrom(name+"/"), first(s.queues, answer))
			none := true
			for l, err := range lock.NewElection(c, name).Observe(ctx) {
				if err != nil || l.None() != none {
					t.Fatalf("%s: %+v, %v", name, l, err)
				}
				if !none {
					break
				}
				none = false
			}
			if none {
				t.Errorf("%s: Observe ended before there was a leader", name)
			}
		}
		c := rig.Through(t, members[0], watchesFrom("refused/"), first(nothing, rig.Refused(1)))
		var last error
		for _, err := range lock.NewElection(c, "refused").Observe(ctx) {
			last = err
		}
		if !errors.Is(last, client.ErrPermissionDenied) {
			t.Errorf("with a refused watch: %v", last)
		}
		for range lock.NewElection(direct, "enough").Observe(ctx) {
			break
		}
	})
}

// TestLastLook checks that a session whose wait has timed out reads the queue once more. If the
// lock is free, the session acquires it as soon as the member reports its turn. Otherwise the
// session gets an error saying that its key is gone or that the lock is held, even if it is not
// allowed to read the holder.
func TestLastLook(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		direct := members.connect(t)
		for name, x := range map[string]struct {
			do     func(held *lock.Held, own standIn)
			answer *pb.Response
			want   error
		}{
			"free": {func(held *lock.Held, _ standIn) {
				if err := held.Release(rig.Soon(t)); err != nil {
					t.Error(err)
				}
			}, nil, nil},
			"gone":    {func(_ *lock.Held, own standIn) { own.steps() }, nil, client.ErrLost},
			"again":   {func(_ *lock.Held, own standIn) { own.steps(); own.queues() }, nil, client.ErrLost},
			"locked":  {func(*lock.Held, standIn) {}, nil, lock.ErrLocked},
			"may not": {func(*lock.Held, standIn) {}, rig.Refused(1), lock.ErrLocked},
		} {
			held := rig.Must[*lock.Held](t)(lock.NewMutex(session(t, direct), name).Lock(rig.Soon(t)))
			var s *client.Session
			c := rig.Through(t, members[0], readsFrom(name+"/"), first(func() {
				x.do(held, standIn{t, direct, name, s.Lease()})
			}, x.answer))
			s = session(t, c)
			if _, err := lock.NewMutex(s, name).LockWithin(rig.Soon(t), 1); !errors.Is(err, x.want) ||
				x.want == nil && err != nil {
				t.Errorf("%s: %v, want %v", name, err, x.want)
			}
		}
	})
}

// goneAfterALook answers the second session in a queue as if it were first, and deletes its key.
func goneAfterALook(t *testing.T, c *client.Client, name string) func(int) *pb.Response {
	return func(int) *pb.Response {
		kvs := rig.Keys(t, c, name+"/", 2)
		own := kvs[0]
		if kvs[1].CreateRevision > own.CreateRevision {
			own = kvs[1]
		}
		newStandIn(t, c, name).remove(own.Key)
		return &pb.Response{Body: &pb.Response_ReadRange{ReadRange: &pb.RangeResponse{
			Header: &pb.Header{}, Count: 1, Kvs: []*pb.KeyValue{{
				Key: []byte(own.Key), Lease: int64(own.Lease), CreateRevision: own.CreateRevision,
			}},
		}}}
	}
}

// TestNotNotifiedYet checks that a lock is not held if a read shows it as free but the member has
// not reported the session's turn. In this test, the session's key is deleted during the read.
func TestNotNotifiedYet(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		direct := members.connect(t)
		rig.Must[*lock.Held](t)(lock.NewMutex(session(t, direct), "m").Lock(rig.Soon(t)))
		c := rig.Through(t, members[0], readsFrom("m/"), goneAfterALook(t, direct, "m"))
		h, err := lock.NewMutex(session(t, c), "m").LockWithin(rig.Soon(t), 1)
		if !errors.Is(err, client.ErrLost) {
			t.Errorf("LockWithin: %v, %v", h, err)
		}
	})
}

// TestLeaseEndsWhileEntering checks that a session whose lease ends just after it enters the queue
// gets the lease's error, not ErrLocked.
func TestLeaseEndsWhileEntering(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		c, ctx := newCluster(t, 1).connect(t), rig.Soon(t)
		rig.Must[*lock.Held](t)(lock.NewMutex(session(t, c), "m").Lock(ctx))
		s := session(t, c)
		if _, err := lock.NewMutex(s, "m").TryLate(ctx, s.Lease().Close); !errors.Is(err, client.ErrClosed) {
			t.Errorf("got %v, want ErrClosed", err)
		}
		rig.Keys(t, c, "m/", 1)
	})
}

// TestLastPermit checks that a session that finds a free permit but loses the race for it does not
// hold the permit.
func TestLastPermit(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		direct, ctx := members.connect(t), rig.Soon(t)
		acquire := func() {
			if _, err := lock.NewSemaphore(session(t, direct), "s", 2).Acquire(ctx); err != nil {
				t.Error(err)
			}
		}
		acquire()
		c := rig.Through(t, members[0], enters("s"), func(n int) *pb.Response {
			if n == 2 { // the first answer reported a free permit
				acquire()
			}
			return nil
		})
		if h, err := lock.NewSemaphore(session(t, c), "s", 2).TryAcquire(ctx); !errors.Is(err, lock.ErrLocked) {
			t.Errorf("a third session got a permit: %v, %v", h, err)
		}
	})
}

// TestOneRequest checks that locking a lock that the session already holds sends no request, and
// that TryLock sends one request and creates no ticket.
func TestOneRequest(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		var asked atomic.Int64
		c, ctx := rig.Through(t, members[0], enters("m"), func(n int) *pb.Response {
			asked.Store(int64(n))
			return nil
		}), rig.Soon(t)
		m := lock.NewMutex(session(t, c), "m")
		rig.Must[*lock.Held](t)(m.Lock(ctx))
		if _, err := m.Lock(ctx); !errors.Is(err, lock.ErrInUse) || asked.Load() != 1 {
			t.Errorf("second lock: %v, after %d requests", err, asked.Load())
		}
		_, err := lock.NewMutex(session(t, c), "m").TryLock(ctx)
		if !errors.Is(err, lock.ErrLocked) || asked.Load() != 2 {
			t.Errorf("TryLock: %v, after %d requests", err, asked.Load())
		}
	})
}

// TestLockUnknown checks that if the outcome of the first attempt to lock is unknown, the next
// attempt acquires the lock. If the outcome of a release is unknown, the release succeeds once the
// key is gone.
func TestLockUnknown(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		direct, ctx := members.connect(t), rig.Soon(t)
		for name, done := range map[string]bool{"done": true, "not": false} {
			var s *client.Session
			c := rig.Through(t, members[0], enters(name), rig.Unsure(func() {
				if done {
					standIn{t, direct, name, s.Lease()}.queues()
				}
			}))
			s = session(t, c)
			held := rig.Must[*lock.Held](t)(lock.NewMutex(s, name).Lock(ctx))
			if !holds(t, direct, held) {
				t.Errorf("%s: the lock is not held", name)
			}
		}
		var held *lock.Held
		c := rig.Through(t, members[0], leaves("left"), rig.Unsure(func() {
			newStandIn(t, direct, "left").remove(held.Key())
		}))
		held = rig.Must[*lock.Held](t)(lock.NewMutex(session(t, c), "left").Lock(ctx))
		if err := held.Release(ctx); err != nil {
			t.Errorf("release at the second attempt: %v", err)
		}
	})
}

// TestDeletedDuringRelease checks that a lock counts as lost if its key is deleted just before it
// is released.
func TestDeletedDuringRelease(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		direct, ctx := members.connect(t), rig.Soon(t)
		var held *lock.Held
		c := rig.Through(t, members[0], leaves("m"), first(func() {
			newStandIn(t, direct, "m").remove(held.Key())
		}, nil))
		held = rig.Must[*lock.Held](t)(lock.NewMutex(session(t, c), "m").Lock(ctx))
		if err := held.Release(ctx); !errors.Is(err, client.ErrLost) {
			t.Errorf("release: %v, want ErrLost", err)
		}
	})
}

// TestDoEnds checks that Do releases its lock even if the function panics. The function can release
// the lock itself. Do returns the function's error. The function's context ends with the lock.
func TestDoEnds(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		c, ctx := members.connect(t), rig.Soon(t)
		m := lock.NewMutex(session(t, c), "do")
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			_ = m.Do(ctx, func(context.Context, *lock.Held) error { panic("no") })
		}()
		rig.Keys(t, c, "do/", 0)
		mine := errors.New("mine")
		err := m.Do(ctx, func(ctx context.Context, held *lock.Held) error {
			first, second := held.Context(), held.Context()
			err := held.Release(ctx)
			if first.Err() == nil || second.Err() == nil {
				t.Errorf("contexts after the release: %v, %v", first.Err(), second.Err())
			}
			return errors.Join(mine, err)
		})
		if !errors.Is(err, mine) {
			t.Errorf("after a release inside: %v", err)
		}
		var during context.Context
		if err := m.Do(ctx, func(ctx context.Context, _ *lock.Held) error {
			during = ctx
			return nil
		}); err != nil {
			t.Errorf("Do: %v", err)
		}
		<-during.Done()
		if err := context.Cause(during); !errors.Is(err, client.ErrReleased) {
			t.Errorf("the function's context: %v", err)
		}
	})
}
