package etcd

import (
	"errors"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

// apply applies a command without using the API. It fails the test if the command fails.
func (n *fakeNode) apply(t *testing.T, c fsm.Command) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if r := n.applyLocked(c); r.Err != nil {
		t.Fatalf("%T: %v", c, r.Err)
	}
}

// TestMembersRefused checks that impossible membership changes are rejected with etcd's error
// messages.
func TestMembersRefused(t *testing.T) {
	n := newNode(t)
	c := serve(t, n, Options{})
	ctx := ctx10(t)
	n.apply(t, &fsm.AddMember{Member: fsm.Member{
		ID: 7, PeerURLs: []string{"http://10.0.0.7:2380"}, Learner: true,
	}})
	taken := n.View().Members[1].PeerURLs
	_, err := c.MemberAdd(ctx, &pb.MemberAddRequest{PeerURLs: taken})
	wantStatus(t, err, rpctypes.ErrGRPCPeerURLExist)
	_, err = c.MemberAdd(ctx, &pb.MemberAddRequest{PeerURLs: []string{"x"}})
	wantStatus(t, err, rpctypes.ErrGRPCMemberBadURLs)
	_, err = c.MemberUpdate(ctx, &pb.MemberUpdateRequest{ID: 7, PeerURLs: taken})
	wantStatus(t, err, rpctypes.ErrGRPCPeerURLExist)
	_, err = c.MemberUpdate(ctx, &pb.MemberUpdateRequest{ID: 7, PeerURLs: []string{"x"}})
	wantStatus(t, err, rpctypes.ErrGRPCMemberBadURLs)
	_, err = c.MemberPromote(ctx, &pb.MemberPromoteRequest{ID: testMember})
	wantStatus(t, err, rpctypes.ErrGRPCMemberNotLearner)
	_, err = c.MemberRemove(ctx, &pb.MemberRemoveRequest{ID: testMember})
	wantStatus(t, err, rpctypes.ErrGRPCMemberNotEnoughStarted) // the only voter
	if _, err = c.MemberRemove(ctx, &pb.MemberRemoveRequest{ID: 7}); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		errOf(c.MemberRemove(ctx, &pb.MemberRemoveRequest{ID: 7})),
		errOf(c.MemberPromote(ctx, &pb.MemberPromoteRequest{ID: 7})),
		errOf(c.MemberUpdate(ctx, &pb.MemberUpdateRequest{ID: 7})),
	} {
		wantStatus(t, err, rpctypes.ErrGRPCMemberNotFound)
	}
}

func errOf[T any](_ T, err error) error { return err }

// TestMembersUnaffordable checks that when the leader cannot allow a change, the client gets etcd's
// error message for the cause. The messages distinguish members that were never started from
// members that are down.
func TestMembersUnaffordable(t *testing.T) {
	n := newNode(t)
	c := serve(t, n, Options{})
	ctx := ctx10(t)
	var refusal error
	n.propose = func(fsm.Command) error { return refusal }
	add := func(learner bool) error {
		return errOf(c.MemberAdd(ctx, &pb.MemberAddRequest{
			PeerURLs: []string{"http://10.0.0.9:2380"}, IsLearner: learner,
		}))
	}
	remove := func(id uint64) error {
		return errOf(c.MemberRemove(ctx, &pb.MemberRemoveRequest{ID: id}))
	}
	promote := func() error {
		return errOf(c.MemberPromote(ctx, &pb.MemberPromoteRequest{ID: 8}))
	}
	refusal = replica.ErrTooManyLearners
	wantStatus(t, add(true), rpctypes.ErrGRPCTooManyLearners)
	refusal = replica.ErrLearnerNotReady
	wantStatus(t, promote(), rpctypes.ErrGRPCLearnerNotReady)

	refusal = replica.ErrUnhealthy
	// applies to the first member of a two-member cluster
	wantStatus(t, add(false), rpctypes.ErrGRPCUnhealthy)
	wantStatus(t, add(true), rpctypes.ErrGRPCUnhealthy)
	for id := range uint64(2) { // two voters that were never started
		n.apply(t, &fsm.AddMember{Member: fsm.Member{ID: 5 + id}})
	}
	n.apply(t, &fsm.AddMember{Member: fsm.Member{ID: 8, Learner: true}})
	wantStatus(t, add(true), rpctypes.ErrGRPCUnhealthy)
	wantStatus(t, add(false), rpctypes.ErrGRPCMemberNotEnoughStarted)
	wantStatus(t, promote(), rpctypes.ErrGRPCMemberNotEnoughStarted)
	wantStatus(t, remove(testMember), rpctypes.ErrGRPCMemberNotEnoughStarted)
	wantStatus(t, remove(5), rpctypes.ErrGRPCMemberNotEnoughStarted)
	for id := range uint64(2) {
		n.apply(t, &fsm.SetMember{Member: fsm.Member{ID: 5 + id, Name: "started"}})
	}
	wantStatus(t, add(false), rpctypes.ErrGRPCUnhealthy)
	wantStatus(t, promote(), rpctypes.ErrGRPCUnhealthy)
	wantStatus(t, remove(testMember), rpctypes.ErrGRPCUnhealthy)
}

