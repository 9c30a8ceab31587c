package replica

import (
	"slices"

	"go.etcd.io/raft/v3/raftpb"
)

// inflight holds this member's entries that are in the log but not yet applied, in log order. An
// entry outlives the term of the leader that proposed it, because only the log decides its outcome.
type inflight []batch

// batch is one entry.
type batch struct {
	index, term uint64 // index is 0 until the entry is appended
	// number of the first proposal in its leader's queue; 0 for a membership change
	number    uint64
	time      int64 // upper bound on the cost of its commands: see fsm.Cost
	proposals []*Proposal
}

// assign sets the index of the last proposed entry. During this member's term as leader, all
// entries that carry data are its own, in the order in which it proposed them.
func (f inflight) assign(entries []*raftpb.Entry, term uint64) {
	for _, e := range entries {
		if len(e.GetData()) == 0 || e.GetTerm() != term {
			continue
		}
		if last := len(f) - 1; last >= 0 && f[last].index == 0 {
			f[last].index = e.GetIndex()
		}
	}
}

// take returns the proposals of the entry (index, term), which is being applied, if this member
// proposed it. Proposals at earlier indexes or from earlier terms are certain to be lost: another
// leader's entries have overwritten them, because terms in a log never decrease.
func (f *inflight) take(index, term uint64) (found, lost []*Proposal) {
	n := 0
	for ; n < len(*f); n++ {
		b := &(*f)[n]
		if b.index == index && b.term == term {
			found = b.proposals
			continue
		}
		if b.term >= term && (b.index == 0 || b.index > index) {
			break
		}
		lost = append(lost, b.proposals...)
	}
	*f = cut(*f, 0, n)
	return found, lost
}

// swallow returns the proposals of the entries up to index, which a snapshot has replaced.
func (f *inflight) swallow(index uint64) (all []*Proposal) {
	for len(*f) > 0 && (*f)[0].index <= index {
		all = append(all, (*f)[0].proposals...)
		*f = (*f)[1:]
	}
	return all
}

// unassigned removes the last proposed entry if it has no index, because Raft did not append it. It
// reports whether it removed one.
func (f *inflight) unassigned() bool {
	last := len(*f) - 1
	if last < 0 || (*f)[last].index != 0 {
		return false
	}
	*f = (*f)[:last]
	return true
}

// first returns the number of the first proposal, or next if there are no proposals.
func (f inflight) first(next uint64) uint64 {
	for i := range f {
		if n := f[i].number; n != 0 {
			return n
		}
	}
	return next
}

// time returns an upper bound on the total cost of all commands.
func (f inflight) time() (all int64) {
	for i := range f {
		all += f[i].time
	}
	return all
}

// setsVersion reports whether any entry changes the cluster version.
func (f inflight) setsVersion() bool {
	return slices.ContainsFunc(f, func(b batch) bool {
		return slices.ContainsFunc(b.proposals, (*Proposal).setsVersion)
	})
}

// of returns the proposals made in the given term.
func (f inflight) of(term uint64) (all []*Proposal) {
	for i := range f {
		if f[i].term == term {
			all = append(all, f[i].proposals...)
		}
	}
	return all
}
