package replica

import (
	"leasehold.dev/internal/directory"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// Proposal is a command on its way through the log, with its outcome. Take returns it once, when
// Result or Err is set.
type Proposal struct {
	Command fsm.Command
	Result  fsm.Result
	// Err is the reason why there is no result.
	Err error
	// Index is the index of the entry that applied the command, or 0 if none did. If this member
	// was the leader, Wait describes how the command waited for caches before it was applied.
	Index uint64
	Wait  CacheWait
	// Trace is the trace of the command, or nil. It is sent to the leader with the command. Arrived
	// is when a forwarded command arrived at this leader; see [Forward].
	Trace   *Trace
	Arrived int64
	// Owner is set by the caller to identify the request.
	Owner any
	// internal is set for the leader's own commands. No client waits for them.
	internal *internal
	// origin identifies the member that forwarded the command, and that member's number for it.
	origin fsm.Origin
	born   uint64 // tick at which it arrived
	// write is the gate's record of the command while the gate needs it.
	write *directory.Write
}

// CacheWait describes how a command waited for caches. The zero value means that it did not wait.
type CacheWait struct {
	For   lease.TTL
	Until lease.Instant
	// Drops is the number of invalidations that the command waited for. For a command that changes
	// one key, this is the number of caches that it waited for. Last is the lease of the last
	// cache; 0 if there was none.
	Drops int
	Last  lease.ID
}

// Trace is the context of a trace: the trace's ID, and the ID of a command's span. The replica does
// not interpret it.
type Trace struct {
	ID   [16]byte
	Span [8]byte
}

// From returns the member that forwarded the command, or 0 for this member.
func (p *Proposal) From() uint64 { return p.origin.Member }

// internal is the leader's record of one of its own commands. It is kept until the outcome is
// known.
type internal struct {
	decided lease.Instant // when the expiry was decided
	single  *single       // set if the command expires one lease separately from the others
	clears  *Renewal      // the renewal that waits for this command to clear a checkpoint
}

// setsVersion reports whether a proposal changes the cluster version.
func (p *Proposal) setsVersion() bool {
	_, ok := fsm.Inner(p.Command).(*fsm.SetVersion)
	return ok
}

// Propose proposes a command from a client of this member. The command is answered when its entry
// is applied on this member, so a client can read its own write on any member. If a command is
// certain to have been lost with its leader, it is proposed again. Internal commands are rejected,
// even from another member (T1).
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
