package etcd

import (
	"context"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/api/etcd/v3electionpb"
	"leasehold.dev/internal/api/etcd/v3lockpb"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// answer is the outcome of a call that can block.
type answer[T any] struct {
	resp T
	err  error
}

// async makes a call in the background.
func async[T any](f func() (T, error)) <-chan answer[T] {
	c := make(chan answer[T], 1)
	go func() {
		r, err := f()
		c <- answer[T]{r, err}
	}()
	return c
}

func (c *clients) lockAsync(
	ctx context.Context, name string, id int64,
) <-chan answer[*v3lockpb.LockResponse] {
	return async(func() (*v3lockpb.LockResponse, error) {
		return c.lock.Lock(ctx, &v3lockpb.LockRequest{Name: []byte(name), Lease: id})
	})
}

// waitKeys waits until there are n keys in the store.
func (n *fakeNode) waitKeys(t testing.TB, keys int) {
	t.Helper()
	s := n.hub.NewStream()
	defer s.Close()
	if _, err := s.Watch(watchAll(1)); err != nil {
		t.Fatal(err)
	}
	for n.View().KV.Len() != keys {
		if _, err := s.Next(ctx10(t)); err != nil {
			t.Fatalf("waiting for %d keys, there are %d: %v", keys, n.View().KV.Len(), err)
		}
	}
}

// TestLockTwice checks that a lease that already holds the lock acquires it again immediately.
func TestLockTwice(t *testing.T) {
	n := newNode(t)
	n.grant(t, 1, 10_000)
	c := serve(t, n, Options{})
	for range 2 {
		r, err := c.lock.Lock(ctx10(t), &v3lockpb.LockRequest{Name: []byte("l"), Lease: 1})
		if err != nil || string(r.Key) != "l/1" {
			t.Fatal(r, err)
		}
	}
}

// TestT16WaiterExpires checks that a waiter whose lease ends gets an error immediately and does not
// delay the waiters behind it.
func TestT16WaiterExpires(t *testing.T) {
	n := newNode(t)
	c := serve(t, n, Options{})
	n.grant(t, 1, 100_000)
	n.grant(t, 2, 1_000)
	n.grant(t, 3, 100_000)
	first := c.lockAsync(ctx10(t), "l", 1)
	if a := <-first; a.err != nil {
		t.Fatal(a.err)
	}
	second := c.lockAsync(ctx10(t), "l", 2)
	n.waitKeys(t, 2)
	third := c.lockAsync(ctx10(t), "l", 3)
	n.waitKeys(t, 3)
	n.advance(1_100)
	if a := <-second; status.Convert(a.err).Message() != "mutex: session is expired" {
		t.Fatalf("the waiter without a lease got %v, %v", a.resp, a.err)
	}
	if _, err := c.lock.Unlock(ctx10(t), &v3lockpb.UnlockRequest{Key: []byte("l/1")}); err != nil {
		t.Fatal(err)
	}
	if a := <-third; a.err != nil {
		t.Fatal(a.err)
	}
}

// TestT16LeaseGoneBeforeAnswer checks that a lease does not acquire the lock if it ends after
// reaching the head of the queue but before the response.
func TestT16LeaseGoneBeforeAnswer(t *testing.T) {
	n := newNode(t)
	n.grant(t, 1, 10_000)
	c := serve(t, &revokeOnConfirm{fakeNode: n, id: 1}, Options{})
	_, err := c.lock.Lock(ctx10(t), &v3lockpb.LockRequest{Name: []byte("l"), Lease: 1})
	wantStatus(t, err, errExpired)
}

// revokeOnConfirm revokes a lease during the confirm round.
type revokeOnConfirm struct {
	*fakeNode
	id lease.ID
}

func (n *revokeOnConfirm) Confirm(ctx context.Context) error {
	_, _ = n.Propose(ctx, &fsm.Revoke{ID: n.id})
	return n.fakeNode.Confirm(ctx)
}

// TestLockCancel checks that a caller that gives up leaves the queue.
func TestLockCancel(t *testing.T) {
	n := newNode(t)
	c := serve(t, n, Options{})
	n.grant(t, 1, 10_000)
	n.grant(t, 2, 10_000)
	if a := <-c.lockAsync(ctx10(t), "l", 1); a.err != nil {
		t.Fatal(a.err)
	}
	ctx, cancel := context.WithCancel(ctx10(t))
	second := c.lockAsync(ctx, "l", 2)
	n.waitKeys(t, 2)
	cancel()
	if a := <-second; status.Code(a.err) != codes.Canceled {
		t.Fatal(a.err)
	}
	n.waitKeys(t, 1)
}

// TestLockStop checks that a waiting Lock call ends when the service stops.
func TestLockStop(t *testing.T) {
	n := newNode(t)
	stop := make(chan struct{})
	c := serve(t, n, Options{Stop: stop})
	n.grant(t, 1, 10_000)
	n.grant(t, 2, 10_000)
	if a := <-c.lockAsync(ctx10(t), "l", 1); a.err != nil {
		t.Fatal(a.err)
	}
	second := c.lockAsync(ctx10(t), "l", 2)
	n.waitKeys(t, 2)
	close(stop)
	wantStatus(t, (<-second).err, rpctypes.ErrGRPCStopped)
}

// TestT18LockWithoutLease checks that for a lock without a lease, as in etcd, the server grants a
// lease of one minute and does not renew it. It revokes the lease if the lock was not acquired.
func TestT18LockWithoutLease(t *testing.T) {
	n := newNode(t)
	c := serve(t, n, Options{})
	r, err := c.lock.Lock(ctx10(t), &v3lockpb.LockRequest{Name: []byte("l")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctx10(t))
	second := c.lockAsync(ctx, "l", 0)
	n.waitKeys(t, 2)
	cancel()
	<-second
	n.waitKeys(t, 1)
	n.mu.Lock()
	if got := n.machine.Lessor().Len(); got != 1 {
		t.Errorf("%d leases", got)
	}
	n.mu.Unlock()
	if n.View().KV.Get(string(r.Key)) == nil {
		t.Fatal("the lock is gone")
	}
	n.advance(60_001)
	n.waitKeys(t, 0)
}

// TestLockErrors checks that a failed Lock returns the reason and leaves no key behind.
func TestLockErrors(t *testing.T) {
	n := newNode(t)
	c := serve(t, n, Options{})
	_, err := c.lock.Lock(ctx10(t), &v3lockpb.LockRequest{Name: []byte("l"), Lease: 9})
	wantStatus(t, err, rpctypes.ErrGRPCLeaseNotFound)
	_, err = c.lock.Unlock(ctx10(t), &v3lockpb.UnlockRequest{})
	wantStatus(t, err, rpctypes.ErrGRPCEmptyKey)
	_, err = c.lock.Unlock(ctx10(t), &v3lockpb.UnlockRequest{Key: []byte("nothing")})
	wantStatus(t, err, nil)
	n.mu.Lock()
	n.propose = func(fsm.Command) error { return api.ErrTimeout }
	n.mu.Unlock()
	_, err = c.lock.Lock(ctx10(t), &v3lockpb.LockRequest{Name: []byte("l"), Lease: 9})
	wantStatus(t, err, rpctypes.ErrGRPCTimeout)
	// The key could still exist, so the server tried to delete it on condition that it belongs to
	// the lease.
	n.mu.Lock()
	defer n.mu.Unlock()
	last := n.commands[len(n.commands)-1].(*fsm.Txn)
	if c := last.Compare[0]; c.Target != fsm.TargetLease || c.Number != 9 || c.Key != "l/9" {
		t.Errorf("cleaned up with %+v", c)
	}
}

func campaign(
	ctx context.Context, c *clients, id int64, value string,
) <-chan answer[*v3electionpb.CampaignResponse] {
	return async(func() (*v3electionpb.CampaignResponse, error) {
		return c.election.Campaign(ctx, &v3electionpb.CampaignRequest{
			Name: []byte("e"), Lease: id, Value: []byte(value),
		})
	})
}

func observe(t testing.TB, c *clients, name string) v3electionpb.Election_ObserveClient {
	t.Helper()
	s, err := c.election.Observe(ctx10(t), &v3electionpb.LeaderRequest{Name: []byte(name)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestElection runs a whole election with candidates and observers.
func TestElection(t *testing.T) {
	n := newNode(t)
	c := serve(t, n, Options{})
	n.grant(t, 1, 100_000)
	n.grant(t, 2, 100_000)
	_, err := c.election.Leader(ctx10(t), &v3electionpb.LeaderRequest{Name: []byte("e")})
	wantStatus(t, err, errNoLeader)
	seen := observe(t, c, "e")
	want := func(key, value string) {
		t.Helper()
		r, err := seen.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if string(r.Kv.Key) != key || string(r.Kv.Value) != value {
			t.Fatalf("observed %v, want %s = %s", r.Kv, key, value)
		}
	}

	first := <-campaign(ctx10(t), c, 1, "one")
	if first.err != nil {
		t.Fatal(first.err)
	}
	want("e/1", "one")
	second := campaign(ctx10(t), c, 2, "two")
	n.waitKeys(t, 2)
	lead, err := c.election.Leader(ctx10(t), &v3electionpb.LeaderRequest{Name: []byte("e")})
	if err != nil || string(lead.Kv.Value) != "one" {
		t.Fatal(lead, err)
	}
	leader := first.resp.Leader
	if leader.Rev != 2 || leader.Lease != 1 || string(leader.Name) != "e" {
		t.Errorf("leader key %v", leader)
	}
	_, err = c.election.Proclaim(ctx10(t), &v3electionpb.ProclaimRequest{
		Leader: leader, Value: []byte("uno"),
	})
	if err != nil {
		t.Fatal(err)
	}
	want("e/1", "uno")
	if _, err := c.election.Resign(ctx10(t), &v3electionpb.ResignRequest{Leader: leader}); err != nil {
		t.Fatal(err)
	}
	if a := <-second; a.err != nil || a.resp.Leader.Lease != 2 {
		t.Fatal(a)
	}
	want("e/2", "two")
	_, err = c.election.Proclaim(ctx10(t), &v3electionpb.ProclaimRequest{
		Leader: leader, Value: []byte("x"),
	})
	wantStatus(t, err, errNotLeader)
	// The old leader resigns again, which does not end the new leader's term.
	if _, err := c.election.Resign(ctx10(t), &v3electionpb.ResignRequest{Leader: leader}); err != nil {
		t.Fatal(err)
	}
	n.waitKeys(t, 1)
}

// TestCampaignAgain checks that a candidate that campaigns again with another value proclaims that
// value.
func TestCampaignAgain(t *testing.T) {
	n := newNode(t)
	c := serve(t, n, Options{})
	n.grant(t, 1, 100_000)
	for _, value := range []string{"one", "one", "uno"} {
		if a := <-campaign(ctx10(t), c, 1, value); a.err != nil || a.resp.Leader.Rev != 2 {
			t.Fatal(a)
		}
	}
	if kv := n.View().KV.Get("e/1"); string(kv.Value) != "uno" || kv.Version != 2 {
		t.Errorf("the key is %+v", kv)
	}
}

// TestT17CampaignExpired checks that a candidate cannot win an election after its lease has ended.
func TestT17CampaignExpired(t *testing.T) {
	n := newNode(t)
	c := serve(t, n, Options{})
	n.grant(t, 1, 100_000)
	n.grant(t, 2, 1_000)
	if a := <-campaign(ctx10(t), c, 1, "one"); a.err != nil {
		t.Fatal(a.err)
	}
	second := campaign(ctx10(t), c, 2, "two")
	n.waitKeys(t, 2)
	n.advance(1_100)
	wantStatus(t, (<-second).err, errExpired)
	m := newNode(t)
	m.grant(t, 1, 100_000)
	late := serve(t, &revokeOnConfirm{fakeNode: m, id: 1}, Options{})
	wantStatus(t, (<-campaign(ctx10(t), late, 1, "one")).err, errExpired)
}

// TestT17ObserveOrder checks that an observer sees exactly the actual leaders, in order, while
// candidates come and go, even if several do so in one revision.
func TestT17ObserveOrder(t *testing.T) {
	n := newNode(t)
	c := serve(t, n, Options{})
	put := func(key, value string) fsm.Op {
		return fsm.Op{Put: &fsm.Put{Key: key, Value: []byte(value)}}
	}
	del := func(key string) fsm.Op { return fsm.Op{Delete: &fsm.DeleteRange{Key: key}} }
	n.put(t, "e/1", "one") // leads before the observer starts
	s := observe(t, c, "e")
	first, err := s.Recv()
	if err != nil || string(first.Kv.Value) != "one" {
		t.Fatal(first, err)
	}
	for _, txn := range [][]fsm.Op{
		{put("e/2", "two")},
		{put("e/3", "three")},
		{put("e/2", "deux")},                            // another candidate's value
		{put("e/1", "uno"), put("e/4", "4")},            // the leader's value
		{del("e/2")},                                    // a candidate that is not the leader
		{put("f", "x"), put("e", "x"), put("d/1", "x")}, // keys outside this election
		{del("e/1"), del("e/3")},                        // so 4 leads, and 3 has never led
		{put("e/5", "5")},
		{del("e/4"), put("e/5", "five")}, // one revision, one new leader
		{del("e/5")},                     // no leader
		{put("e/1", "again")},
	} {
		if r, err := n.Propose(t.Context(), &fsm.Txn{Then: txn}); err != nil || r.Err != nil {
			t.Fatal(err, r.Err)
		}
	}
	var rev int64
	for _, want := range []string{"uno", "4", "five", "again"} {
		r, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if string(r.Kv.Value) != want {
			t.Fatalf("observed %s, want %s", r.Kv.Value, want)
		}
		if r.Header.Revision <= rev {
			t.Errorf("revision %d after %d", r.Header.Revision, rev)
		}
		rev = r.Header.Revision
	}
}

// TestElectionErrors checks that an invalid or missing leader key is not accepted as leadership.
func TestElectionErrors(t *testing.T) {
	n := newNode(t)
	c := serve(t, n, Options{})
	_, err := c.election.Proclaim(ctx10(t), &v3electionpb.ProclaimRequest{})
	wantStatus(t, err, errNoKey)
	_, err = c.election.Resign(ctx10(t), &v3electionpb.ResignRequest{})
	wantStatus(t, err, errNoKey)
	empty := &v3electionpb.LeaderKey{}
	_, err = c.election.Proclaim(ctx10(t), &v3electionpb.ProclaimRequest{Leader: empty})
	wantStatus(t, err, rpctypes.ErrGRPCEmptyKey)
	_, err = c.election.Resign(ctx10(t), &v3electionpb.ResignRequest{Leader: empty})
	wantStatus(t, err, rpctypes.ErrGRPCEmptyKey)
	// A missing key has create revision 0, which must not make the caller the leader.
	nobody := &v3electionpb.LeaderKey{Key: []byte("e/1")}
	_, err = c.election.Proclaim(ctx10(t), &v3electionpb.ProclaimRequest{Leader: nobody})
	wantStatus(t, err, errNotLeader)
	_, err = c.election.Resign(ctx10(t), &v3electionpb.ResignRequest{Leader: nobody})
	wantStatus(t, err, nil)
	if n.View().KV.Len() != 0 {
		t.Error("wrote something")
	}
}
