package sim

// This file contains network faults between members.

// partition splits the members into two groups that cannot communicate.
func (n *injector) partition() bool {
	w := n.w
	side := make([]bool, len(w.members)+1)
	for i := range side {
		side[i] = w.chance(2)
	}
	if leader := n.victim(); leader != nil && w.chance(2) {
		for i := range side {
			side[i] = uint64(i) == leader.id
		}
	}
	n.note(Fault{Kind: faultPartition})
	n.cutAll(func(a, b uint64) bool { return side[a] != side[b] }, n.length())
	return true
}

// cutAll cuts the links for which f returns true. They are restored after d, or earlier if heal is
// called.
func (n *injector) cutAll(f func(from, to uint64) bool, d Time) (heal func()) {
	size := uint64(len(n.w.members))
	type ends struct{ from, to uint64 }
	var all []ends
	for a := uint64(1); a <= size; a++ {
		for b := uint64(1); b <= size; b++ {
			if a != b && f(a, b) && !n.w.link(a, b).cut {
				n.w.link(a, b).cut = true
				all = append(all, ends{a, b})
			}
		}
	}
	heal = func() {
		for _, e := range all {
			n.w.link(e.from, e.to).cut = false
		}
		all = nil
	}
	n.lasting(d, heal)
	return heal
}

func (n *injector) cut(kind faultKind) bool {
	m := n.victim()
	if m == nil {
		return false
	}
	other := n.w.members[n.w.rng.IntN(len(n.w.members))]
	if other == m {
		return false
	}
	from, to := m.id, other.id
	if n.w.chance(2) {
		from, to = to, from
	}
	n.note(Fault{Kind: kind, Member: from, Other: to})
	n.cutAll(func(a, b uint64) bool {
		return a == from && b == to || kind == faultPartial && a == to && b == from
	}, n.length())
	return true
}

func (n *injector) clog() bool {
	w := n.w
	m := n.victim()
	if m == nil {
		return false
	}
	until := w.now + n.length()
	n.note(Fault{Kind: faultClog, Member: m.id, Until: until})
	in := w.chance(2)
	for _, other := range w.members {
		from, to := m.id, other.id
		if in {
			from, to = to, from
		}
		if w.chance(2) {
			w.link(from, to).clog = until
			n.lasting(until-w.now, func() { w.link(from, to).clog = 0 })
		}
	}
	return true
}

func (n *injector) lossy() bool {
	w := n.w
	d := n.length()
	n.note(Fault{Kind: faultLossy, Until: w.now + d})
	loss, delay := w.rng.IntN(400000), w.between(Millisecond, Second)
	set := func(from, to uint64, loss int, delay Time) {
		l := w.link(from, to)
		l.loss, l.delay = loss, delay
	}
	for a := range uint64(len(w.members)) {
		for b := range uint64(len(w.members)) {
			if w.chance(2) {
				set(a+1, b+1, loss, delay)
				n.lasting(d, func() { set(a+1, b+1, 0, 0) })
			}
		}
	}
	return true
}
