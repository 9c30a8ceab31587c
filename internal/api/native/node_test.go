package native

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/api/waitqueue"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/holder"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/watch"
	"leasehold.dev/lease"
)

// fakeNode is a member without a log. It runs the real state machine behind a mutex. Tests set its
// fields to inject failures.
type fakeNode struct {
	mu       sync.Mutex // guards the following fields
	machine  *fsm.Machine
	now      lease.Instant
	fail     error                          // returned by every proposal and every confirm round
	refuse   error                          // returned by every batch of renewals
	held     map[lease.ID][]func(lease.TTL) // pending renewals of these leases
	left     func(lease.ID) replica.Left    // if not nil, replaces the leader's answer
	between  func()                         // called before each request to the leader
	commands []fsm.Command                  // all proposed commands
	outcome  func(fsm.Command, *Outcome)    // changes the outcomes of ProposeAll
	applied  func()                         // called after each command; may be nil
	news     map[*func()]bool
	slow     *SlowCaches
	fakeCaches
	fakeLeader
}

// Uses implements Node.
func (n *fakeNode) Uses() []fsm.Use { return slices.Collect(n.machine.Uses()) }

func (n *fakeNode) Holds(id lease.ID) []keyrange.Range { return n.machine.Holds(id) }

// newNode returns a node that times leases from instant 1.
func newNode() *fakeNode {
	n := &fakeNode{machine: fsm.New(fsm.Config{}), now: 1, held: make(map[lease.ID][]func(lease.TTL))}
	n.machine.Begin(1, 2)
	n.machine.Lessor().Advance(n.now)
	n.machine.Lessor().Promote(n.now)
	return n
}

func (n *fakeNode) Propose(ctx context.Context, c fsm.Command) (fsm.Result, error) {
	c = fsm.OnBehalf(api.CallerOf(ctx), c)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fail != nil {
		return fsm.Result{}, n.fail
	}
	n.commands = append(n.commands, c)
	before := n.machine.View().Access
	n.machine.Begin(n.machine.Index()+1, 2)
	res := n.machine.Apply(c)
	if n.machine.View().Access != before {
		defer n.changeAccess()
	}
	if n.applied != nil {
		n.applied()
	}
	for f := range n.news {
		(*f)()
	}
	return res, ctx.Err()
}

func (n *fakeNode) OnLeaseNews(f func()) (stop func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.news == nil {
		n.news = make(map[*func()]bool)
	}
	n.news[&f] = true
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.news, &f)
	}
}

func (n *fakeNode) SlowCaches() *SlowCaches {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.slow
}

// waitsFor sets the caches that delay writes.
func (n *fakeNode) waitsFor(list ...SlowCache) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.slow = &SlowCaches{List: list}
	for f := range n.news {
		(*f)()
	}
}

func (n *fakeNode) Now() lease.Instant {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.now
}

func (n *fakeNode) InspectHere(ctx context.Context, f func(*lease.Lessor, uint64)) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	f(n.machine.Lessor(), n.machine.Index())
	return ctx.Err()
}

// advance lets time pass.
func (n *fakeNode) advance(by lease.Instant) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.now += by
	n.machine.Lessor().Advance(n.now)
}

func (n *fakeNode) ProposeAll(ctx context.Context, cs []fsm.Command) []Outcome {
	out := make([]Outcome, len(cs))
	for i, c := range cs {
		out[i].Result, out[i].Err = n.Propose(ctx, c)
		if n.outcome != nil {
			n.outcome(c, &out[i])
		}
	}
	return out
}

func (n *fakeNode) View() *fsm.View {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.machine.View()
}

func (n *fakeNode) Inspect(ctx context.Context, f func(*lease.Lessor)) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fail != nil {
		return n.fail
	}
	if f != nil {
		f(n.machine.Lessor())
	}
	return ctx.Err()
}

