package sim

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime/debug"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/version"
	"leasehold.dev/lease"
)

// world is the state of one run. A run uses a single goroutine, which executes events in the order
// of the queue. (Client programs are coroutines.)
type world struct {
	opt Options
	p   Profile
	rng *rand.Rand

	now    Time
	queue  queue
	seq    uint64
	events uint64
	end    Time

	h        *History
	cover    map[string]int
	timeline []string

	machine  fsm.Config
	members  []*member // all members that ever existed, in ID order: ID i is at i-1
	links    [][]link  // [from][to], indexed by ID
	clients  []*client
	relays   relays
	oracle   oracle
	injector injector
	givenLeases
	resumers  signal           // wakes clients that may resume leases
	abandoned []abandonedLease // available to other clients, newest last
}

// givenLeases holds the leases granted to clients, newest last.
type givenLeases struct {
	leases []lease.ID
	strays []lease.ID // tenants' leases that no client relies on
}

// Run runs a cluster, its clients and its faults. Equal options produce equal results if the global
// random source has the same seed (see testing/cryptotest).
func Run(o Options) *Result {
	w := newWorld(o)
	func() {
		defer w.caught()
		w.start()
		for len(w.queue) > 0 && w.queue[0].at <= w.end && len(w.h.Broken) == 0 {
			if w.step(); w.events >= w.opt.Steps {
				w.broken("watchdog", fmt.Sprintf("no end after %d steps", w.events))
			}
		}
		w.finish()
	}()
	for _, c := range w.clients {
		c.kill()
	}
	return &Result{
		History: w.h, Profile: w.p, Coverage: w.cover, Timeline: w.timeline, Events: w.events,
	}
}

// caught converts a panic into a violation.
func (w *world) caught() {
	if r := recover(); r != nil {
		w.broken("panic", fmt.Sprintf("%v\n%s", r, debug.Stack()))
	}
}

func newWorld(o Options) *world {
	if o.Duration == 0 {
		o.Duration = Minute
	}
	if o.Timeline == 0 {
		o.Timeline = 400
	}
	o.Steps = cmp.Or(o.Steps, maxSteps)
	w := &world{
		opt: o, rng: rand.New(rand.NewPCG(o.Seed, 0x1ea5e)), end: o.Duration,
		h: &History{Seed: o.Seed, Speak: make(map[uint64]version.Range)}, cover: make(map[string]int),
	}
	if o.Profile != nil {
		w.p = *o.Profile
	} else {
		w.p = w.draw()
		w.drawStaleLeader()
	}
	w.h.Drift, w.h.Margin = w.p.Drift, w.p.Margin
	w.h.InBound = w.p.RealDrift <= w.p.Drift
	w.machine = fsm.Config{LeaseEvents: 64, AheadKeys: 2, Lease: lease.Config{
		AtOnce:             2,
		CheckpointInterval: lease.TTL(w.p.CheckpointInterval),
		Untended:           250,
	}}
	return w
}

func (w *world) step() {
	e := w.queue.pop()
	w.now = e.at
	w.events++
	e.run()
}

// at schedules a call of run at t, or now if t has passed.
func (w *world) at(t Time, run func()) {
	w.seq++
	w.queue.push(event{max(t, w.now), w.seq, run})
}

func (w *world) after(d Time, run func()) { w.at(w.now+d, run) }

// source returns a separate random source, for choices that only some runs make.
func (w *world) source(what uint64) *rand.Rand { return rand.New(rand.NewPCG(w.opt.Seed, what)) }

// chance returns true with probability 1/n.
func (w *world) chance(n int) bool { return w.rng.IntN(n) == 0 }

// exp draws from the exponential distribution with the given mean, capped at ten times the mean.
func (w *world) exp(mean Time) Time {
	if mean <= 0 {
		return 0
	}
	return Time(min(w.rng.ExpFloat64(), 10) * float64(mean))
}

// between draws from [a, b] with uniform magnitude: a value between 1 and 10 is as likely as one
// between 10 and 100.
func (w *world) between(a, b Time) Time {
	lo, hi := math.Log(float64(a)), math.Log(float64(b))
	return Time(math.Exp(lo + w.rng.Float64()*(hi-lo)))
}

