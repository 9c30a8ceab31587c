package replica

import (
	"encoding/binary"

	"go.etcd.io/raft/v3"

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
	Err  error
	// Owner is the caller's, to find who waits.
	Owner any

	born uint64 // the tick at which it came
	// from is the member that asked for the round with the number; 0 if it was a
	// client of this one.
	from, round uint64
	// filled is what became of the fills that the member asked for with the round.
	filled []bool
}

// Read asks for a confirm round that begins after this call.
func (r *Replica) Read(q *Read) {
	q.born = r.ticks
	switch {
	case r.leading:
		if q.Fill != nil {
			r.register(q.Fill, origin{Member: r.cfg.ID})
		}
		r.reads.next.reads = append(r.reads.next.reads, q)
	case r.asks.full():
		q.Err = ErrOverloaded
		r.out.Reads = append(r.out.Reads, q)
	default:
		r.asks.reads = append(r.asks.reads, q)
	}
}

// round is what one confirm round serves.
type round struct {
	id       uint64
	index    uint64 // the round is done when this is applied
	reads    []*Read
	renewals []Renewal
	together []*Renewals
	opens    []OpenCache
}

func (b *round) empty() bool {
	return len(b.reads)+len(b.renewals)+len(b.together)+len(b.opens) == 0
}

// confirmQueue runs one confirm round at a time. Who comes while a round is
// under way waits for the next, since a promise is confirmed only by a round
// that began after it was made (DESIGN 2.4).
type confirmQueue struct {
	next    round   // gathers who waits for a round to begin
	current *round  // asked, not yet confirmed
	done    []round // confirmed, until their index is applied
	last    uint64  // id of the last round begun
	idle    int     // ticks since current was asked
	spare   round   // empty, with the memory of one that is over
	// early are batches that came before this member was primary, for which it can
	// promise nothing yet.
	early []*Renewals
}

// begin starts a round if anybody waits and none is under way.
func (q *confirmQueue) begin(r *Replica) {
	if q.current != nil || q.next.empty() || !r.primary {
		return
	}
	q.last++
	b := q.next
	b.id = q.last
	q.next, q.spare = q.spare, round{}
	q.current, q.idle = &b, 0
	q.ask(r)
}

func (q *confirmQueue) ask(r *Replica) {
	r.raft.ReadIndex(binary.BigEndian.AppendUint64(nil, q.current.id))
}

// tick asks again when the round's messages seem lost.
func (q *confirmQueue) tick(r *Replica) {
	if q.current == nil {
		return
	}
	if q.idle++; q.idle >= r.cfg.HeartbeatTicks*2 {
		q.idle = 0
		q.ask(r)
	}
}

// confirmed takes Raft's word that a round is done.
func (q *confirmQueue) confirmed(s raft.ReadState) {
	if q.current == nil || binary.BigEndian.Uint64(s.RequestCtx) != q.current.id {
		return
	}
	q.current.index = s.Index
	q.done = append(q.done, *q.current)
	q.current = nil
}

// release answers the rounds whose index has been applied.
func (q *confirmQueue) release(r *Replica) {
	for len(q.done) > 0 && q.done[0].index <= r.machine.Index() {
		b := q.done[0]
		q.done = q.done[1:]
		for _, read := range b.reads {
			if read.from != 0 {
				r.finishRemote(read, b.index)
				continue
			}
			read.Left = r.left(read.Leases)
			r.finish(read)
		}
		for i := range b.renewals {
			r.settle(b.renewals[i])
		}
		for _, all := range b.together {
			r.settleAll(all)
		}
		for i := range b.opens {
			r.opened(b.opens[i])
		}
		q.spare = b.emptied()
	}
}

// emptied returns an empty round with the memory of one that is over.
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

// left says how long leases will certainly live. Only a primary knows.
func (r *Replica) left(ids []lease.ID) []Left {
	if len(ids) == 0 {
		return nil
	}
	out := make([]Left, len(ids))
	for i, id := range ids {
		if info, ok := r.lessor.Lookup(id); ok {
			out[i].TTL, _ = r.lessor.Remaining(id)
			out[i].Found = !info.Delayed
		}
	}
	return out
}

// hand takes everything that waits out of the queue, because this member no
// longer leads: what its own clients asked is asked of the next leader.
// Promises that were made and not yet released are forgotten.
func (q *confirmQueue) hand(r *Replica) {
	all := q.done
	if q.current != nil {
		all = append(all, *q.current)
	}
	all = append(all, q.next)
	q.done, q.next, q.current = nil, round{}, nil
	for _, b := range all {
		for _, read := range b.reads {
			if read.from != 0 {
				continue
			}
			if read.Fill != nil {
				read.Fill.Term = 0
			}
			r.asks.reads = append(r.asks.reads, read)
		}
		for _, o := range b.opens {
			if o.from == 0 {
				r.asks.caches.opens = append(r.asks.caches.opens, o)
			}
		}
		r.handRenewals(b.renewals)
		for _, all := range b.together {
			r.handAll(all)
		}
	}
	for _, all := range q.early {
		if all.from == 0 {
			r.asks.batches.add(all)
		}
	}
	q.early = nil
	r.handRenewals(r.parked.takeAll(r.ticks))
}

func (r *Replica) handRenewals(renewals []Renewal) {
	for i := range renewals {
		if n := renewals[i]; n.from == 0 {
			n.TTL, n.token = 0, 0
			r.asks.renewals = append(r.asks.renewals, n)
		}
	}
}
