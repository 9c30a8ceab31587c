package sim

// This file has the faults that are aimed at rule 4: a leader goes on for a while
// when another one has been elected, because what would tell it comes late; and
// clients ask that leader just then (renewers.go).

// StaleLeader says how much of this a run has. The zero value is none of it.
type StaleLeader struct {
	// Every is the mean time between two attempts.
	Every Time
	// AtClear: one of so many entries that clear a checkpoint costs its leader the lead as
	// soon as it is applied there, and before the others know that it is committed; 0
	// for none.
	AtClear int
	// Renewers is how many clients renew their leases together, and Period how often.
	Renewers int
	Period   Time
}

// drawStaleLeader draws that, in a part of the runs, from a source of its own: the other runs
// stay as they were.
func (w *world) drawStaleLeader() {
	r := w.source(0xc0)
	if r.IntN(5) > 1 {
		return
	}
	w.p.StaleLeader = StaleLeader{
		Every:    Time(1+r.IntN(4)) * Second,
		AtClear:  4 + r.IntN(16),
		Renewers: 3 + r.IntN(4),
		Period:   Time(300+r.IntN(700)) * Millisecond,
	}
}

// staleLeaders schedules the next attempt.
func (n *injector) staleLeaders() {
	if n.w.p.StaleLeader.Every == 0 {
		return
	}
	n.w.after(n.w.exp(n.w.p.StaleLeader.Every), func() {
		switch {
		case n.calm:
			return
		case n.w.chance(3):
			n.slowAllDisks()
		default:
			n.replaceLeader()
		}
		n.staleLeaders()
	})
}

// cutShort is d, or less at the end of the faults.
func (n *injector) cutShort(d Time) Time {
	return max(1, min(d, n.w.end-n.w.p.Calm-n.w.now))
}

// replaceLeader lets all that the others send to the leader come late, and then makes one of
// them take the lead.
func (n *injector) replaceLeader() {
	w, m := n.w, n.w.leader()
	if m == nil {
		return
	}
	lag := w.between(150*Millisecond, 1500*Millisecond)
	d := n.cutShort(2 * lag)
	n.note(Fault{Kind: faultStaleLeader, Member: m.id, Until: w.now + d})
	for _, other := range w.members {
		w.link(other.id, m.id).lag += lag
		n.lasting(d, func() { w.link(other.id, m.id).lag -= lag })
	}
	way := w.rng.IntN(4)
	n.whenTwoLead(w.now + d)
	w.after(Time(w.rng.Int64N(int64(lag/2))), func() {
		switch p := m.proc; {
		case p == nil || n.calm:
		case way == 0:
			to := w.members[w.rng.IntN(len(w.members))].id
			p.deliver(func() { _ = p.r.Transfer(to) })
		default:
			n.isolate(m, d, way != 1)
		}
	})
}

// whenTwoLead notifies the clients when two members time leases.
func (n *injector) whenTwoLead(until Time) {
	primaries := 0
	for _, m := range n.w.members {
		if m.proc != nil && m.proc.role.Primary {
			primaries++
		}
	}
	switch {
	case primaries > 1:
		n.twoLead.notify(n.w)
	case n.w.now < until:
		n.w.after(5*Millisecond, func() { n.whenTwoLead(until) })
	}
}

// isolate lets nothing more of a member reach the others. If dead, they take its
// process for one that has ended, as when its listener is gone.
func (n *injector) isolate(m *member, d Time, dead bool) {
	n.cutAll(func(from, _ uint64) bool { return from == m.id }, d)
	if !dead {
		return
	}
	for _, other := range n.w.members {
		if q := other.proc; q != nil && other != m {
			q.deliver(func() { q.r.Gone(m.id) })
		}
	}
}

// deposeAtApply may isolate a leader that has just applied an entry.
func (n *injector) deposeAtApply(member uint64) {
	w := n.w
	m := w.members[member-1]
	if w.p.StaleLeader.AtClear == 0 || n.calm || m.proc == nil || !m.proc.role.Leading ||
		!w.chance(w.p.StaleLeader.AtClear) {
		return
	}
	d := n.cutShort(w.between(100*Millisecond, 4*Second))
	n.note(Fault{Kind: faultStaleLeader, Member: member, Until: w.now + d})
	w.cover["leader isolated as it applied"]++
	n.isolate(m, d, true)
}

// slowAllDisks makes all disks slow, as when they share one machine.
func (n *injector) slowAllDisks() {
	w, d := n.w, n.length()
	n.note(Fault{Kind: faultCongestion, Until: w.now + d})
	slow := w.between(50*Millisecond, 600*Millisecond)
	for _, m := range w.members {
		m.disk.slow = slow
		n.lasting(d, func() { m.disk.slow = 0 })
	}
}

// leader returns the member that leads, or takes itself for one that does: of several
// any.
func (w *world) leader() *member {
	var out []*member
	for _, m := range w.members {
		if m.proc != nil && m.proc.role.Leading {
			out = append(out, m)
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out[w.rng.IntN(len(out))]
}