// start bootstraps the cluster.
func (w *world) start() {
	var founders []fsm.Member
	conf := &raftpb.ConfState{}
	for id := uint64(1); id <= uint64(w.p.Members); id++ {
		n := named(id)
		n.Versions = w.speaks(id)
		w.h.Speak[id] = n.Versions
		founders = append(founders, n)
		conf.Voters = append(conf.Voters, id)
	}
	w.oracle.init(w, founders)
	first := picture(w.oracle.machine.Image(), conf)
	for _, n := range founders {
		w.addMember(n.ID, founded(w, first))
	}
	for _, m := range w.members {
		m.start()
	}
	for i := range w.p.Clients {
		w.addClient(i)
	}
	for range w.p.Caches {
		c := w.newClient(w.anyMember())
		c.caching = true
		c.boot()
	}
	for range w.p.Waiters {
		c := w.newClient(w.anyMember())
		c.waits = true
		c.boot()
	}
	w.relays = newRelays(w)
	if w.p.Renewing.Groups {
		for range 1 + w.rng.IntN(3) + 2*w.p.Renewing.Relays {
			w.newClient(w.anyMember()).spawn(gather)
		}
	}
	if w.p.Users {
		w.addTenants()
	}
	w.injector.start(w)
}

func named(id uint64) fsm.Member {
	return fsm.Member{ID: id, Name: fmt.Sprintf("m%d", id), PeerURLs: []string{fmt.Sprintf("p%d", id)}}
}

// finish checks the state at the end of the run.
func (w *world) finish() {
	w.now = max(w.now, w.end)
	w.h.End = w.now
	for _, op := range w.h.Ops {
		if op.End == 0 {
			op.End, op.Outcome, op.Answer = Never, Unknown, Answer{}
		}
	}
	for i := range w.h.Healthy {
		w.h.Healthy[i].To = min(w.h.Healthy[i].To, w.now)
	}
	if len(w.h.Broken) > 0 {
		return
	}
	w.alive()
	w.noneDamaged()
	w.hash(0, w.oracle.machine)
	for _, m := range w.members {
		if m.proc != nil {
			w.hash(m.id, m.proc.r.Machine())
			m.proc.checkWaiters()
		}
	}
}

// alive checks that a cluster without recent faults has one leader and that no member lags behind.
func (w *world) alive() {
	n := len(w.h.Healthy)
	if n == 0 || w.now-w.h.Healthy[n-1].From < 10*Second+10*w.p.Tick*Time(w.p.ElectionTicks) {
		return
	}
	primaries := 0
	for _, v := range w.oracle.machine.View().Members {
		p := w.members[v.ID-1].proc
		if p == nil {
			continue // the member's disk is lost, or the member has not been started yet
		}
		if p.role.Primary {
			primaries++
		}
		if last := w.oracle.machine.Index(); p.view.Index+200 < last {
			w.broken("liveness", fmt.Sprintf("member %d has applied %d of %d entries",
				v.ID, p.view.Index, last))
		}
	}
	if primaries != 1 {
		w.broken("liveness", fmt.Sprintf("%d members time leases", primaries))
	}
	w.settled()
	w.oracle.outlived(w.h.Healthy[n-1].From)
}

// hash records the hash of a state (S3).
func (w *world) hash(member uint64, machine *fsm.Machine) {
	sum, err := machine.Image().Hash()
	if err != nil {
		w.broken("S3", fmt.Sprintf("hash of member %d at %d: %v", member, machine.Index(), err))
		return
	}
	w.h.Hashes = append(w.h.Hashes, Hash{
		At: w.now, Member: member, Index: machine.Index(), Sum: sum, Bytes: machine.View().Bytes,
	})
}

// broken records a violation and ends the run.
func (w *world) broken(id, what string) {
	w.h.Broken = append(w.h.Broken, Violation{At: w.now, ID: id, What: what})
	w.tracef("VIOLATION of %s: %s", id, what)
}

// tracing reports whether the run keeps a timeline.
func (w *world) tracing() bool { return w.opt.Timeline > 0 }

func (w *world) tracef(format string, args ...any) {
	if !w.tracing() {
		return
	}
	if n := len(w.timeline); n >= 2*w.opt.Timeline {
		w.timeline = append(w.timeline[:0], w.timeline[n-w.opt.Timeline:]...)
	}
	w.timeline = append(w.timeline, w.now.String()+" "+fmt.Sprintf(format, args...))
}