// TestMemberIDTaken checks that a new member never gets an ID that is or was in use, even if
// another member takes that ID just before.
func TestMemberIDTaken(t *testing.T) {
	n := newNode(t)
	c := serve(t, n, Options{})
	tries := 0
	n.propose = func(c fsm.Command) error {
		if tries++; tries == 1 {
			n.applyLocked(&fsm.AddMember{Member: fsm.Member{ID: c.(*fsm.AddMember).Member.ID}})
		}
		return nil
	}
	r, err := c.MemberAdd(ctx10(t), &pb.MemberAddRequest{PeerURLs: []string{"http://10.0.0.2:1"}})
	if err != nil || tries != 2 || len(r.Members) != 3 {
		t.Errorf("%v, %v after %d tries", r, err, tries)
	}
}

// TestValidURLs checks that member URLs are accepted and rejected as in etcd.
func TestValidURLs(t *testing.T) {
	for url, want := range map[string]bool{
		"http://127.0.0.1:1": true, "https://host:99": true, " http://a:1": true,
		"unix://a": true, "unixs://localhost:1": true, "http://[::1]:1": true,
		"http://127.0.0.1": false, "http://a:1/path": false, "ftp://a:1": false,
		"a:1": false, "": false, "http://\x7f": false,
	} {
		if validURLs([]string{url}) != want {
			t.Errorf("%q: %v", url, !want)
		}
	}
	if validURLs(nil) {
		t.Error("no address is valid")
	}
}

// TestMoveLeader checks that only the leader can transfer leadership, and only to voters.
func TestMoveLeader(t *testing.T) {
	n := newNode(t)
	n.apply(t, &fsm.AddMember{Member: fsm.Member{ID: 5}})
	n.apply(t, &fsm.AddMember{Member: fsm.Member{ID: 6, Learner: true}})
	c := serve(t, n, Options{})
	move := func(to uint64) error {
		return errOf(c.MoveLeader(ctx10(t), &pb.MoveLeaderRequest{TargetID: to}))
	}
	wantStatus(t, move(testMember), nil)
	wantStatus(t, move(6), rpctypes.ErrGRPCBadLeaderTransferee)
	wantStatus(t, move(7), rpctypes.ErrGRPCBadLeaderTransferee)
	n.mu.Lock()
	n.transfer = api.ErrTimeout
	n.mu.Unlock()
	wantStatus(t, move(5), rpctypes.ErrGRPCTimeout)
	n.mu.Lock()
	n.transfer = nil
	n.mu.Unlock()
	wantStatus(t, move(5), nil)
	wantStatus(t, move(testMember), rpctypes.ErrGRPCNotLeader)
	n.setLeader(0)
	wantStatus(t, move(testMember), rpctypes.ErrGRPCNotLeader)
}

