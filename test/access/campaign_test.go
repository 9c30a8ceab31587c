package access

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/client"
	"leasehold.dev/client/lock"
	"leasehold.dev/test/inprocess"
)

// TestRoleRevokedWhileCampaigning checks that revoking a user's permission ends all of the user's
// campaigns at the same revision, for the leader, the next candidate, and those behind it. Three of
// alice's sessions campaign through one member, and then alice loses her role.
func TestRoleRevokedWhileCampaigning(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		c := newCluster(t)
		c.each(t, func(t *testing.T, m *inprocess.Member) {
			ctx := timeout(t)
			alice := connectAs(t, "alice", m)
			name := "alice/" + m.Name()
			e := lock.NewElection(alice, name)
			session := func() *client.Session {
				l, err := alice.Grant(ctx, client.Grant{TTL: time.Minute})
				if err != nil {
					t.Fatal(err)
				}
				return l.Session()
			}
			leading, err := e.Campaign(ctx, session(), lock.Candidate{})
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 2)
			for range 2 {
				s := session()
				go func() {
					_, err := e.Campaign(ctx, s, lock.Candidate{})
					ended <- err
				}()
			}
			c.rootSees(t, name+"/", 2) // the leader's and the next candidate's keys
			c.rootSees(t, name+"~candidates/", 2)
			c.revokeRole(t, "alice")
			for range 2 {
				wantDenied(t, "campaign", <-ended)
			}
			<-leading.Context().Done()
			wantDenied(t, "lead", leading.Err())
		})
	})
}

// rootSees waits until n keys have the given prefix.
func (c *cluster) rootSees(t *testing.T, prefix string, n int64) {
	t.Helper()
	ctx := timeout(t)
	changes := c.root.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	for range changes {
		r, err := c.root.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		if r.Count == n {
			return
		}
	}
	t.Fatalf("want %d keys with prefix %s", n, prefix)
}
