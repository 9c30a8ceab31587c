package replica

import (
	"leasehold.dev/internal/directory"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// Read waits for a confirm round. Take returns it once, when the state that
// can then be read is at least as new as any that was acknowledged before the
// Read was given, or with Err.
type Read struct {
	// Inspect, if not nil, is called with the lessor when the round is done,
	// before Take returns. It must be quick and must copy what it keeps.
	Inspect func(*lease.Lessor)
	// Leases asks the leader about these leases. Left says of each, in their order,
	// how long it will certainly live, and is set before Inspect is called.
	Leases []lease.ID
	Left   []Left
	// Fill, if not nil, asks that what is read then may be cached.
	Fill *Fill
	// Repeat, if not nil, asks what came of a command.
	Repeat *Repeat
	Err    error
	// Owner is the caller's, to find what waits.
	Owner any

	born uint64 // the tick at which it came
	// from is the member that asked for the round with the number; 0 if it was a
	// client of this one.
	from, round uint64
	// filled is what became of the fills that the member asked for with the round.
	filled []bool
}

// Repeat is a command that may have been done before.
type Repeat struct {
	Command fsm.Command
	// Result is what came of it then, if it is one that fsm.MayBeRepeated.
	Result fsm.Result
	Done   bool // there is a Result
}

// Read asks for a confirm round that begins after this call.
func (r *Replica) Read(q *Read) {
	q.born = r.ticks
	if r.lead != nil {
		r.lead.read(q)
		return
	}
	r.relay.asks.read(q)
}

// read is Read at the leader, for a client of this member.
func (l *leadership) read(q *Read) {
	if q.Fill != nil {
		l.gate.fill(q.Fill, directory.Origin{Member: l.m.cfg.ID})
	}
	l.rounds.Next.reads = append(l.rounds.Next.reads, q)
}

// round is what one confirm round serves.
type round struct {
	reads    []*Read
	renewals []Renewal
	together []*Renewals
	opens    []OpenCache
}

// Empty implements confirm.Batch.
func (b round) Empty() bool {
	return len(b.reads)+len(b.renewals)+len(b.together)+len(b.opens) == 0
}

// Emptied implements confirm.Batch.
func (b round) Emptied() round {
	clear(b.reads)
	clear(b.renewals)
	clear(b.together)
	clear(b.opens)
	return round{
		reads: b.reads[:0], renewals: b.renewals[:0], together: b.together[:0],
		opens: b.opens[:0],
	}
}

// release answers the rounds whose index has been applied.
func (l *leadership) release() {
	for !l.m.machine.Midway() { // else a reader of leases would see half of a deletion
		b, index, ok := l.rounds.Release(l.m.machine.Index())
		if !ok {
			return
		}
		for _, q := range b.reads {
			left := l.m.left(q.Leases)
			if q.from != 0 {
				l.remotes.confirmed(q, index, left)
				continue
			}
			q.Left = left
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
		l.rounds.Reuse(b)
	}
}

// left says how long leases will certainly live. Only a primary knows.
func (m *local) left(ids []lease.ID) []Left {
	out := make([]Left, len(ids))
	for i, id := range ids {
		if info, ok := m.lessor.Lookup(id); ok {
			out[i].TTL, _ = m.lessor.Remaining(id)
			out[i].Found = !info.Delayed
		}
	}
	return out
}
