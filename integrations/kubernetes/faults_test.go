package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"leasehold.dev/client"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/tier"
)

// resource is what leaders write to. It refuses a write with a fencing token below one that it has seen.
// Apart from tokens, it counts the writes by a leader after the first write of a later one.
type resource struct {
	mu                        sync.Mutex
	token                     uint64 // the highest
	term                      int    // the last to begin
	writes, refused, unfenced int
	at                        time.Time // of that fault
	times                     []time.Duration
}

// begin begins a leader's term.
func (r *resource) begin() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.term++
	if !r.at.IsZero() {
		r.times = append(r.times, time.Since(r.at))
		r.at = time.Time{}
	}
	return r.term
}

// fault notes that the leader of a term is about to be stopped or cut off.
func (r *resource) fault(term int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if term == r.term {
		r.at = time.Now()
	}
}

// write writes in a term. A token of 0 is none.
func (r *resource) write(term int, token uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case token != 0 && token < r.token:
		r.refused++
	case term < r.term:
		r.unfenced++
	default:
		r.writes++
	}
	r.token = max(r.token, token)
}

// report logs what was seen.
func (r *resource) report(t *testing.T, name string) {
	t.Helper()
	slices.Sort(r.times)
	at := func(p int) time.Duration { return r.times[(len(r.times)-1)*p/1000].Round(time.Millisecond) }
	t.Logf("%s: %d terms, %d writes, %d refused, %d unfenced; %d leaders that were stopped or cut off were "+
		"replaced after %v (median), %v (p99), %v (longest)", name, r.term, r.writes, r.refused, r.unfenced,
		len(r.times), at(500), at(990), at(1000))
}

// durations are the TTL of our lock and the LeaseDuration of client-go's. That one cannot be as short:
// its candidates compare records whose times have a resolution of a second, so at 1 s they replace
// leaders that are well.
var durations = [2]time.Duration{ttl, 5 * time.Second}

// process is a controller's process with two elections: one by our lock, and one by client-go's.
type process struct {
	w     *world
	name  string
	lines []*inprocess.Line
	ours  *Lock

	ahead   atomic.Int64 // of its clock
	cut     atomic.Bool
	mu      sync.Mutex    // guards the following fields
	resumed chan struct{} // nil while the process is not stopped
	terms   [2]int        // that it leads by our lock and by client-go's, 0 if it does not
}

// world has processes that elect leaders, and what the leaders of both elections write to.
type world struct {
	t         *testing.T
	leases    *leases
	resources [2]resource
	processes []*process
	wait      sync.WaitGroup
}

func (w *world) run(ctx context.Context, m *inprocess.Member, name string) {
	w.t.Helper()
	p := &process{w: w, name: name, lines: []*inprocess.Line{m.Line()}}
	w.processes = append(w.processes, p)
	c := inprocess.Connect(w.t, client.Config{
		Now: func() time.Time { return time.Now().Add(time.Duration(p.ahead.Load())) },
	}, inprocess.Endpoints(p.lines)...)
	lock, err := New(Config{Client: c, Name: "test", Identity: name, TTL: ttl})
	if err != nil {
		w.t.Fatal(err)
	}
	p.ours = lock
	p.elect(ctx, durations[0], lock, lock.Callbacks(leaderelection.LeaderCallbacks{
		OnStartedLeading: func(ctx context.Context) { p.lead(ctx, 0) },
		OnStoppedLeading: func() {},
	}))
	p.elect(ctx, durations[1], &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: "test", Name: "test"}, Client: reach{w.leases, p},
		LockConfig: resourcelock.ResourceLockConfig{Identity: name},
	}, leaderelection.LeaderCallbacks{
		OnStartedLeading: func(ctx context.Context) { p.lead(ctx, 1) },
		OnStoppedLeading: func() {},
	})
}

// elect runs client-go's elector with a lock, in the proportions of client-go's defaults.
func (p *process) elect(
	ctx context.Context, d time.Duration, lock resourcelock.Interface,
	callbacks leaderelection.LeaderCallbacks,
) {
	p.w.t.Helper()
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: d, RenewDeadline: 2 * d / 3, RetryPeriod: 2 * d / 15,
		ReleaseOnCancel: true, Callbacks: callbacks,
	})
	if err != nil {
		p.w.t.Fatal(err)
	}
	p.w.wait.Go(func() {
		for ctx.Err() == nil {
			elector.Run(ctx)
		}
	})
}

// lead writes until the lead is lost. The process may be stopped between looking at the context and
// writing.
func (p *process) lead(ctx context.Context, election int) {
	r, token := &p.w.resources[election], uint64(0)
	if election == 0 {
		var err error
		if token, err = p.ours.Token(); err != nil {
			return // it was lost at once
		}
	}
	p.gate()
	if ctx.Err() != nil {
		return
	}
	term := r.begin()
	p.set(election, term)
	defer p.set(election, 0)
	for ctx.Err() == nil {
		p.gate()
		r.write(term, token)
		<-time.After(10 * time.Millisecond)
	}
}

func (p *process) set(election, term int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.terms[election] = term
}

// gate is where a stopped process waits.
func (p *process) gate() {
	p.mu.Lock()
	resumed := p.resumed
	p.mu.Unlock()
	if resumed != nil {
		<-resumed
	}
}

