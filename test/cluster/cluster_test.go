package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"leasehold.dev/test/harness"
)

// A cluster holds the members of one cluster.
type cluster struct {
	t       *testing.T
	token   string
	members []*member
	links   *links // nil on loopback
}

// newCluster starts n members on loopback and waits until each is serving.
func newCluster(t *testing.T, n int) *cluster {
	t.Helper()
	list := make([]*member, n)
	for i := range list {
		list[i] = newMember(t, fmt.Sprintf("m%d", i+1))
	}
	return startCluster(t, list)
}

// startCluster starts the members as a new cluster.
func startCluster(t *testing.T, list []*member) *cluster {
	t.Helper()
	c := &cluster{t: t, token: strings.ReplaceAll(t.Name(), "/", "-"), members: list}
	for _, m := range list {
		m.configure(c.initial(), "new", c.token)
		m.admin = client(t, m)
		t.Cleanup(m.cleanup)
		m.launch()
	}
	c.serves()
	return c
}

// initial returns the value of --initial-cluster.
func (c *cluster) initial() string {
	var parts []string
	for _, m := range c.members {
		parts = append(parts, m.name+"="+m.peer)
	}
	return strings.Join(parts, ",")
}

// serves waits until every member is serving.
func (c *cluster) serves() {
	c.t.Helper()
	for _, m := range c.members {
		m.serves()
	}
}

// wait sleeps for d, for example while a fault lasts.
func (c *cluster) wait(d time.Duration) {
	c.t.Helper()
	select {
	case <-time.After(d):
	case <-c.t.Context().Done():
	}
}

// leader returns the member that reports itself as the leader. A member that was cut off may report
// another leader. If two members report themselves, the one with the later term counts.
func (c *cluster) leader() *member {
	c.t.Helper()
	var leader *member
	harness.Eventually(c.t, "a member leads", func() error {
		var term uint64
		var failed error
		for _, m := range c.members {
			s, err := m.status()
			if err != nil {
				failed = errors.Join(failed, err)
			} else if s.Leader == s.Header.MemberId && s.RaftTerm > term {
				leader, term = m, s.RaftTerm
			}
		}
		if leader == nil {
			return fmt.Errorf("no member reports to lead: %w", failed)
		}
		return nil
	})
	return leader
}

// status returns a member's status. It uses a short timeout.
func (m *member) status() (*pb.StatusResponse, error) {
	if m.Ended() {
		return nil, errors.New(m.name + " has ended")
	}
	ctx, cancel := context.WithTimeout(m.t.Context(), 300*time.Millisecond)
	defer cancel()
	return pb.NewMaintenanceClient(m.admin.ActiveConnection()).Status(ctx, &pb.StatusRequest{})
}

// followers returns all members except the leader.
func (c *cluster) followers() []*member {
	c.t.Helper()
	leader := c.leader()
	return slices.DeleteFunc(slices.Clone(c.members), func(m *member) bool { return m == leader })
}

// moveLeader transfers leadership to another member.
func (c *cluster) moveLeader() {
	c.t.Helper()
	harness.Eventually(c.t, "the leader hands over", func() error {
		leader := c.leader()
		for _, m := range c.members {
			s, err := m.status()
			if m == leader || err != nil {
				continue
			}
			ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
			_, err = leader.admin.MoveLeader(ctx, s.Header.MemberId)
			cancel()
			return err
		}
		return errors.New("no member to hand over to")
	})
}

// writes waits until a write through one of the members is acknowledged. It returns how long that
// took.
func (c *cluster) writes(through ...*member) time.Duration {
	c.t.Helper()
	began := now()
	harness.Eventually(c.t, "a write is acknowledged", func() error {
		var last error
		for _, m := range through {
			ctx, cancel := context.WithTimeout(c.t.Context(), 500*time.Millisecond)
			_, err := m.admin.Put(ctx, "probe", "")
			cancel()
			if err == nil {
				return nil
			}
			last = err
		}
		return last
	})
	return now() - began
}

// others returns all members except m.
func (c *cluster) others(m *member) []*member {
	return slices.DeleteFunc(slices.Clone(c.members), func(o *member) bool { return o == m })
}
