package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/ptr"

	"leasehold.dev/test/harness"
)

const (
	namespace = "kube-node-lease"
	interval  = 10 * time.Second // between two renewals of a node, as in a kubelet
	timeout   = 10 * time.Second // of a request, as in a kubelet
)

// nodes renews leases as kubelets do and checks each answer.
type nodes struct {
	t      *testing.T
	leases client.LeaseInterface
	list   []*node
	wait   sync.WaitGroup

	// busy is held for reading during a renewal, and for writing by rewind.
	busy    sync.RWMutex
	rewound int64 // the highest version before the last restore
	// last is the time of the last acknowledged renewal of any node.
	last               atomic.Int64
	acks, errors       atomic.Int64
	conflicts, unknown atomic.Int64

	mu    sync.Mutex // guards the following fields
	acked []int64    // resource versions of all acknowledged updates
	gap   time.Duration
	gaps  []time.Duration // between two renewals of the same node
}

// node is a node's lease. With every request, its holder writes an increasing number to
// LeaseTransitions, so a later read shows which requests took effect.
type node struct {
	lease    *coordination.Lease // as last read
	revision int64               // its resource version
	sent     int32               // the number last sent
	acked    atomic.Int32        // the number last acknowledged
	renewed  time.Time
}

// newNodes creates the nodes and their leases.
func newNodes(t *testing.T, leases client.LeaseInterface, n int) *nodes {
	t.Helper()
	ns := &nodes{t: t, leases: leases, list: make([]*node, n)}
	var wg sync.WaitGroup
	var next atomic.Int64
	for range 64 {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && !t.Failed(); i = next.Add(1) - 1 {
				ns.list[i] = ns.create(fmt.Sprintf("node-%05d", i))
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return ns
}

func (ns *nodes) create(name string) *node {
	got, err := ns.leases.Create(ns.t.Context(), &coordination.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: coordination.LeaseSpec{
			HolderIdentity: ptr.To(name), LeaseDurationSeconds: ptr.To(int32(40)),
			RenewTime: &metav1.MicroTime{Time: time.Now()}, LeaseTransitions: ptr.To(int32(0)),
		},
	}, metav1.CreateOptions{})
	if err != nil {
		ns.t.Errorf("create %s: %v", name, err)
		return nil
	}
	return &node{lease: got, revision: version(ns.t, got), renewed: time.Now()}
}

func version(t *testing.T, o metav1.Object) int64 {
	v, err := strconv.ParseInt(o.GetResourceVersion(), 10, 64)
	if err != nil {
		t.Errorf("resource version: %v", err)
	}
	return v
}

// run renews all leases until ctx ends.
func (ns *nodes) run(ctx context.Context) {
	ns.last.Store(time.Now().UnixNano())
	for _, n := range ns.list {
		ns.wait.Go(func() {
			next := time.NewTimer(rand.N(interval))
			defer next.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-next.C:
				}
				if ns.renew(n) {
					next.Reset(interval - interval/50 + rand.N(interval/25))
				} else {
					// Spread retries to avoid a storm.
					next.Reset(time.Second/2 + rand.N(time.Second))
				}
			}
		})
	}
}

// renew renews a lease once, and reports whether the renewal was acknowledged.
func (ns *nodes) renew(n *node) bool {
	ns.busy.RLock()
	defer ns.busy.RUnlock()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	want := n.lease.DeepCopy()
	n.sent++
	want.Spec.LeaseTransitions = ptr.To(n.sent)
	want.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
	got, err := ns.leases.Update(ctx, want, metav1.UpdateOptions{})
	switch {
	case err == nil:
		if v := version(ns.t, got); v <= max(n.revision, ns.rewound) || *got.Spec.LeaseTransitions != n.sent {
			ns.t.Errorf("%s: update %d of version %d returned update %d, version %d, restored after %d",
				got.Name, n.sent, n.revision, *got.Spec.LeaseTransitions, v, ns.rewound)
		}
		n.acked.Store(n.sent)
		ns.see(n, got)
		ns.acknowledged(n)
		return true
	case apierrors.IsConflict(err):
		ns.conflicts.Add(1)
	default:
		ns.unknown.Add(1)
	}
	got, err = ns.leases.Get(ctx, want.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		ns.see(n, got)
	case apierrors.IsNotFound(err):
		ns.t.Errorf("%s is gone", want.Name)
	default:
		ns.errors.Add(1)
	}
	return false
}

