package sim

// This file contains the faults for rule 4. A leader continues for a while after another leader was
// elected, because messages are delayed. Meanwhile, clients send it requests (renewers.go).

// StaleLeader configures these faults. The zero value disables them.
type StaleLeader struct {
	// Every is the mean time between two attempts.
	Every Time
	// AtClear isolates the leader at one in AtClear entries that clear a checkpoint; 0 disables
	// this. The leader is isolated right after it applies the entry, before the others detect that
	// it is committed.
	AtClear int
	// Renewers is the number of clients that renew their leases at the same time, and Period is the
	// interval between renewals.
	Renewers int
	Period   Time
}

// drawStaleLeader draws these faults for some runs. It has its own random source, so other runs are
// unaffected.
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

// cutShort shortens d so that it does not extend beyond the end of the faults.
func (n *injector) cutShort(d Time) Time {
	return max(1, min(d, n.w.end-n.w.p.Calm-n.w.now))
}

// replaceLeader delays all messages from other members to the leader, and then has another member
// elected.
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
	n.notifyTwoLeaders(w.now + d)
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

// notifyTwoLeaders notifies the waiting clients once two members are primary.
func (n *injector) notifyTwoLeaders(until Time) {
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
		n.w.after(5*Millisecond, func() { n.notifyTwoLeaders(until) })
	}
}

// isolate drops all messages sent by a member. If dead is set, the other members consider its
// process dead, as if its listener were gone.
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

// deposeAtApply sometimes isolates a leader that has just applied an entry.
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

// slowAllDisks slows down all disks, as if they shared a machine.
func (n *injector) slowAllDisks() {
	w, d := n.w, n.length()
	n.note(Fault{Kind: faultCongestion, Until: w.now + d})
	slow := w.between(50*Millisecond, 600*Millisecond)
	for _, m := range w.members {
		m.disk.slow = slow
		n.lasting(d, func() { m.disk.slow = 0 })
	}
}

// leader returns a member that leads or believes that it leads. If there are several, it picks one
// at random.
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
