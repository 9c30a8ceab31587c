package sim

// deposeOften deposes a leader now and then, if the run's scenario has that.
func (n *injector) deposeOften() {
	if n.w.p.Depose == 0 {
		return
	}
	n.w.after(n.w.exp(n.w.p.Depose), func() {
		if n.calm {
			return
		}
		n.depose()
		n.deposeOften()
	})
}

// depose cuts a leader off until another one leads, and no longer: the log that the
// first one wrote meanwhile, several entries of it, gives way to the second one's while
// those that asked the first still wait.
func (n *injector) depose() {
	w := n.w
	leader := n.victim()
	if leader == nil || !leader.proc.role.Leading {
		return
	}
	n.note(Fault{Kind: faultPartition, Member: leader.id})
	id, term := leader.id, w.oracle.term
	heal := n.cutAll(func(a, b uint64) bool { return a == id || b == id }, n.length())
	var look func()
	look = func() {
		switch {
		case w.oracle.term > term:
			w.cover["leader deposed"]++
			w.after(w.exp(200*Millisecond), heal)
		case w.link(id, id%uint64(len(w.members))+1).cut:
			w.after(20*Millisecond, look)
		}
	}
	look()
}

// reelectOften has a leader elected again now and then, if the run's scenario has that.
func (n *injector) reelectOften() {
	if n.w.p.Reelect == 0 {
		return
	}
	n.w.after(n.w.exp(n.w.p.Reelect), func() {
		if n.calm {
			return
		}
		n.reelect()
		n.reelectOften()
	})
}

// reelect cuts all members off from each other until the leader has given up, and has it elected
// again then, by the first election timeout that ends. So the log that it wrote meanwhile, for
// clients that still wait, is committed by itself in a later term, and nobody else led between.
func (n *injector) reelect() {
	w, m := n.w, n.w.leader()
	if m == nil {
		return
	}
	n.note(Fault{Kind: faultReelected, Member: m.id})
	p := m.proc
	heal := n.cutAll(func(uint64, uint64) bool { return true }, n.cutShort(5*w.p.election()))
	var look func()
	look = func() {
		switch {
		case n.calm || p.dead:
		case p.role.Leading:
			w.after(20*Millisecond, look)
		default:
			heal()
			p.deliver(func() { _ = p.r.Campaign() })
		}
	}
	look()
}
