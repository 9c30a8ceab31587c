package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/test/harness"
	"leasehold.dev/test/tier"
)

// soon returns a context for calls to a healthy cluster.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// id returns the ID that the member reports for itself.
func (m *member) id() (id uint64) {
	m.t.Helper()
	harness.Eventually(m.t, "the status of "+m.name, func() error {
		s, err := m.status()
		if err == nil {
			id = s.Header.MemberId
		}
		return err
	})
	return id
}

// change retries a membership change until it is accepted. Members that have just started do not
// count as healthy yet.
func (c *cluster) change(what string, f func(ctx context.Context, a *clientv3.Client) error) {
	c.t.Helper()
	harness.Eventually(c.t, what, func() error {
		ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
		defer cancel()
		return f(ctx, c.members[0].admin)
	})
}

// add adds a new member to the cluster without starting it.
func (c *cluster) add(name string, learner bool) *member {
	c.t.Helper()
	m := newMember(c.t, name)
	c.join(m, learner)
	m.admin = client(c.t, m)
	c.t.Cleanup(m.cleanup)
	return m
}

// join adds a new or previously used member to the cluster, and configures it to join.
func (c *cluster) join(m *member, learner bool) {
	c.t.Helper()
	c.change("adding "+m.name, func(ctx context.Context, a *clientv3.Client) error {
		urls := []string{m.peer}
		var err error
		if learner {
			_, err = a.MemberAddAsLearner(ctx, urls)
		} else {
			_, err = a.MemberAdd(ctx, urls)
		}
		if errors.Is(err, rpctypes.ErrPeerURLExist) {
			return nil // an earlier attempt succeeded, but its answer was lost
		}
		return err
	})
	c.members = append(c.members, m)
	m.configure(c.initial(), "existing", c.token)
}

// remove removes a member from the cluster.
func (c *cluster) remove(m *member, id uint64) {
	c.t.Helper()
	c.members = c.others(m)
	c.change("removing "+m.name, func(ctx context.Context, a *clientv3.Client) error {
		_, err := a.MemberRemove(ctx, id)
		if errors.Is(err, rpctypes.ErrMemberNotFound) {
			return nil
		}
		return err
	})
}

// stopsItself waits until a removed member exits.
func (m *member) stopsItself() {
	m.t.Helper()
	if err := m.wait(); err != nil {
		m.t.Errorf("%s ended with %v when it was removed", m.name, err)
	}
}

// agrees writes through each member. It reads each value serializably through the same member, and
// linearizably through every member.
func (c *cluster) agrees() {
	c.t.Helper()
	for _, m := range c.members {
		key, value := "through/"+m.name, fmt.Sprint(now())
		harness.Eventually(c.t, "a write through "+m.name, func() error {
			ctx, cancel := context.WithTimeout(c.t.Context(), opPatience)
			defer cancel()
			_, err := m.admin.Put(ctx, key, value)
			return err
		})
		r, err := m.admin.Get(soon(c.t), key, clientv3.WithSerializable())
		if err != nil || len(r.Kvs) != 1 || string(r.Kvs[0].Value) != value {
			c.t.Errorf("%s does not read its own write: %v %v", m.name, r, err)
		}
		for _, o := range c.members {
			r, err := o.admin.Get(soon(c.t), key)
			if err != nil || len(r.Kvs) != 1 || string(r.Kvs[0].Value) != value {
				c.t.Errorf("%s does not read the write through %s: %v %v", o.name, m.name, r, err)
			}
		}
	}
}

// TestMembership checks that all leases survive while members are added, promoted, removed and
// replaced.
func TestMembership(t *testing.T) {
	tier.Campaign(t)
	c := newCluster(t, 3)
	stop := keep(t, c, 2, keeperTTL)
	c.agrees()

	learner := c.add("learner", true)
	checkLearner(t, c, learner)
	c.agrees()

	t.Log("remove a follower, at", now())
	id := learner.id()
	c.remove(learner, id)
	learner.stopsItself()
	c.agrees()

	t.Log("lose a disk, at", now())
	lost := c.followers()[0]
	id = lost.id()
	lost.kill()
	lost.wipe()
	c.remove(lost, id)
	c.join(lost, false)
	lost.launch()
	c.serves()
	c.agrees()

	t.Log("remove the leader, at", now())
	leader := c.leader()
	id = leader.id()
	c.remove(leader, id)
	leader.stopsItself()
	c.agrees()
	if n := len(c.list()); n != 2 {
		t.Errorf("%d members after removals, want 2", n)
	}
	stop()
}