// see checks a lease that was read. Its resource version must not have gone back, and it must
// contain the last acknowledged update or a later one.
func (ns *nodes) see(n *node, got *coordination.Lease) {
	v, number := version(ns.t, got), *got.Spec.LeaseTransitions
	if v < n.revision {
		ns.t.Errorf("%s: version %d was followed by %d", got.Name, n.revision, v)
	}
	if acked := n.acked.Load(); number < acked || number > n.sent {
		ns.t.Errorf("%s: has update %d; %d was acknowledged, %d was sent last",
			got.Name, number, acked, n.sent)
	}
	n.lease, n.revision = got, v
}

func (ns *nodes) acknowledged(n *node) {
	now := time.Now()
	since := time.Duration(now.UnixNano() - ns.last.Swap(now.UnixNano()))
	ns.acks.Add(1)
	ns.mu.Lock()
	defer ns.mu.Unlock()
	ns.acked = append(ns.acked, n.revision)
	ns.gap = max(ns.gap, since)
	ns.gaps = append(ns.gaps, now.Sub(n.renewed))
	n.renewed = now
}

// numbers returns the last acknowledged update of each node.
func (ns *nodes) numbers() []int32 {
	var out []int32
	for _, n := range ns.list {
		out = append(out, n.acked.Load())
	}
	return out
}

// rewind sets the expected state to that of a restored snapshot. numbers holds the last
// acknowledged update of each node before the snapshot. No renewal can be acknowledged during the
// call. The store keeps the versions of restored leases, so a lease's version may go back, but the
// version of an update must not.
func (ns *nodes) rewind(numbers []int32) {
	ns.busy.Lock()
	defer ns.busy.Unlock()
	ns.rewound = slices.Max(ns.acked)
	for i, n := range ns.list {
		n.acked.Store(numbers[i])
		n.revision = 0
	}
}

// during logs what the nodes observe while f runs, and afterwards until each has been renewed
// again.
func (ns *nodes) during(what string, f func()) {
	ns.t.Helper()
	ns.mu.Lock()
	ns.gap, ns.gaps = 0, nil
	ns.mu.Unlock()
	counters := []*atomic.Int64{&ns.acks, &ns.conflicts, &ns.unknown, &ns.errors}
	var counts []any
	for _, c := range counters {
		c.Store(0)
	}
	began := time.Now()
	f()
	done := time.Now()
	before := ns.numbers()
	harness.Eventually(ns.t, what+": all nodes are renewed", func() error {
		for i, n := range ns.list {
			if n.acked.Load() <= before[i] {
				return fmt.Errorf("node %d is not", i)
			}
		}
		return nil
	})
	for _, c := range counters {
		counts = append(counts, c.Load())
	}
	ns.mu.Lock()
	defer ns.mu.Unlock()
	slices.Sort(ns.gaps)
	at := func(p int) time.Duration { return ns.gaps[(len(ns.gaps)-1)*p/1000].Round(time.Millisecond) }
	ns.t.Logf("%s: took %v, and %v until each node was renewed", what,
		done.Sub(began).Round(time.Millisecond), time.Since(done).Round(time.Millisecond))
	ns.t.Logf("  %d updates, %d conflicts, %d other failures, %d failed reads", counts...)
	ns.t.Logf("  longest time without an acknowledged update: %v; between two of a node: p50 %v, p99 %v, max %v",
		ns.gap.Round(time.Millisecond), at(500), at(990), at(1000))
}

// check reads each lease once more. No worker may be running.
func (ns *nodes) check() {
	ns.t.Helper()
	l, err := ns.leases.List(ns.t.Context(), metav1.ListOptions{})
	if err != nil {
		ns.t.Fatal(err)
	}
	byName := map[string]*node{}
	for _, n := range ns.list {
		byName[n.lease.Name] = n
	}
	for _, got := range l.Items {
		ns.see(byName[got.Name], &got)
	}
}