// stop stops the process for a while, as SIGSTOP does: its packets stay where they are, its clock
// runs on.
func (p *process) stop(d time.Duration) {
	resumed := make(chan struct{})
	p.mu.Lock()
	p.resumed = resumed
	p.mu.Unlock()
	for _, l := range p.lines {
		l.SetFrozen(true)
	}
	<-time.After(d)
	for _, l := range p.lines {
		l.SetFrozen(false)
		l.Break() // what was dropped meanwhile is missing
	}
	p.mu.Lock()
	p.resumed = nil
	p.mu.Unlock()
	close(resumed)
}

// isolate cuts the process off for a while.
func (p *process) isolate(d time.Duration) {
	p.cut.Store(true)
	for _, l := range p.lines {
		l.SetCut(true)
	}
	<-time.After(d)
	p.cut.Store(false)
	for _, l := range p.lines {
		l.SetCut(false)
	}
}

// fault does one thing to a process, which leads in most cases.
func (w *world) fault(rng *rand.Rand) (kind string) {
	p := w.processes[rng.IntN(len(w.processes))]
	if election := rng.IntN(3); election < 2 {
		for _, q := range w.processes {
			q.mu.Lock()
			if q.terms[election] > 0 {
				p = q
			}
			q.mu.Unlock()
		}
	}
	d := time.Duration(rng.Int64N(int64(3 * durations[rng.IntN(2)])))
	kind = []string{"stop", "cut", "clock jump"}[rng.IntN(3)]
	p.mu.Lock()
	for i, term := range p.terms {
		if term > 0 && kind != "clock jump" && d > 2*durations[i] {
			w.resources[i].fault(term)
		}
	}
	p.mu.Unlock()
	switch kind {
	case "stop":
		p.stop(d)
	case "cut":
		p.isolate(d)
	default:
		p.ahead.Add(int64(d)) // the machine was suspended, or its clock was set
	}
	<-time.After(time.Duration(rng.Int64N(int64(ttl))))
	return kind
}

// TestFaults: of the writes by leaders of our lock, none is accepted after a later leader's first
// write, whatever happens to their processes. client-go's own lock, elected by the same processes under
// the same faults, is there for comparison.
func TestFaults(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		w := &world{t: t, leases: new(leases)}
		m := inprocess.Run(t, 1)[0]
		ctx, stop := context.WithCancel(t.Context())
		for i := range 3 {
			w.run(ctx, m, fmt.Sprint("controller-", i))
		}
		<-time.After(5 * durations[1])
		faults := tier.Budget(100, 10_000)
		rng, kinds := rand.New(rand.NewPCG(1, 2)), map[string]int{}
		for range faults {
			kinds[w.fault(rng)]++
		}
		<-time.After(5 * durations[1])
		stop()
		w.wait.Wait()
		time.Sleep(ttl) // the elector does not wait for its callbacks
		t.Logf("%d faults: %v", faults, kinds)
		for i, name := range []string{"our lock", "client-go's"} {
			r := &w.resources[i]
			if len(r.times) == 0 || r.writes == 0 || r.term < faults/20 {
				t.Fatalf("%s: %d terms, %d writes, replaced %d times: the faults did nothing",
					name, r.term, r.writes, len(r.times))
			}
			r.report(t, name)
			if i == 0 && r.unfenced > 0 {
				t.Errorf("%d unfenced writes by leaders of our lock; want 0", r.unfenced)
			}
		}
	})
}

// leases is what client-go's LeaseLock needs of an API server: one Lease object with a resource version.
type leases struct {
	mu      sync.Mutex
	object  *coordination.Lease
	version int
}

func (l *leases) set(o *coordination.Lease) *coordination.Lease {
	l.version++
	l.object = o.DeepCopy()
	l.object.ResourceVersion = fmt.Sprint(l.version)
	return l.object.DeepCopy()
}

// reach is how a process reaches the leases.
type reach struct {
	*leases
	p *process
}

func (r reach) Leases(string) coordinationclient.LeaseInterface { return session{reach: r} }

type session struct {
	coordinationclient.LeaseInterface // nil: the lock calls no other method
	reach
}

// call waits while the process is stopped, and fails while it is cut off.
func (s session) call() (unlock func(), err error) {
	s.p.gate()
	if s.p.cut.Load() {
		return nil, errors.New("no route to host")
	}
	s.mu.Lock()
	return s.mu.Unlock, nil
}

func (s session) Get(context.Context, string, metav1.GetOptions) (*coordination.Lease, error) {
	unlock, err := s.call()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if s.object == nil {
		return nil, apierrors.NewNotFound(coordination.Resource("leases"), "test")
	}
	return s.object.DeepCopy(), nil
}

func (s session) Create(
	_ context.Context, o *coordination.Lease, _ metav1.CreateOptions,
) (*coordination.Lease, error) {
	unlock, err := s.call()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if s.object != nil {
		return nil, apierrors.NewAlreadyExists(coordination.Resource("leases"), "test")
	}
	return s.set(o), nil
}

func (s session) Update(
	_ context.Context, o *coordination.Lease, _ metav1.UpdateOptions,
) (*coordination.Lease, error) {
	unlock, err := s.call()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if o.ResourceVersion != s.object.ResourceVersion {
		return nil, apierrors.NewConflict(coordination.Resource("leases"), "test", errors.New("changed"))
	}
	return s.set(o), nil
}