// checkLearner starts and promotes a learner, and checks which requests are rejected in the
// meantime.
func checkLearner(t *testing.T, c *cluster, learner *member) {
	t.Helper()
	id := uint64(0)
	for _, m := range c.list() {
		if m.IsLearner {
			id = m.ID
		}
	}
	admin := c.members[0].admin
	for _, x := range []struct {
		what string
		want error
		call func(ctx context.Context) error
	}{
		{
			"promote a learner that never started", rpctypes.ErrMemberLearnerNotReady,
			func(ctx context.Context) error { return errOf(admin.MemberPromote(ctx, id)) },
		},
		{"add a second learner", rpctypes.ErrTooManyLearners, func(ctx context.Context) error {
			return errOf(admin.MemberAddAsLearner(ctx, []string{"http://127.0.0.1:1"}))
		}},
		{"add a URL that is known", rpctypes.ErrPeerURLExist, func(ctx context.Context) error {
			return errOf(admin.MemberAdd(ctx, []string{c.members[1].peer}))
		}},
		{"remove an unknown member", rpctypes.ErrMemberNotFound, func(ctx context.Context) error {
			return errOf(admin.MemberRemove(ctx, 12345))
		}},
		{"promote an unknown member", rpctypes.ErrMemberNotFound, func(ctx context.Context) error {
			return errOf(admin.MemberPromote(ctx, 12345))
		}},
		{"promote a voter", rpctypes.ErrMemberNotLearner, func(ctx context.Context) error {
			return errOf(admin.MemberPromote(ctx, c.members[1].id()))
		}},
		{
			"move the leadership to a learner", rpctypes.ErrBadLeaderTransferee,
			func(ctx context.Context) error {
				return errOf(c.leader().admin.MoveLeader(ctx, id))
			},
		},
	} {
		harness.Eventually(t, x.what, func() error {
			err := x.call(soon(t))
			if errors.Is(err, rpctypes.ErrUnhealthy) || errors.Is(err, rpctypes.ErrNotLeader) {
				return err // another member became leader
			}
			if !errors.Is(err, x.want) {
				t.Errorf("%s: %v, want %v", x.what, err, x.want)
			}
			return nil
		})
	}
	learner.launch()
	harness.Eventually(t, "the learner catches up", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, err := learner.admin.Get(ctx, "through/m1", clientv3.WithSerializable())
		if err == nil && len(r.Kvs) == 0 {
			err = errors.New("still behind")
		}
		return err
	})
	if _, err := learner.admin.Put(soon(t), "k", ""); err == nil {
		t.Error("a learner accepted a put")
	}
	c.change("promoting", func(ctx context.Context, a *clientv3.Client) error {
		_, err := a.MemberPromote(ctx, id)
		if errors.Is(err, rpctypes.ErrMemberNotLearner) {
			return nil
		}
		return err
	})
	learner.serves()
}

func errOf(_ any, err error) error { return err }

// list returns the members as reported by the first member.
func (c *cluster) list() []*pb.Member {
	c.t.Helper()
	r, err := c.members[0].admin.MemberList(soon(c.t))
	if err != nil {
		c.t.Fatal(err)
	}
	return r.Members
}

// TestQuorumIsKept checks a cluster of three members, one of them dead. Only the dead member can be
// removed.
func TestQuorumIsKept(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	c := newCluster(t, 3)
	dead := c.followers()[0]
	id := dead.id()
	alive := c.followers()[1]
	if alive == dead {
		alive = c.followers()[0]
	}
	aliveID := alive.id()
	dead.kill()
	harness.Eventually(t, "removing a live member is refused", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), opPatience)
		defer cancel()
		_, err := c.leader().admin.MemberRemove(ctx, aliveID)
		if err == nil {
			t.Fatal("a member that the quorum needs was removed")
		}
		if !errors.Is(err, rpctypes.ErrUnhealthy) {
			return err
		}
		return nil
	})
	c.remove(dead, id)
	c.agrees()
}
