package sim

// deposeOften deposes a leader now and then, if the run's weather has that.
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
// those who asked the first still wait.
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