// TestLearner checks that a learner serves the same calls as etcd's learners, and all calls once it
// is a voter.
func TestLearner(t *testing.T) {
	n := newNode(t)
	n.machine.AddMember(fsm.Member{ID: testMember, Learner: true})
	n.machine.AddMember(fsm.Member{ID: 5})
	n.put(t, "a", "1")
	n.snapshot = []byte("all")
	c := serve(t, n, Options{})
	ctx := ctx10(t)
	want := rpctypes.ErrGRPCNotSupportedForLearner
	get := func(serializable bool) error {
		return errOf(c.Range(ctx, &pb.RangeRequest{Key: []byte("a"), Serializable: serializable}))
	}
	calls := func() []error {
		watch, err := c.watch.Watch(ctx)
		if err != nil {
			t.Fatal(err)
		}
		w := &watchClient{t, watch}
		w.create(&pb.WatchCreateRequest{Key: []byte("a")})
		alive := keepAliveStream(t, c)
		keep(t, alive, 1)
		return []error{
			get(false),
			errOf(c.Put(ctx, &pb.PutRequest{Key: []byte("a")})),
			errOf(c.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 1})),
			errOf(c.MemberList(ctx, &pb.MemberListRequest{})),
			errOf(c.HashKV(ctx, &pb.HashKVRequest{})),
			errOf(watch.Recv()),
			errOf(alive.Recv()),
		}
	}
	for i, err := range calls() {
		if err == nil {
			t.Errorf("call %d was served", i)
		}
		wantStatus(t, err, want)
	}
	served := func() {
		t.Helper()
		wantStatus(t, get(true), nil)
		wantStatus(t, errOf(c.Status(ctx, &pb.StatusRequest{})), nil)
		s, err := c.Snapshot(ctx, &pb.SnapshotRequest{})
		if err != nil {
			t.Fatal(err)
		}
		wantStatus(t, errOf(s.Recv()), nil)
	}
	served()
	n.apply(t, &fsm.PromoteMember{ID: testMember})
	for i, err := range calls() {
		if err != nil {
			t.Errorf("call %d: %v", i, err)
		}
	}
	served()
}

// TestTimeToLiveThroughFollower checks that the leader determines the remaining time of a lease,
// and that a lease exists only if it exists on both members.
func TestTimeToLiveThroughFollower(t *testing.T) {
	n := newNode(t)
	n.grant(t, 5, 10_000)
	n.left = func(id lease.ID) (lease.TTL, bool) { return 4_999, id != 6 }
	c := serve(t, n, Options{})
	n.grant(t, 6, 10_000)
	for id, want := range map[int64]int64{5: 4, 6: -1, 7: -1} {
		r, err := c.LeaseTimeToLive(ctx10(t), &pb.LeaseTimeToLiveRequest{ID: id})
		if err != nil || r.TTL != want || (r.GrantedTTL == 10) != (want > 0) {
			t.Errorf("lease %d: %v, %v", id, r, err)
		}
	}
}

// TestNoQuorum checks that a client gets etcd's error if no leader is found in time.
func TestNoQuorum(t *testing.T) {
	n := newNode(t)
	n.confirm = replica.ErrNoLeader
	n.propose = func(fsm.Command) error { return replica.ErrNoLeader }
	c := serve(t, n, Options{})
	ctx := ctx10(t)
	for i, err := range []error{
		errOf(c.Put(ctx, &pb.PutRequest{Key: []byte("a")})),
		errOf(c.Range(ctx, &pb.RangeRequest{Key: []byte("a")})),
		errOf(c.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 1})),
		errOf(c.MemberList(ctx, &pb.MemberListRequest{Linearizable: true})),
		errOf(c.MemberRemove(ctx, &pb.MemberRemoveRequest{ID: 1})),
	} {
		if !errors.Is(rpctypes.Error(err), rpctypes.ErrTimeout) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	_, err := c.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: 1})
	wantStatus(t, err, rpctypes.ErrGRPCNoLeader)
}
