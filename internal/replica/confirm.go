package replica

import "slices"

// rounds runs a leader's confirm rounds. In a confirm round, a quorum confirms that the member
// still leads. A round that begins after a promise was made confirms that promise. One round
// confirms all waiting requests.
//
// One round runs at a time. Requests that arrive during a round wait for the next one, because a
// promise is confirmed only by a round that began after the promise was made (rule 4). The Replica
// queries the quorum and reports the outcome.
type rounds struct {
	// next holds the requests for the next round. The leadership adds requests to it.
	next round

	current round // the round in progress; its id is 0 if there is none
	done    []round
	last    uint64 // id of the last round that began
	spare   round  // empty round with the memory of a finished one
}

// round is a confirm round with the requests that it confirms: everything that was waiting when it
// began.
type round struct {
	id    uint64 // 0 until the round begins
	index uint64 // once confirmed: the requests can be answered when this index is applied

	reads    []*Read
	renewals []Renewal
	together []*Renewals
	opens    []OpenCache
}

// empty reports whether the round has no requests.
func (b *round) empty() bool {
	return len(b.reads)+len(b.renewals)+len(b.together)+len(b.opens) == 0
}

// emptied returns an empty round that reuses the memory of this one.
func (b *round) emptied() round {
	clear(b.reads)
	clear(b.renewals)
	clear(b.together)
	clear(b.opens)
	return round{
		reads: b.reads[:0], renewals: b.renewals[:0], together: b.together[:0],
		opens: b.opens[:0],
	}
}

// hasNext reports whether begin would begin a round.
func (r *rounds) hasNext() bool { return r.current.id == 0 && !r.next.empty() }

// begin begins a round if requests are waiting and no round is in progress. The caller must then
// query the quorum with the ID.
func (r *rounds) begin() (id uint64, ok bool) {
	if !r.hasNext() {
		return 0, false
	}
	r.last++
	r.current, r.next, r.spare = r.next, r.spare, round{}
	r.current.id = r.last
	return r.last, true
}

// confirmed records that a quorum has confirmed a round. Its requests can be answered from any
// state at or after index.
func (r *rounds) confirmed(id, index uint64) {
	if id == 0 || id != r.current.id {
		return
	}
	r.current.index = index
	r.done = append(r.done, r.current)
	r.current = round{}
}

// release returns the oldest confirmed round, if its index has been applied.
func (r *rounds) release(applied uint64) (b round, ok bool) {
	if len(r.done) == 0 || r.done[0].index > applied {
		return round{}, false
	}
	b = r.done[0]
	r.done = slices.Delete(r.done, 0, 1)
	return b, true
}

// reuse takes the memory of a round that release returned and whose requests have been answered.
func (r *rounds) reuse(b round) { r.spare = b.emptied() }

// close ends all rounds because the member no longer leads. It returns them, oldest first. The
// promises in them must not be released.
func (r *rounds) close() []round {
	all := r.done
	if r.current.id != 0 {
		all = append(all, r.current)
	}
	all = append(all, r.next)
	*r = rounds{last: r.last}
	return all
}

// release answers the rounds whose index has been applied.
func (l *leadership) release() {
	for !l.m.machine.Midway() { // otherwise a reader of leases would see a half-finished deletion
		b, ok := l.rounds.release(l.m.machine.Index())
		if !ok {
			return
		}
		for _, q := range b.reads {
			answers := left(l.m.lessor, q.Leases)
			if q.from != 0 {
				l.m.send(l.remotes.confirmed(q, b.index, l.m.machine.Index(), answers))
				continue
			}
			q.Left = answers
			l.m.finish(q)
		}
		for i := range b.renewals {
			l.settle(b.renewals[i])
		}
		for _, all := range b.together {
			l.settleAll(all)
		}
		for i := range b.opens {
			l.opened(b.opens[i])
		}
		l.rounds.reuse(b)
	}
}
