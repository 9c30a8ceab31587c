package replica

import (
	"leasehold.dev/internal/directory"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// Proposal is a command on its way through the log, and its outcome. Take
// returns it once, when Result or Err is set.
type Proposal struct {
	Command fsm.Command
	Result  fsm.Result
	// Err says why there is no result.
	Err error
	// Index is that of the entry in which it was applied, 0 if it was not, and Wait how it had to
	// wait for caches before, as far as this member knows: if it led.
	Index uint64
	Wait  CacheWait
	// Trace is the trace that it is part of, nil for none. It goes to the leader with the command.
	// Arrived is when another member's came to this leader, see [Forward].
	Trace   *Trace
	Arrived int64
	// Owner is the caller's, to find what waits.
	Owner any
	// internal is not nil for the leader's own commands, which nobody waits for.
	internal *internal
	// origin is the member that forwarded the command, and its number there.
	origin fsm.Origin
	born   uint64 // the tick at which it came
	// write is what the gate knows of it, while that has to.
	write *directory.Write
}

// CacheWait is how a command had to wait for caches. The zero value says that it had not to.
type CacheWait struct {
	For   lease.TTL
	Until lease.Instant
	// Drops is for how many drops of caches it waited: of a command that changes one key, for how
	// many caches. Last is the lease of the cache that was the last, 0 if there was none.
	Drops int
	Last  lease.ID
}

// Trace is the context of a trace: its ID, and that of the span that a command belongs to. The
// replica does not look into it.
type Trace struct {
	ID   [16]byte
	Span [8]byte
}

// From returns the member that forwarded the command, 0 for this one.
func (p *Proposal) From() uint64 { return p.origin.Member }

// internal is what the leader keeps of a command of its timers until the outcome is known.
type internal struct {
	decided lease.Instant // when an expiry was
	single  *single       // if it expires a lease by itself
	clears  *Renewal      // waits for the entry that clears a checkpoint
}

// setsVersion reports whether a proposal changes the cluster version.
func (p *Proposal) setsVersion() bool {
	_, ok := fsm.Inner(p.Command).(*fsm.SetVersion)
	return ok
}

// Propose takes a command from a client of this member. It is answered when its entry is applied
// here, so that a client reads its own write, on any member. A command that is certain to have been
// lost with its leader is proposed again. Internal commands are refused, whichever member sent them
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
