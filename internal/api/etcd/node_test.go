package etcd

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/api/etcd/v3electionpb"
	"leasehold.dev/internal/api/etcd/v3lockpb"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/watch"
	"leasehold.dev/lease"
)

const (
	testCluster = 0xc1
	testMember  = 0xa1
)

// fakeNode is a member without a log. It runs the real state machine behind a mutex. To inject
// failures, tests set its fields before the server runs or while they hold mu.
type fakeNode struct {
	hub  *watch.Hub[*api.Event]
	view atomic.Pointer[fsm.View]

	mu       sync.Mutex // guards the following fields
	machine  *fsm.Machine
	now      lease.Instant
	status   Status
	propose  func(fsm.Command) error    // called before a command is applied
	renew    func(lease.ID) error       // called before a renewal
	held     map[lease.ID][]api.Renewed // the delayed renewals of each lease
	confirm  error                      // returned by every confirm round
	transfer error                      // returned by every leadership transfer
	// left, unless nil, replaces the leader's answer about a lease.
	left     func(lease.ID) (lease.TTL, bool)
	snapshot []byte // what SnapshotTo writes
	// snapshotting, unless nil, is called by SnapshotTo.
	snapshotting func()
	commands     []fsm.Command         // all proposed commands
	counted      map[int]chan struct{} // closed when the number of renewals reaches the key
	renewals     int
	// abandoned receives the leases of each stream that ends.
	abandoned chan []lease.ID
	// logIn is called for a login, and hash for a new password.
	logIn func(user, password string) (string, error)
	hash  func(password string) ([]byte, error)
	// changed is closed at the next change to users or roles.
	changed chan struct{}
}

// newNode returns a node that times leases from instant 1.
func newNode(t testing.TB) *fakeNode {
	t.Helper()
	n := &fakeNode{
		machine: fsm.New(fsm.Config{}),
		held:    make(map[lease.ID][]api.Renewed), changed: make(chan struct{}),
		status: Status{
			MemberID: testMember, ClusterID: testCluster, Leader: testMember, Term: 2,
			StorageVersion: "3.7.0",
		},
	}
	n.machine.AddMember(fsm.Member{
		ID: testMember, Name: "one", PeerURLs: []string{"http://127.0.0.1:2380"},
		ClientURLs: []string{"http://127.0.0.1:2379"},
	})
	n.machine.Begin(1, 2)
	n.now = 1
	n.machine.Lessor().Advance(n.now)
	n.machine.Lessor().Promote(n.now)
	n.view.Store(n.machine.View())
	n.hub = watch.New(func() watch.History[*api.Event] { return api.NewHistory(n.view.Load().KV) },
		watch.Options{Watches: 16 << 20})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = n.hub.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return n
}

func (n *fakeNode) Propose(ctx context.Context, c fsm.Command) (fsm.Result, error) {
	if err := ctx.Err(); err != nil {
		return fsm.Result{}, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.commands = append(n.commands, c)
	if n.propose != nil {
		if err := n.propose(c); err != nil {
			return fsm.Result{}, err
		}
	}
	if err := n.machine.View().Access.CheckRoot(api.CallerOf(ctx)); fsm.Membership(c) && err != nil {
		return fsm.Result{Err: err}, nil
	}
	return n.applyLocked(fsm.OnBehalf(api.CallerOf(ctx), c)), nil
}

func (n *fakeNode) InspectHere(_ context.Context, f func(*lease.Lessor, uint64)) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	f(n.machine.Lessor(), n.machine.Index())
	return nil
}

func (n *fakeNode) AccessChanged() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.changed
}

func (n *fakeNode) LogIn(_ context.Context, user, password string) (string, error) {
	if err := n.Confirm(context.Background()); err != nil {
		return "", err
	}
	if !n.View().Access.Enabled() {
		return "", access.ErrNotEnabled
	}
	return n.logIn(user, password)
}

func (n *fakeNode) HashPassword(_ context.Context, password string) ([]byte, error) {
	if n.hash == nil {
		return []byte("hash of " + password), nil
	}
	return n.hash(password)
}

func (n *fakeNode) applyLocked(c fsm.Command) fsm.Result {
	n.machine.Begin(n.machine.Index()+1, n.status.Term)
	r := n.machine.Apply(c)
	old := n.view.Swap(n.machine.View())
	if n.view.Load().Access != old.Access {
		close(n.changed)
		n.changed = make(chan struct{})
	}
	for _, change := range n.machine.TakeChanges() {
		events := make([]*api.Event, len(change.Events))
		for i := range change.Events {
			events[i] = api.NewEvent(&change.Events[i])
		}
		n.hub.Publish(change.Revision, events)
	}
	return r
}

// advance lets time pass and expires due leases.
func (n *fakeNode) advance(by lease.TTL) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.now += lease.Instant(by)
	n.machine.Lessor().Advance(n.now)
	if due := n.machine.Lessor().Due(1 << 20); len(due) > 0 {
		n.applyLocked(&fsm.Expire{Term: n.status.Term, Leases: due})
	}
}

func (n *fakeNode) Confirm(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.confirm != nil {
		return n.confirm
	}
	return ctx.Err()
}

func (n *fakeNode) View() *fsm.View { return n.view.Load() }

func (n *fakeNode) Inspect(ctx context.Context, f func(*lease.Lessor)) error {
	if err := n.Confirm(ctx); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	f(n.machine.Lessor())
	return nil
}

