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

// resource is what leaders write to. It rejects a write whose fencing token is lower than one it
// has seen. It also counts writes that a leader makes after a later leader's first write, whatever
// their tokens.
type resource struct {
	mu                        sync.Mutex
	token                     uint64 // the highest token seen
	term                      int    // the most recent term
	writes, refused, unfenced int
	at                        time.Time // when the current leader was stopped or isolated
	times                     []time.Duration
}

// begin starts a leader's term.
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

// fault records that the leader of a term is about to be stopped or isolated.
func (r *resource) fault(term int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if term == r.term {
		r.at = time.Now()
	}
}

// write performs a write in a term. Token 0 means no token.
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

// report logs the results.
func (r *resource) report(t *testing.T, name string) {
	t.Helper()
	slices.Sort(r.times)
	at := func(p int) time.Duration { return r.times[(len(r.times)-1)*p/1000].Round(time.Millisecond) }
	t.Logf("%s: %d terms, %d writes, %d refused, %d unfenced; %d leaders that were stopped or cut off were "+
		"replaced after %v (median), %v (p99), %v (longest)", name, r.term, r.writes, r.refused, r.unfenced,
		len(r.times), at(500), at(990), at(1000))
}

// durations contains our lock's TTL and client-go's LeaseDuration. The latter cannot be as short,
// because client-go's candidates compare record times with a resolution of one second. With 1 s,
// they would replace healthy leaders.
var durations = [2]time.Duration{ttl, 5 * time.Second}

// process is a controller process that takes part in two elections, one with our lock and one with
// client-go's lock.
type process struct {
	w     *world
	name  string
	lines []*inprocess.Line
	ours  *Lock

	ahead   atomic.Int64 // how far its clock is ahead
	cut     atomic.Bool
	mu      sync.Mutex    // guards the following fields
	resumed chan struct{} // nil unless the process is stopped
	terms   [2]int        // its current terms with our lock and with client-go's; 0 if not leading
}

// world contains processes that elect leaders, and the resources to which the leaders of both
// elections write.
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

// elect runs client-go's elector with a lock. Its intervals have the proportions of client-go's
// defaults.
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

// lead writes until the lead is lost. The process can be stopped between checking the context and
// writing.
func (p *process) lead(ctx context.Context, election int) {
	r, token := &p.w.resources[election], uint64(0)
	if election == 0 {
		var err error
		if token, err = p.ours.Token(); err != nil {
			return // the lead was lost immediately
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

// gate blocks while the process is stopped.
func (p *process) gate() {
	p.mu.Lock()
	resumed := p.resumed
	p.mu.Unlock()
	if resumed != nil {
		<-resumed
	}
}

// stop stops the process for a while as SIGSTOP does: its packets are not processed, but its clock
// keeps running.
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
		l.Break() // connections that lost data remain frozen
	}
	p.mu.Lock()
	p.resumed = nil
	p.mu.Unlock()
	close(resumed)
}

// isolate disconnects the process from the network for a while.
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

// fault injects a fault into one process, usually a leader.
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
		p.ahead.Add(int64(d)) // as if the machine had been suspended or its clock set
	}
	<-time.After(time.Duration(rng.Int64N(int64(ttl))))
	return kind
}

// TestFaults checks that no write by a leader using our lock is accepted after a later leader's
// first write, no matter what faults their processes suffer. For comparison, the same processes
// also run elections with client-go's own lock under the same faults.
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

// leases implements what client-go's LeaseLock needs from an API server: a single Lease object with
// a resource version.
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

// reach gives one process access to the leases.
type reach struct {
	*leases
	p *process
}

func (r reach) Leases(string) coordinationclient.LeaseInterface { return session{reach: r} }

type session struct {
	coordinationclient.LeaseInterface // nil, because the lock calls no other method
	reach
}

// call waits while the process is stopped and fails while it is isolated.
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
