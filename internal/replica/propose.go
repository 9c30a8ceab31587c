package replica

import (
	"leasehold.dev/internal/directory"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// Proposal is a command on its way through the log, and its outcome. Take returns it once, when
// Result or Err is set.
type Proposal struct {
	Command fsm.Command
	Result  fsm.Result
	// Err is the reason if there is no result.
	Err error
	// Index is the index of the entry in which it was applied, 0 if it was not. Wait is how it
	// waited for caches before that, if this member was the leader.
	Index uint64
	Wait  CacheWait
	// Trace is the trace of the command, or nil. It goes to the leader with the command. Arrived is
	// when another member's command arrived at this leader, see [Forward].
	Trace   *Trace
	Arrived int64
	// Owner belongs to the caller, to identify the request.
	Owner any
	// internal is set for the leader's own commands, which no client waits for.
	internal *internal
	// origin is the member that forwarded the command, and its number there.
	origin fsm.Origin
	born   uint64 // the tick at which it arrived
	// write is the gate's record of it, while needed.
	write *directory.Write
}

// CacheWait describes how a command waited for caches. The zero value means that it did not.
type CacheWait struct {
	For   lease.TTL
	Until lease.Instant
	// Drops is the number of invalidations that it waited for; for a command that changes one key,
	// the number of caches. Last is the lease of the last cache, 0 if there was none.
	Drops int
	Last  lease.ID
}

// Trace is the context of a trace: its ID, and that of the span of a command. The replica does not
// interpret it.
type Trace struct {
	ID   [16]byte
	Span [8]byte
}

// From returns the member that forwarded the command, 0 for this one.
func (p *Proposal) From() uint64 { return p.origin.Member }

// internal is the leader's record of a timer's command until its outcome is known.
type internal struct {
	decided lease.Instant // when an expiry was decided
	single  *single       // if it expires a lease separately
	clears  *Renewal      // waits for the entry that clears a checkpoint
}

// setsVersion reports whether a proposal changes the cluster version.
func (p *Proposal) setsVersion() bool {
	_, ok := fsm.Inner(p.Command).(*fsm.SetVersion)
	return ok
}

// Propose proposes a command from a client of this member. It is answered when its entry is applied
// here, so that a client reads its own write on any member. A command that is certain to be lost
// with its leader is proposed again. Internal commands are rejected, whichever member sends them
// (T1).
func (r *Replica) Propose(p *Proposal) {
	p.born = r.ticks
	switch {
	case !fsm.Readable(p.Command):
		r.out.refuse(p, fsm.ErrUnreadable)
	case r.lead != nil:
		r.lead.propose(p)
	case fsm.Internal(p.Command):
		r.out.refuse(p, ErrInternal)
	default:
		r.relay.commands.propose(p)
	}
}
