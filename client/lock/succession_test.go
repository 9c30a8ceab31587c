package lock_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/client/lock"
	"leasehold.dev/client/store"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
)

// readsFrom and watchesFrom match reads and watches of a key, or of a range that starts at the key.
func readsFrom(key string) func(*pb.Request) bool {
	return func(r *pb.Request) bool { return string(r.GetReadRange().GetKey()) == key }
}

func watchesFrom(key string) func(*pb.Request) bool {
	return func(r *pb.Request) bool { return string(r.GetWatch().GetKey()) == key }
}

func puts(key string) func(*pb.Request) bool {
	return func(r *pb.Request) bool { return string(r.GetPut().GetKey()) == key }
}

// standIn simulates a candidate by its keys alone.
type standIn struct {
	t     *testing.T
	c     *client.Client
	name  string
	lease *client.Lease
}

func newStandIn(t *testing.T, c *client.Client, name string) standIn {
	l, err := c.Grant(rig.Soon(t), client.Grant{TTL: time.Minute})
	return standIn{t, c, name, rig.Must[*client.Lease](t)(l, err)}
}

func (s standIn) key(kind string) string {
	return fmt.Sprintf("%s%s%x", s.name, kind, int64(s.lease.ID()))
}

func (s standIn) put(kind, value string) {
	if _, err := s.c.Put(rig.Soon(s.t), store.Put{
		Key: s.key(kind), Value: []byte(value), Lease: s.lease.ID(),
	}); err != nil {
		s.t.Error(err)
	}
}

// stands makes the stand-in a candidate, and leaves undoes that. queues adds it to the queue behind
// the leader, and steps removes it.
func (s standIn) stands() { s.put("~candidates/", `{"id":"heir"}`) }
func (s standIn) queues() { s.put("/", "") }
func (s standIn) leaves() { s.remove(s.key("~candidates/")) }
func (s standIn) steps()  { s.remove(s.key("/")) }

func (s standIn) remove(key string) {
	if _, err := s.c.Delete(rig.Soon(s.t), store.Delete{Key: key}); err != nil {
		s.t.Error(err)
	}
}

// scene is an election with a leader, an heir that is a candidate but not in the queue yet, and
// another session that is not a candidate.
type scene struct {
	now         *lock.Leading
	heir, other standIn
}

// A turn is an event that occurs while leadership is transferred to the heir.
type turn struct {
	name   string
	before func(s *scene) // called before the transfer, unless nil
	// do runs before the nth matching request, which is refused unless do returns true.
	at   func(s *scene, election string) func(*pb.Request) bool
	n    int
	do   func(s *scene) (pass bool)
	want error // error of the call
	lost bool  // whether the leader loses the lead
}

func queue(_ *scene, election string) func(*pb.Request) bool { return readsFrom(election + "/") }
func list(_ *scene, election string) func(*pb.Request) bool  { return readsFrom(election + "~") }
func news(_ *scene, election string) func(*pb.Request) bool  { return watchesFrom(election + "/") }
func choice(_ *scene, election string) func(*pb.Request) bool {
	return puts(election + "~preferred")
}
func next(s *scene, _ string) func(*pb.Request) bool { return readsFrom(s.other.key("/")) }

func refuse(*scene) bool { return false }

// then runs all steps and allows the request.
func then(steps ...func(s *scene)) func(*scene) bool {
	return func(s *scene) bool {
		for _, f := range steps {
			f(s)
		}
		return true
	}
}

func heirQueues(s *scene)  { s.heir.queues() }
func heirLeaves(s *scene)  { s.heir.leaves() }
func otherQueues(s *scene) { s.other.queues() }
func otherSteps(s *scene)  { s.other.steps() }
func deposed(s *scene)     { s.heir.remove(s.now.Key()) }

// play transfers leadership to the heir, either by a hand-over or by deposing the leader.
func (x *turn) play(t *testing.T, members cluster, direct *client.Client, handOver bool) {
	t.Helper()
	name := strings.ReplaceAll(x.name, " ", "-")
	s := &scene{heir: newStandIn(t, direct, name), other: newStandIn(t, direct, name)}
	var armed atomic.Bool
	at := x.at(s, name)
	c := rig.Through(t, members[0], func(r *pb.Request) bool { return armed.Load() && at(r) },
		func(n int) *pb.Response {
			if n == x.n && !x.do(s) {
				return rig.Refused(n)
			}
			return nil
		})
	s.now = leader(t, c, name, lock.Candidate{})
	s.heir.stands()
	if x.before != nil {
		x.before(s)
	}
	armed.Store(true)
	give := lock.NewElection(c, name).Depose
	if handOver {
		give = s.now.HandOver
	}
	err := give(rig.Soon(t), "heir")
	if !errors.Is(err, x.want) || x.want == nil && err != nil {
		t.Errorf("%s: %v, want %v", x.name, err, x.want)
	}
	if leads := s.now.Err() == nil; x.want != nil && !x.lost && !leads {
		t.Errorf("%s: the lead was lost: %v", x.name, s.now.Err())
	}
}