func (n *fakeNode) InspectLease(
	ctx context.Context, id lease.ID, f func(*lease.Lessor, lease.TTL, bool),
) error {
	return n.Inspect(ctx, func(l *lease.Lessor) {
		left, ok := l.Remaining(id)
		if n.left != nil {
			left, ok = n.left(id)
		}
		f(l, left, ok)
	})
}

// MoveLeader rejects the same transfers as a replica does, and takes effect immediately.
func (n *fakeNode) MoveLeader(_ context.Context, target uint64) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	m, ok := n.view.Load().Member(target)
	switch {
	case n.status.Leader != testMember:
		return replica.ErrNoLeader
	case !ok || m.Learner:
		return replica.ErrBadTransferee
	case n.transfer != nil:
		return n.transfer
	}
	n.status.Leader = target
	return nil
}

func (n *fakeNode) Abandon(ids []lease.ID) {
	if n.abandoned != nil {
		n.abandoned <- ids
	}
}

func (n *fakeNode) Renew(id lease.ID, _ *access.State, to api.Renewed) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.renewals++
	if c := n.counted[n.renewals]; c != nil {
		defer close(c)
	}
	if n.renew != nil {
		if err := n.renew(id); err != nil {
			return err
		}
	}
	if h, ok := n.held[id]; ok {
		n.held[id] = append(h, to)
		return nil
	}
	if who := to.Holder(); who != nil {
		by, l := n.machine.View().Access, n.machine.Lessor()
		decided, err := fsm.Authorizer{State: by, Caller: *who}.MayRenew(l, id)
		if !decided {
			err = api.ErrUndecided
		}
		if err != nil {
			to.Renewed(id, 0, err)
			return nil
		}
	}
	r, err := n.machine.Lessor().Renew(id, 0)
	to.Renewed(id, r.TTL, err)
	return nil
}

// onRenewal returns a channel that is closed after the n-th renewal.
func (n *fakeNode) onRenewal(number int) <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := make(chan struct{})
	if n.counted == nil {
		n.counted = make(map[int]chan struct{})
	}
	n.counted[number] = c
	return c
}

// hold keeps renewals of a lease waiting until let is called.
func (n *fakeNode) hold(id lease.ID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.held[id] = nil
}

// let answers the renewals delayed by hold as if the lease did not exist.
func (n *fakeNode) let(id lease.ID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, to := range n.held[id] {
		to.Renewed(id, 0, lease.ErrNotFound)
	}
	delete(n.held, id)
}

func (n *fakeNode) Watches() *watch.Hub[*api.Event] { return n.hub }

func (n *fakeNode) Alarms() []fsm.Alarm { return n.View().Alarms }

func (n *fakeNode) Status() Status {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.status
}

func (n *fakeNode) setLeader(id uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.status.Leader = id
}

var errDisk = errors.New("disk: broken")

func (n *fakeNode) SnapshotTo(_ context.Context, w io.Writer) error {
	if n.snapshotting != nil {
		n.snapshotting()
	}
	if n.snapshot == nil {
		return errDisk
	}
	_, err := w.Write(n.snapshot)
	return err
}

func (n *fakeNode) Defragment(context.Context) error { return nil }

// put writes a key without using the API.
func (n *fakeNode) put(t testing.TB, key, value string) int64 {
	t.Helper()
	r, err := n.Propose(t.Context(), &fsm.Put{Key: key, Value: []byte(value)})
	if err != nil || r.Err != nil {
		t.Fatal(err, r.Err)
	}
	return r.Revision
}

// grant grants a lease without using the API.
func (n *fakeNode) grant(t testing.TB, id lease.ID, ttl lease.TTL) {
	t.Helper()
	r, err := n.Propose(t.Context(), &fsm.Grant{Terms: lease.Terms{ID: id, TTL: ttl}})
	if err != nil || r.Err != nil {
		t.Fatal(err, r.Err)
	}
}

// clients holds clients for all services of one server.
type clients struct {
	conn *grpc.ClientConn
	pb.KVClient
	pb.LeaseClient
	pb.MaintenanceClient
	pb.ClusterClient
	pb.AuthClient
	watch    pb.WatchClient
	lock     v3lockpb.LockClient
	election v3electionpb.ElectionClient
}

// serve runs the services on an in-memory connection.
func serve(t testing.TB, n Node, o Options) *clients {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	s := grpc.NewServer(ServerOptions(o)...)
	Register(s, n, o)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	conn, err := grpc.NewClient("passthrough:///memory",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return l.DialContext(ctx)
		}),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		s.Stop()
		<-done
	})
	return &clients{
		conn:              conn,
		KVClient:          pb.NewKVClient(conn),
		LeaseClient:       pb.NewLeaseClient(conn),
		MaintenanceClient: pb.NewMaintenanceClient(conn),
		ClusterClient:     pb.NewClusterClient(conn),
		AuthClient:        pb.NewAuthClient(conn),
		watch:             pb.NewWatchClient(conn),
		lock:              v3lockpb.NewLockClient(conn),
		election:          v3electionpb.NewElectionClient(conn),
	}
}

// wantStatus checks that two errors have the same status.
func wantStatus(t testing.TB, got, want error) {
	t.Helper()
	g, w := status.Convert(got), status.Convert(want)
	if g.Code() != w.Code() || g.Message() != w.Message() {
		t.Errorf("got %v, want %v", got, want)
	}
}

// ctx10 returns a context that ends long after any test should have finished.
func ctx10(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// watchAll returns a request for all keys, starting at a revision.
func watchAll(from int64) watch.Request {
	return watch.Request{Key: "\x00", End: "\x00", From: from}
}
