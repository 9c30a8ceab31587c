package sim

// event happens at an instant of true time.
type event struct {
	at  Time
	seq uint64 // orders events at the same instant by when they were scheduled
	run func()
}

func (e *event) before(o *event) bool {
	return e.at < o.at || e.at == o.at && e.seq < o.seq
}

// queue is a heap of events. It implements sifting itself because container/heap would allocate an
// interface value for each event.
type queue []event

func (q *queue) push(e event) {
	h := append(*q, e)
	i := len(h) - 1
	for i > 0 {
		up := (i - 1) / 4
		if !h[i].before(&h[up]) {
			break
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
	*q = h
}

func (q *queue) pop() event {
	h := *q
	top, n := h[0], len(h)-1
	h[0] = h[n]
	h[n] = event{}
	h = h[:n]
	for i := 0; ; {
		least := i
		for c := 4*i + 1; c < min(4*i+5, n); c++ {
			if h[c].before(&h[least]) {
				least = c
			}
		}
		if least == i {
			break
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
	*q = h
	return top
}
