package replica

import (
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// local is the state that the leadership and the relay, with its forwarder and its asker, share
// with the Replica: this member's configuration, clocks and role, the applied state, and the output
// of the next Take. They read it, and append to out. The other parts take the values that they
// need.
type local struct {
	cfg Config
	times
	role
	machine *fsm.Machine
	lessor  *lease.Lessor // the machine's lessor
	out     output
}

// times holds the latest clock readings.
type times struct {
	now   lease.Instant
	ticks uint64
}

// role is the role of this member.
type role struct {
	term    uint64
	leader  uint64 // ID of the leader; 0 if unknown
	leading bool   // this member is the leader of term
	primary bool   // this member has applied an entry of term, so its tracker is running
}

// output collects the results for the next Take, and keeps the last Output that Take returned.
type output struct {
	Output
	given Output
}

// take returns the collected output and starts a new one.
func (o *output) take() Output {
	out := o.Output
	*o = output{Output: o.given.emptied(), given: out}
	return out
}

// emptied returns an empty Output that reuses the memory of o, which is no longer in use.
func (o *Output) emptied() Output {
	clear(o.Append)
	clear(o.Proposals)
	clear(o.Reads)
	clear(o.Renewals)
	clear(o.Together)
	clear(o.Groups)
	return Output{
		Append: o.Append[:0], Proposals: o.Proposals[:0], Reads: o.Reads[:0],
		Renewals: o.Renewals[:0], Together: o.Together[:0],
		Groups: o.Groups[:0],
	}
}

// send sends a request or a reply to another member, unless msg is nil. Unless the message sets a
// version, the version of the term is used.
func (m *local) send(msg *Message) {
	if msg == nil {
		return
	}
	msg.From = m.cfg.ID
	if msg.Version == 0 {
		msg.Version = m.version()
	}
	m.out.Send = append(m.out.Send, msg)
}

// refuse rejects a command from a client of this member.
func (o *output) refuse(p *Proposal, err error) {
	p.Err = err
	o.Proposals = append(o.Proposals, p)
}

// refuseRead rejects a read from a client of this member.
func (o *output) refuseRead(q *Read, err error) {
	q.Err = err
	o.Reads = append(o.Reads, q)
}

// renewed answers a renewal from a client of this member.
func (o *output) renewed(n Renewal, ttl lease.TTL, err error) {
	n.TTL, n.Err = ttl, err
	o.Renewals = append(o.Renewals, n)
}

// refuseOpen rejects an OpenCache from a client of this member.
func (o *output) refuseOpen(c OpenCache, err error) {
	c.Err = err
	o.Opened = append(o.Opened, c)
}

// finish answers a read from a client of this member, once the state is new enough.
func (m *local) finish(q *Read) {
	if q.Inspect != nil {
		q.Inspect(m.lessor)
	}
	if r := q.Repeat; r != nil {
		r.Result, r.Done = m.machine.Repeated(r.Command)
	}
	m.out.Reads = append(m.out.Reads, q)
}

// voter reports whether a member is a voter.
func voter(v *fsm.View, id uint64) bool {
	n, ok := v.Member(id)
	return ok && !n.Learner
}