func (n *fakeNode) InspectLeases(
	ctx context.Context, ids []lease.ID, f func(*lease.Lessor, []replica.Left),
) error {
	if n.between != nil {
		n.between()
	}
	return n.Inspect(ctx, func(l *lease.Lessor) {
		left := make([]replica.Left, len(ids))
		for i, id := range ids {
			left[i].TTL, left[i].Found = l.Remaining(id)
			if n.left != nil {
				left[i] = n.left(id)
			}
		}
		f(l, left)
	})
}

func (n *fakeNode) RenewAll(r *replica.Renewals) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.refuse != nil {
		return n.refuse
	}
	to := r.Owner.(RenewedAll)
	for i, id := range r.IDs {
		if kept, ok := n.held[id]; ok {
			n.held[id] = append(kept, func(ttl lease.TTL) { to.RenewedOne(i, ttl, nil) })
			continue
		}
		var token lease.Token
		if r.Tokens != nil {
			token = r.Tokens[i]
		}
		renewed, err := n.machine.Lessor().Renew(id, token)
		if err != nil {
			to.RenewedOne(i, 0, err)
			continue
		}
		r.TTLs[i] = renewed.TTL
		r.Kept++
		n.join(r, i)
	}
	if r.Kept > 0 {
		to.RenewedTogether()
	}
	if len(r.Renew)+len(r.Leave) > 0 {
		n.renewGroups(r)
		to.RenewedGroups()
	}
	return nil
}

// join adds a lease to its keeper's only group.
func (n *fakeNode) join(r *replica.Renewals, i int) {
	if r.Keeper == 0 {
		return
	}
	if r.Joined == nil {
		r.Joined = make([]lease.GroupID, len(r.IDs))
	}
	l, g := n.machine.Lessor(), lease.GroupID(r.Keeper)
	if !l.HasGroup(g) {
		l.OpenGroup(g, r.TTLs[i])
	}
	if l.Join(g, r.IDs[i], 0) {
		r.Joined[i] = g
	}
}

func (n *fakeNode) renewGroups(r *replica.Renewals) {
	l := n.machine.Lessor()
	for _, x := range r.Leave {
		l.Leave(lease.GroupID(r.Keeper), x.ID, x.AsOf)
	}
	for _, g := range r.Renew {
		done := holder.RenewedGroup{ID: g}
		if g == lease.GroupID(r.Keeper) {
			done.TTL, _ = l.RenewGroup(g)
			done.Left, _ = l.Left(g)
		}
		r.Renewed = append(r.Renewed, done)
	}
}

func (n *fakeNode) EndKeeper(by replica.Keeper) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.machine.Lessor().EndGroup(lease.GroupID(by), true)
}

// serve runs the service on an in-memory connection.
func serve(t *testing.T, n Node, o Options) pb.LeaseServiceClient {
	t.Helper()
	return pb.NewLeaseServiceClient(connected(t, n, o))
}

// connected is like serve but returns the connection.
func connected(t *testing.T, n Node, o Options) *grpc.ClientConn {
	t.Helper()
	l := bufconn.Listen(1 << 18)
	s := grpc.NewServer(asCallers(n)...)
	o.ClusterID, o.MemberID = 0xc1, 0xa1
	Register(s, n, o)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	conn, err := grpc.NewClient("passthrough:member",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			return l.Dial()
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		s.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return conn
}

// Submit implements Node.
func (n *fakeNode) Submit(list []Submission) {
	for _, s := range list {
		if s.Command == nil {
			s.To.Answered(fsm.Result{}, n.Inspect(context.Background(), func(*lease.Lessor) {}))
			continue
		}
		s.To.Answered(n.Propose(context.Background(), s.Command))
	}
}

// WaitQueues implements Node.
func (n *fakeNode) WaitQueues() *waitqueue.Queues {
	return waitqueue.New(n.Watches(), func() *mvcc.View { return n.View().KV })
}

// Watches implements api.Node. Nothing is published to this hub.
func (n *fakeNode) Watches() *watch.Hub[*api.Event] {
	return watch.New(func() watch.History[*api.Event] {
		return api.NewHistory(n.View().KV)
	}, watch.Options{})
}
