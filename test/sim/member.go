package sim

import (
	"fmt"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/shell"
	"leasehold.dev/internal/watch"
	"leasehold.dev/lease"
)

// member is one machine of the cluster with its disk and clock. Its process can stop and restart.
type member struct {
	w     *world
	id    uint64
	clock clock
	disk  *disk
	proc  *process // nil while the process is down
	// gone is set once the member was removed or lost its disk. It never returns.
	gone bool
	// fresh is set until the member starts for the first time.
	fresh bool
	// damaged is set if the hash of the member's state is wrong, and condemned if the member
	// stopped because of that.
	damaged, condemned bool
}

// mail holds the messages that have arrived since the last step. Calls that the core has not
// received yet are still in the member's goroutines.
type mail struct {
	shell.Mail
	calls []*call
	// groups holds the rounds of relays and the ends of streams. They are processed after the
	// calls.
	groups []*replica.Renewals
}

// process is a member's process. It corresponds to server/core.go in virtual time. The real package
// shell decides what it does and in which order.
type process struct {
	w    *world
	m    *member
	r    *replica.Replica
	s    *shell.Shell
	dead bool

	mail    mail
	calls   []*call // reused buffer
	step    stepState
	wakeAt  Time // the next step, or Never
	alarms  alarms
	frozen  Time          // the end of a pause
	born    lease.Instant // the clock's reading when the process started
	crashIn int           // number of actions until the process crashes; 0 for never

	view *fsm.View
	hub  *watch.Hub[*api.Event]
	streams
	snaps snaps

	role      replica.Status
	forwarded forwarded
	event     uint64 // the number of the last published lease event
}

// streams holds the streams that clients have open to a process.
type streams struct {
	watchers []*watcher
	waitQueues
}

// snaps manages the snapshots of a process.
type snaps struct {
	shell.Snapshots
	open    []func(bool) // called when a stream to this process ends
	hashing bool         // a state is being hashed
}

// addMember creates a member without starting its process.
func (w *world) addMember(id uint64, d *disk) *member {
	m := &member{w: w, id: id, disk: d, clock: w.clock(), fresh: true}
	w.members = append(w.members, m)
	w.growLinks()
	return m
}

// clock draws a clock. Each clock is off by at most half the drift, because the bound limits the
// difference between two clocks.
func (w *world) clock() clock {
	e := (w.rng.Float64() - 0.5) * w.p.RealDrift
	if w.chance(3) { // at the bound
		e = w.p.RealDrift / 2
		if w.chance(2) {
			e = -e
		}
	}
	return clock{rate: 1 + e, offset: Time(w.rng.Int64N(int64(1000 * Second)))}
}

// start starts the member's process.
func (m *member) start() {
	w := m.w
	p := &process{w: w, m: m, wakeAt: Never}
	p.alarms.ring = p.alarm
	m.disk.start(p)
	machine := m.disk.restore(w.machine)
	c := replica.Config{
		ID: m.id, FirstSeq: w.rng.Uint64() >> 2, Log: m.disk, Machine: machine,
		ElectionTicks: w.p.ElectionTicks, HeartbeatTicks: 1,
		MaxBatch: 1 << 16, MaxExpire: 8, MaxUncommitted: w.p.Room, CommitDelay: true,
		Logger: quiet{}, Silence: w.p.silence(),
		CompareTicks: w.p.Compare.Ticks,
		Membership:   replica.Membership{Strict: true, Stable: 1000, MaxLearners: 1, MaxLag: 100},
	}
	if w.opt.Tamper != nil {
		w.opt.Tamper(&c)
	}
	var err error
	if p.r, err = replica.New(c); err != nil {
		panic(err)
	}
	p.view = machine.View()
	p.snaps.Count, p.snaps.Tail = w.p.SnapshotCount, w.p.Tail
	p.snaps.Restored(machine.Index(), 0) // measured in entries, not bytes
	p.event = w.oracle.lastEvent(machine.Index())
	p.forwarded.now = make(map[fsm.Command]bool)
	o := watch.Options{
		Queue: watch.Limit{Events: 8}, Batch: watch.Limit{Events: 4}, Backlog: watch.Limit{Events: 64},
	}
	if w.p.Waiters > 0 {
		o.Backlog.Events = 4
	}
	p.hub = watch.New(func() watch.History[*api.Event] { return api.NewHistory(p.view.KV) }, o)
	p.waitQueues.init(p)
	p.born = m.clock.instant(w.now)
	p.s = shell.New(shell.Config{
		Replica: p.r, Start: m.clock.reading(w.now), Heartbeat: lease.TTL(w.p.Tick / Millisecond),
		Election: lease.TTL(w.p.election() / Millisecond),
	})
	m.proc = p
	w.h.Restarts = append(w.h.Restarts, Restart{
		At: w.now, Member: m.id, Up: true, Fresh: m.fresh, Index: machine.Index(),
	})
	m.fresh = false
	p.askOften()
	w.tracef("member %d starts at index %d, log to %d", m.id, machine.Index(), m.disk.last())
	p.wake(w.now + w.exp(10*Millisecond))
}

// stop ends the member's process. A crash loses unsynced writes.
func (m *member) stop(crash, silent bool) {
	w, p := m.w, m.proc
	if p == nil {
		return
	}
	p.dead, m.proc = true, nil
	if crash {
		m.disk.crash()
	} else {
		m.disk.flush()
	}
	if p.role.Primary {
		w.cover["primary stopped"]++
	}
	w.h.Restarts = append(w.h.Restarts, Restart{
		At: w.now, Member: m.id, Crash: crash, Index: p.view.Index,
	})
	w.tracef("member %d stops, crash %v, silent %v; log to %d", m.id, crash, silent, m.disk.last())
	for _, x := range p.watchers {
		x.broken(silent)
	}
	for _, x := range p.tickets {
		x.broken(silent)
	}
	for _, c := range w.clients {
		c.lostMember(p, silent)
	}
	w.relays.lost(p, silent)
	for _, ended := range p.snaps.open {
		ended(false) // the connection breaks or times out
	}
	if silent {
		return
	}
	for _, other := range w.members {
		if other != m && !w.link(m.id, other.id).cut {
			w.after(w.between(Millisecond/2, 20*Millisecond), func() {
				if q := other.proc; q != nil {
					q.deliver(func() { q.r.Gone(m.id) })
				}
			})
		}
	}
}

