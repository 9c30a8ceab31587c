package sim

import (
	"math/rand/v2"
	"slices"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

// injector injects the faults.
type injector struct {
	w    *world
	calm bool
	// active holds the faults that have not been healed yet.
	active   []active
	operator *client // changes the membership
	changes  []membershipChange
	twoLead  signal     // wakes clients that wait for two leaders
	stalls   *rand.Rand // decides when a core is delayed
	unsteady *rand.Rand // for stutters and swings
}

// active is a fault that persists until heal is called.
type active struct {
	id   int
	heal func()
}

// fault is one kind of fault. inject returns false if the fault is currently not possible.
type fault struct {
	kind   faultKind
	inject func(*injector) bool
}

// faults lists the kinds of faults in the order of Profile.Weights.
var faults = [...]fault{
	{faultCrash, func(n *injector) bool { return n.crash(faultCrash, false) }},
	{faultPowerLoss, func(n *injector) bool { return n.crash(faultPowerLoss, true) }},
	{faultCrashAll, (*injector).crashAll},
	{faultStop, (*injector).stop},
	{faultPause, (*injector).pause},
	{faultSuspend, (*injector).suspend},
	{faultPartition, (*injector).partition},
	{faultOneWay, func(n *injector) bool { return n.cut(faultOneWay) }},
	{faultPartial, func(n *injector) bool { return n.cut(faultPartial) }},
	{faultClog, (*injector).clog},
	{faultLossy, (*injector).lossy},
	{faultSlowDisk, (*injector).slowDisk},
	{faultStuckDisk, (*injector).stuckDisk},
	{faultFullDisk, (*injector).fullDisk},
	{faultLostDisk, (*injector).replace},
	{faultAddMember, (*injector).add},
	{faultRemove, (*injector).remove},
	{faultTransfer, (*injector).transfer},
	{faultForged, (*injector).forge},
	{faultClientCut, (*injector).cutClient},
	{faultClientHalt, (*injector).haltClient},
	{faultClientNew, (*injector).restartClient},
}

func (n *injector) start(w *world) {
	n.w, n.stalls, n.unsteady = w, w.source(0x4e1d), w.source(0x57a77e4)
	n.operator = w.newClient(1)
	n.operator.spawn((*thread).operate)
	if w.p.Versions {
		w.newClient(1).spawn((*thread).versionOperator)
	}
	w.addRenewers()
	if w.p.Faults == 0 {
		n.calm = true
		w.h.Healthy = append(w.h.Healthy, Stretch{0, Never})
		if w.p.RestartAll > 0 {
			w.at(w.p.RestartAll, n.restartAll)
		}
		if w.p.Compare.Damage > 0 {
			w.at(w.p.Compare.Damage, n.damage)
		}
		return
	}
	n.next()
	n.deposeOften()
	n.reelectOften()
	n.stutterOften()
	n.swingOften()
	n.sleepAtEnd()
	n.staleLeaders()
	w.at(w.end-w.p.Calm, n.heal)
}

// next schedules the next fault.
func (n *injector) next() {
	n.w.after(n.w.exp(n.w.p.Faults), func() {
		if n.calm {
			return
		}
		n.injectOne()
		n.next()
	})
}

// injectOne injects one fault, chosen by weight.
func (n *injector) injectOne() {
	w := n.w
	total := 0
	for _, x := range w.p.Weights {
		total += x
	}
	if total == 0 {
		return
	}
	for range 5 {
		at := w.rng.IntN(total)
		for i := range faults {
			if at -= w.p.Weights[i]; at < 0 {
				if faults[i].inject(n) {
					w.cover[string(faults[i].kind)]++
					return
				}
				break
			}
		}
	}
}

// note records a fault.
func (n *injector) note(f Fault) {
	f.At = n.w.now
	n.w.h.Faults = append(n.w.h.Faults, f)
	n.w.tracef("FAULT %s: member %d, other %d, client %d, until %s", f.Kind, f.Member, f.Other,
		f.Client, f.Until)
}

// lasting ends a fault after d, or when all faults are healed.
func (n *injector) lasting(d Time, heal func()) {
	n.w.seq++
	id := int(n.w.seq)
	n.active = append(n.active, active{id, heal})
	n.w.after(d, func() {
		for i, a := range n.active {
			if a.id == id {
				n.active = slices.Delete(n.active, i, i+1)
				heal()
				return
			}
		}
	})
}

// heal ends all faults permanently.
func (n *injector) heal() {
	w := n.w
	n.calm = true
	all := n.active
	n.active = nil
	for _, a := range all {
		a.heal()
	}
	for _, m := range w.members {
		if m.proc == nil && !m.gone && !m.fresh {
			m.start()
		}
		if m.proc != nil {
			m.proc.crashIn = 0
		}
	}
	w.tracef("HEALED")
	w.h.Healthy = append(w.h.Healthy, Stretch{w.now, Never})
}

// victim returns a random member with a running process. It favors the leader.
func (n *injector) victim() *member {
	w := n.w
	var up []*member
	for _, m := range w.members {
		if m.proc != nil {
			up = append(up, m)
			if m.proc.role.Leading {
				up = append(up, m, m)
			}
		}
	}
	if len(up) == 0 {
		return nil
	}
	return up[w.rng.IntN(len(up))]
}

// length draws the duration of a fault. No fault extends into the final healthy stretch.
func (n *injector) length() Time {
	left := n.w.end - n.w.p.Calm - n.w.now
	return max(1, min(n.w.between(50*Millisecond, 20*Second), left))
}

func (n *injector) crash(kind faultKind, silent bool) bool {
	m, d := n.victim(), n.length()
	if m == nil {
		return false
	}
	n.note(Fault{Kind: kind, Member: m.id, Until: n.w.now + d})
	if n.w.chance(2) {
		m.proc.crashIn = 1 + n.w.rng.IntN(10)
	} else {
		m.stop(true, silent)
	}
	n.restart(m, d)
	return true
}

// restart restarts a member after d if it is still down.
func (n *injector) restart(m *member, d Time) {
	n.w.after(d, func() {
		if m.proc == nil && !m.gone && !m.fresh {
			m.start()
		}
	})
}

func (n *injector) crashAll() bool {
	n.note(Fault{Kind: faultCrashAll})
	for _, m := range n.w.members {
		if m.proc != nil {
			m.stop(true, n.w.chance(2))
			n.restart(m, n.length()/4)
		}
	}
	return true
}

// restartAll simulates a power failure that stops all members at the same time during a healthy
// stretch. The bounds of a healthy stretch apply both before and after it.
func (n *injector) restartAll() {
	w := n.w
	n.note(Fault{Kind: faultCrashAll})
	w.cover["restart of all in a healthy stretch"]++
	for _, m := range w.members {
		if m.proc != nil {
			m.stop(true, w.chance(2))
			n.restart(m, w.between(10*Millisecond, 2*Second))
		}
	}
	w.h.Healthy[len(w.h.Healthy)-1].To = w.now
	w.h.Healthy = append(w.h.Healthy, Stretch{w.now + 2*Second, Never})
}

func (n *injector) stop() bool {
	m, d := n.victim(), n.length()
	if m == nil {
		return false
	}
	n.note(Fault{Kind: faultStop, Member: m.id, Until: n.w.now + d})
	if n.w.chance(2) {
		p := m.proc
		p.deliver(func() {
			p.r.CheckpointAll(func() { p.deliver(func() { p.r.Yield() }) })
		})
		n.w.after(Time(n.w.rng.IntN(int(Second))), func() {
			if m.proc == p && !n.calm {
				m.stop(false, false)
				n.restart(m, n.length())
			}
		})
		return true
	}
	m.stop(false, false)
	n.restart(m, d)
	return true
}

func (n *injector) pause() bool {
	m, d := n.victim(), n.length()
	return m != nil && n.freeze(m, faultPause, d)
}

// freeze pauses a process or suspends a machine.
func (n *injector) freeze(m *member, kind faultKind, d Time) bool {
	if m.proc.frozen > n.w.now {
		return false
	}
	p := m.proc
	n.note(Fault{Kind: kind, Member: m.id, Until: n.w.now + d})
	p.frozen = n.w.now + d
	p.wakeAt = Never
	if kind == faultSuspend {
		m.disk.stuck = max(m.disk.stuck, p.frozen)
		m.clock.asleep += d // the suspended time counts from now on
	}
	p.wake(p.frozen)
	n.lasting(d, func() {
		if !p.dead {
			p.frozen, p.wakeAt = n.w.now, Never
			p.wake(n.w.now)
		}
	})
	return true
}

func (n *injector) slowDisk() bool {
	m, d := n.victim(), n.length()
	if m == nil {
		return false
	}
	n.note(Fault{Kind: faultSlowDisk, Member: m.id, Until: n.w.now + d})
	m.disk.slow = n.w.between(10*Millisecond, Second)
	n.lasting(d, func() { m.disk.slow = 0 })
	return true
}

func (n *injector) stuckDisk() bool {
	m, d := n.victim(), n.length()
	if m == nil {
		return false
	}
	n.note(Fault{Kind: faultStuckDisk, Member: m.id, Until: n.w.now + d})
	m.disk.stuck = max(m.disk.stuck, n.w.now+d)
	return true
}

func (n *injector) fullDisk() bool {
	m, d := n.victim(), n.length()
	if m == nil {
		return false
	}
	n.note(Fault{Kind: faultFullDisk, Member: m.id, Until: n.w.now + d})
	m.disk.full = true
	n.lasting(d, func() {
		m.disk.full = false
		m.disk.next()
	})
	return true
}

// replace destroys a member's disk. The operator removes the member and adds a new one.
func (n *injector) replace() bool {
	m := n.victim()
	if m == nil || len(n.changes) > 0 || len(n.w.members) > 12 || !n.spare(m) {
		return false
	}
	n.note(Fault{Kind: faultLostDisk, Member: m.id})
	m.stop(true, n.w.chance(2))
	m.gone = true
	n.send(membershipChange{remove: m.id, add: n.newcomer()})
	return true
}

// spare reports whether the cluster can lose a member permanently. A majority of the voters must
// remain and have the current membership on disk. A voter that does not have the last change yet
// would still need the previous majority.
func (n *injector) spare(lost *member) bool {
	voters, knowing := 0, 0
	for _, v := range n.w.oracle.machine.View().Members {
		if v.Learner {
			continue
		}
		voters++
		m := n.w.members[v.ID-1]
		knows := max(m.disk.hard.GetCommit(), m.disk.snap.index()) >= n.w.oracle.members
		if m != lost && !m.gone && knows {
			knowing++
		}
	}
	return voters >= 3 && knowing > voters/2
}

func (n *injector) add() bool {
	if len(n.changes) > 0 || len(n.w.members) > 12 || len(n.w.oracle.machine.View().Members) >= 5 {
		return false
	}
	id := n.newcomer()
	n.note(Fault{Kind: faultAddMember, Member: id})
	n.send(membershipChange{add: id})
	return true
}

// newcomer creates a member with an empty disk. The member has not been started yet.
func (n *injector) newcomer() uint64 {
	return n.w.addMember(uint64(len(n.w.members)+1), &disk{w: n.w, content: content{first: 1}}).id
}

func (n *injector) remove() bool {
	m := n.victim()
	if m == nil || len(n.changes) > 0 || len(n.w.oracle.machine.View().Members) <= 3 || !n.spare(m) {
		return false
	}
	n.note(Fault{Kind: faultRemove, Member: m.id})
	n.send(membershipChange{remove: m.id})
	return true
}

func (n *injector) send(o membershipChange) { n.changes = append(n.changes, o) }

func (n *injector) transfer() bool {
	m := n.victim()
	if m == nil {
		return false
	}
	to := n.w.members[n.w.rng.IntN(len(n.w.members))].id
	n.note(Fault{Kind: faultTransfer, Member: m.id, Other: to})
	p := m.proc
	p.deliver(func() { _ = p.r.Transfer(to) })
	return true
}

// forge has a member forward an expiry to the leader, although only the leader's timers may decide
// one. A former leader would do this if it resumed after a pause and found all leases expired.
func (n *injector) forge() bool {
	w, m := n.w, n.victim()
	if m == nil || m.proc.role.Leading || m.proc.role.Leader == 0 {
		return false
	}
	s := m.proc.role
	expire, checkpoint := &fsm.Expire{Term: s.Term}, &fsm.Checkpoint{Term: s.Term}
	for info := range m.proc.r.Machine().Lessor().Leases() {
		expire.Leases = append(expire.Leases,
			lease.Due{ID: info.ID, Token: info.Token, Stamp: info.Stamp})
		checkpoint.Leases = append(checkpoint.Leases,
			lease.Checkpoint{ID: info.ID, Token: info.Token, Remaining: 1})
	}
	if len(expire.Leases) == 0 {
		return false
	}
	n.note(Fault{Kind: faultForged, Member: m.id, Other: s.Leader})
	base := w.rng.Uint64() | 1<<63 // above any number that the member itself uses
	w.send(m.proc, &replica.Message{Version: 1, From: m.id, To: s.Leader, Forward: &replica.Forward{
		Term: s.Term, First: base, Base: base, Commands: []fsm.Command{expire, checkpoint},
	}})
	return true
}

func (n *injector) client() *client {
	return n.w.clients[n.w.rng.IntN(n.w.p.Clients+n.w.p.Caches+n.w.p.Waiters)]
}

func (n *injector) cutClient() bool {
	c, d := n.client(), n.length()
	n.note(Fault{Kind: faultClientCut, Client: c.id, Until: n.w.now + d})
	c.cut = true
	n.lasting(d, func() { c.cut = false })
	return true
}

func (n *injector) haltClient() bool {
	c, d := n.client(), n.length()
	n.note(Fault{Kind: faultClientHalt, Client: c.id, Until: n.w.now + d})
	c.paused = max(c.paused, n.w.now+d)
	return true
}

func (n *injector) restartClient() bool {
	c := n.client()
	n.note(Fault{Kind: faultClientNew, Client: c.id})
	c.kill()
	n.w.after(n.length()/10, c.boot)
	return true
}