// TestHandOverTurns checks hand-overs during which the leader, the heir or others change. The
// hand-over ends with the heir leading, or with an error. If it ends with an error, the leader
// still leads unless it has lost the role.
func TestHandOverTurns(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		direct := members.connect(t)
		denied := client.ErrPermissionDenied
		for _, x := range []turn{
			{"the heir queues late", nil, news, 1, then(heirQueues), nil, true},
			{"an etcd candidate leaves", otherQueues, next, 1, then(otherSteps, heirQueues), nil, true},
			{
				"an etcd candidate rejoins", otherQueues, next, 1,
				then(otherSteps, heirQueues, otherQueues), nil, true,
			},
			{"no candidate is left", nil, queue, 1, then(deposed), client.ErrLost, true},
			{"another leads", otherQueues, queue, 1, then(deposed), client.ErrLost, true},
			{"lost at the end", heirQueues, list, 2, then(deposed), client.ErrLost, true},
			{"the heir gives up", nil, queue, 1, then(heirLeaves), lock.ErrNoCandidate, false},
			{"the heir gives up late", nil, news, 1, then(heirLeaves), lock.ErrNoCandidate, false},
			{"an etcd candidate is next", nil, queue, 1, then(otherQueues), lock.ErrNoCandidate, false},
			{"candidates refused", heirQueues, list, 1, refuse, denied, false},
			{"choice refused", heirQueues, choice, 1, refuse, denied, false},
			{"queue refused", heirQueues, queue, 1, refuse, denied, false},
			{"candidates refused later", heirQueues, list, 2, refuse, denied, false},
			{"news refused", nil, news, 1, refuse, denied, false},
		} {
			x.play(t, members, direct, true)
		}
	})
}

// TestHandOverCompacted checks that a hand-over checks again which candidate is next if changes to
// the queue have been compacted.
func TestHandOverCompacted(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		heir := newStandIn(t, members.connect(t), "e")
		c := rig.Through(t, members[0], watchesFrom("e/"), first(
			heir.queues, rig.Refusal(pb.Reason_REASON_COMPACTED)))
		now := leader(t, c, "e", lock.Candidate{})
		heir.stands()
		if err := now.HandOver(rig.Soon(t), "heir"); err != nil {
			t.Error(err)
		}
	})
}

// TestDeposeTurns checks calls to Depose during which the leader or the heir changes. The call ends
// with the heir leading, or with an error.
func TestDeposeTurns(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		direct := members.connect(t)
		denied := client.ErrPermissionDenied
		for _, x := range []turn{
			{"no leader at first", deposed, news, 1, then(heirQueues), nil, true},
			{
				"another becomes leader", nil, queue, 2,
				then(deposed, otherQueues, heirQueues), nil, true,
			},
			{"the heir becomes leader", nil, queue, 2, then(deposed, heirQueues), nil, true},
			{
				"the heir leads and is no longer a candidate", nil, list, 2,
				then(deposed, heirQueues, heirLeaves), nil, true,
			},
			{"the heir gives up", nil, list, 2, then(heirLeaves), lock.ErrNoCandidate, false},
			{
				"the heir gives up and there is no leader", nil, list, 2, then(heirLeaves, deposed),
				lock.ErrNoCandidate, true,
			},
			{"leader refused", heirQueues, queue, 1, refuse, denied, false},
			{"queue refused", heirQueues, queue, 2, refuse, denied, false},
			{"choice refused", heirQueues, choice, 1, refuse, denied, false},
			{"news refused", nil, news, 1, refuse, denied, false},
			{"news refused without a leader", deposed, news, 1, refuse, denied, true},
		} {
			x.play(t, members, direct, false)
		}
		err := lock.NewElection(direct, "nobody").Depose(rig.Soon(t), "heir")
		if !errors.Is(err, lock.ErrNoCandidate) {
			t.Errorf("no leader and no candidate: %v", err)
		}
	})
}