// instant reads the clock.
func (p *process) instant() lease.Instant { return p.m.clock.instant(p.w.now) - p.born }

// refreshed records that all leases have their full TTL again, once a requested refresh is
// complete. Earlier decisions take effect first. For example, if a checkpoint is in flight, the
// refreshed leases count down from it.
func (p *process) refreshed() {
	s := p.r.Status()
	if !p.role.Refreshing || s.Refreshing {
		return
	}
	p.role.Refreshing = false
	if !s.Primary || s.Term != p.role.Term {
		return
	}
	p.w.cover["refresh after a stall"]++
	p.w.h.Roles = append(p.w.h.Roles, Role{
		At: p.w.now, Member: p.m.id, Term: s.Term, Leader: s.Leader, Leading: s.Leading,
		Primary: true, Index: s.Applied, Local: p.instant(), Refresh: true,
	})
	p.w.tracef("member %d was paused, and gives all leases their full TTL again", p.m.id)
}

// note reports the applied entries to the oracle.
func (p *process) note(out *replica.Output) {
	p.observe()
	p.w.cover["member taken for hung"] += len(out.Silent)
	if !out.Applied {
		return
	}
	w, machine := p.w, p.r.Machine()
	from, to := p.view.Index, machine.Index()
	if out.Restored {
		at := p.m.disk.snap.index()
		w.h.Applied = append(w.h.Applied, Applied{w.now, p.m.id, from, at, true})
		if from > 1 {
			w.cover["snapshot installed over a state"]++
		} else {
			w.cover["snapshot installed in a new member"]++
		}
		w.tracef("member %d has installed a snapshot at %d, over %d", p.m.id, at, from)
		from = at
	}
	for i := from + 1; i <= to; i++ {
		w.oracle.applied(p, p.m.disk.entries[i-p.m.disk.first])
	}
	if to > from {
		w.h.Applied = append(w.h.Applied, Applied{w.now, p.m.id, from, to, false})
	}
	if to%hashEvery == 0 || out.Restored {
		w.hash(p.m.id, machine)
	}
}

// snap starts writing a snapshot of the state.
func (p *process) snap() {
	image, conf := p.r.Machine().Image(), p.r.ConfState()
	keep := p.snaps.Begin(image.View.Index, p.snaps.Tail)
	p.w.after(p.w.between(Millisecond, Second), func() {
		if p.dead {
			p.w.cover["crash while a snapshot was written"]++
			return
		}
		newest := p.m.disk.commit(picture(image, conf), keep)
		p.deliver(func() { p.snaps.Ended(image.View.Index, 0, newest) })
		p.w.cover["snapshot written"]++
	})
}

// observe records changes of the member's role.
func (p *process) observe() {
	p.refreshed()
	s := p.r.Status()
	was := p.role
	p.role = s
	if s.Term == was.Term && s.Leader == was.Leader && s.Leading == was.Leading &&
		s.Primary == was.Primary {
		return
	}
	w := p.w
	w.h.Roles = append(w.h.Roles, Role{
		At: w.now, Member: p.m.id, Term: s.Term, Leader: s.Leader, Leading: s.Leading,
		Primary: s.Primary, Index: s.Applied, Local: p.instant(),
		Promoted: s.Primary && (!was.Primary || was.Term != s.Term),
	})
	if s.Leading && s.Term > w.oracle.term {
		if p == w.oracle.leader && p.m.disk.last() > s.Applied {
			w.cover["leader elected again with entries in flight"]++
		}
		w.oracle.term, w.oracle.changed, w.oracle.leader = s.Term, w.now, p
		w.cover["leader elected"]++
	}
	w.tracef("member %d: term %d, leader %d, leading %v, primary %v, applied %d", p.m.id, s.Term,
		s.Leader, s.Leading, s.Primary, s.Applied)
}

func (p *process) answer(out *replica.Output) {
	for _, q := range out.Proposals {
		if c, ok := q.Owner.(*call); ok { // with a planted fault, there may be no call
			c.proposed(p, q)
		}
	}
	for _, q := range out.Reads {
		q.Owner.(*call).read(p, q)
	}
	p.renewed(out)
	if n := len(out.Waits); n > 0 {
		p.w.cover["command that waited for caches"] += n
	}
}

// quiet is a raft.Logger that discards all messages but still panics on Panic and Fatal.
type quiet struct{}

func (quiet) Debug(...any)              {}
func (quiet) Debugf(string, ...any)     {}
func (quiet) Info(...any)               {}
func (quiet) Infof(string, ...any)      {}
func (quiet) Warning(...any)            {}
func (quiet) Warningf(string, ...any)   {}
func (quiet) Error(...any)              {}
func (quiet) Errorf(string, ...any)     {}
func (quiet) Fatal(v ...any)            { panic(fmt.Sprint(v...)) }
func (quiet) Fatalf(f string, v ...any) { panic(fmt.Sprintf(f, v...)) }
func (quiet) Panic(v ...any)            { panic(fmt.Sprint(v...)) }
func (quiet) Panicf(f string, v ...any) { panic(fmt.Sprintf(f, v...)) }
