package replica

import (
	"leasehold.dev/internal/directory"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// Read waits for a confirm round. Take returns it once. Either the readable state includes
// everything that was acknowledged before Read was called, or Err is set.
type Read struct {
	// Inspect, if not nil, is called with the lessor when the round is done, before Take returns.
	// It must be quick, and must copy anything that it retains.
	Inspect func(*lease.Lessor)
	// Leases lists leases whose remaining time the leader must report. Left holds the answers in
	// the same order: the minimum time that each lease has left to live. It is set before Inspect
	// is called.
	Leases []lease.ID
	Left   []Left
	// Fill, if not nil, requests permission to cache the result.
	Fill *Fill
	// Repeat, if not nil, requests the outcome of a command.
	Repeat *Repeat
	Err    error
	// Owner is set by the caller to identify the request.
	Owner any

	born uint64 // tick at which it arrived
	// from is the member that requested the read, and round is that member's number for the round.
	// Both are 0 if a client of this member requested it.
	from, round uint64
	// filled is the outcome of the fills that the member sent with the round.
	filled []bool
}

// Repeat is a command that may have been applied before.
type Repeat struct {
	Command fsm.Command
	// Result is the outcome of the earlier application, if fsm.MayBeRepeated accepts the command.
	Result fsm.Result
	Done   bool // whether there is a Result
}

// Read requests a confirm round that begins after this call.
func (r *Replica) Read(q *Read) {
	q.born = r.ticks
	if r.lead != nil {
		r.lead.read(q)
		return
	}
	r.relay.asks.read(q)
}

// read handles a Read at the leader for a client of this member.
func (l *leadership) read(q *Read) {
	if q.Fill != nil {
		l.gate.fill(q.Fill, directory.Origin{Member: l.m.cfg.ID})
	}
	l.rounds.next.reads = append(l.rounds.next.reads, q)
}

// left returns the minimum time that each lease has left to live. Only a primary can determine
// this.
func left(l *lease.Lessor, ids []lease.ID) []Left {
	out := make([]Left, len(ids))
	for i, id := range ids {
		if info, ok := l.Lookup(id); ok {
			out[i].TTL, _ = l.Remaining(id)
			out[i].Found = !info.Delayed
		}
	}
	return out
}
