package sim

// deposeOften deposes leaders at random times if the scenario enables it.
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

// depose cuts a leader off until another leader is elected. The new leader's entries replace
// several entries of the old leader while its clients are still waiting.
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

// reelectOften re-elects leaders at random times if the scenario enables it.
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

// reelect cuts all members off from each other until the leader steps down, and then has it
// re-elected at the first election timeout. No other leader is elected in between, so the leader
// commits its own earlier entries in a later term while clients are still waiting.
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
