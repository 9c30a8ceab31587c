package replica

import (
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica/silence"
	"leasehold.dev/lease"
)

// Config is all a Replica needs from the start.
type Config struct {
	// ID is the member's, never 0.
	ID uint64
	// FirstSeq is where this member's numbers of forwarded commands, reads and renewals begin.
	// It is a random number, so that no earlier incarnation of the member used the same numbers:
	// otherwise an answer of the leader to that incarnation would be taken for an answer to this
	// one.
	FirstSeq uint64
	// Log is what is on disk. Append messages that Take returned become
	// visible through it before Persisted is called for them.
	Log raft.Storage
	// Machine is the state as of the snapshot in Log.
	Machine *fsm.Machine
	// ElectionTicks and HeartbeatTicks count calls of Tick.
	ElectionTicks, HeartbeatTicks int
	// NoPreVote lets a member raise the term before it knows that it could win.
	NoPreVote bool
	// Silence says how soon members that say nothing are taken for hung or cut off. The zero value
	// leaves that to Raft's election timeout, and so does NoPreVote: without the question, one
	// member that is wrong would depose a good leader.
	Silence silence.Config
	// MaxBatch is about how many bytes one entry carries, at most.
	MaxBatch int
	// MaxExpire is how many leases one entry expires, at most: a bound on how
	// long applying it holds up the others.
	MaxExpire int
	// MaxUncommitted is how many bytes of entries may be proposed and not yet committed.
	// Beyond it commands are refused with ErrOverloaded, not queued. 0 means 256 MiB.
	MaxUncommitted uint64
	// CommitDelay lets commands wait for others that can share their sync. The shell calls
	// EndDelay a short while after Delayed says that some wait.
	CommitDelay bool
	// RefuseForwarded reports whether this leader now refuses commands from other members, with
	// ErrOverloaded. The caller checks its own clients' commands before Propose. nil refuses none.
	RefuseForwarded func() bool
	// Membership says which changes of the membership are refused.
	Membership Membership
	// CompareTicks is after how many ticks a leader has the members' states compared, each time; 0
	// for never.
	CompareTicks uint64
	// Logger receives the Raft library's log. Required: the library panics through it.
	Logger raft.Logger
}

// Membership says which changes of the membership are refused.
type Membership struct {
	// Strict refuses changes that the voters which are connected now could not carry.
	Strict bool
	// Stable is for how long a voter must have been heard to count as connected
	// when a member is added.
	Stable lease.TTL
	// MaxLearners bounds the learners; 0 means no bound.
	MaxLearners int
	// MaxLag is how many entries a learner may lag behind when it is promoted.
	MaxLag uint64
}

// maxUncommitted is what Config.MaxUncommitted is if nobody says.
const maxUncommitted = 256 << 20

// maxInflightBytes bounds what is sent to one member and not yet acknowledged.
const maxInflightBytes = 32 << 20

// Replica is one member of the Raft group. It is not safe for concurrent
// use: one goroutine owns it.
//
// It joins parts that do not know each other. Each takes values and gives values, or appends to the
// output. What this member has only while it leads is in lead, and what it has on the way to
// another leader in relay.
type Replica struct {
	*local
	raft     *driver
	lead     *leadership // nil unless this member leads
	relay    relay
	inflight inflight     // entries of this member in the log
	incoming *fsm.Machine // what a snapshot brings, until it is on disk
	links    links
	failover failover
	silence  *silence.Watch // nil if Config.Silence watches nobody
	slow     slowCaches
	scratch  scratch
	// lastRound is the last confirm round of the terms in which this member led before.
	lastRound uint64
}

// New returns a replica that goes on from what Config.Log and
// Config.Machine hold.
func New(c Config) (*Replica, error) {
	m := &local{cfg: c, machine: c.Machine, lessor: c.Machine.Lessor()}
	d, err := newDriver(m)
	if err != nil {
		return nil, err
	}
	m.term = d.node.BasicStatus().HardState.GetTerm()
	first := max(c.FirstSeq, 1) // 0 means none
	r := &Replica{
		local: m, raft: d, relay: newRelay(m, first),
		links: links{m: m}, failover: failover{m: m}, slow: slowCaches{m: m},
	}
	if c.Silence.Heartbeat > 0 && !c.NoPreVote {
		r.silence = silence.New(c.Silence)
	}
	r.stopIfDamaged()
	return r, nil
}

// Machine returns the state. It is another one after a snapshot was received
// (see [Output.Restored]).
func (r *Replica) Machine() *fsm.Machine { return r.machine }

// Campaign asks to be elected now rather than after the election timeout. A
// sole voter calls it at start, since it has nobody to wait for.
func (r *Replica) Campaign() error {
	return r.raft.node.Campaign()
}

// Advance moves the clock to now. It must be called with a fresh reading
// before any other input of the same step, so that nothing that came in is
// stamped with an instant before its arrival (rule 1). The clock is
// boot time: it runs through suspend.
func (r *Replica) Advance(now lease.Instant) {
	r.now = now
	r.lessor.Advance(now)
	if r.silence != nil {
		r.silence.Advance(now)
	}
}

// Tick advances Raft's logical clock by one.
func (r *Replica) Tick() {
	r.ticks++
	r.raft.node.Tick()
	r.relay.tick()
	r.slow.tick()
	if r.lead != nil {
		r.lead.raiseVersion()
		r.lead.compare()
	}
	r.forgetLeft()
}

// Step takes a message from another member. After an [ErrImpossible] the replica must not be
// used any more.
func (r *Replica) Step(m *Message) error {
	r.heard(m)
	switch {
	case m.Forward != nil:
		r.stepForward(m.From, m.Forward)
		return nil
	case m.Reply != nil:
		r.stepReply(m.From, m.Reply)
		return nil
	}
	if t := m.Raft.GetType(); !fromOutside(t) {
		return fmt.Errorf("%w: member %x sent a %s, which members do not send each other",
			ErrMessage, m.From, t)
	}
	return r.raft.step(m.Raft)
}

// stepForward takes what another member's clients ask of this leader.
func (r *Replica) stepForward(from uint64, f *Forward) {
	if r.lead == nil || f.Term != r.term {
		return // the member will learn who leads, and ask that one
	}
	r.lead.forwarded(from, f)
}

// stepReply takes the leader's answer.
func (r *Replica) stepReply(from uint64, m *Reply) {
	if from != r.leader || m.Term != r.term {
		return // of a leader that is none any more
	}
	if m.AboutSlow {
		r.slow.set(m.Slow)
	}
	r.relay.answered(m)
}

// Persisted says that an append message of Output.Append is durable, in the
// order in which Take returned them.
func (r *Replica) Persisted(m *raftpb.Message) {
	r.raft.persisted(m)
	if s := m.GetSnapshot(); !raft.IsEmptySnap(s) {
		r.install(s)
	}
	r.raft.respond(m)
}

// Recount begins the countdowns of silent leases anew: see [lease.Lessor.Recount]. The member's
// loop calls it, leader or not, when the clock cannot be trusted to have measured the time since
// the last Advance, after the machine was suspended, say (T10). A leader is to Refresh then, too.
func (r *Replica) Recount() { r.lessor.Recount() }

// Refresh gives every lease its full TTL from now, as a promotion does, but for those that are
// silent. The member's loop calls it after a Recount, and after it stood still for so long that
// holders could not renew (T10).
func (r *Replica) Refresh() {
	if r.lead != nil {
		r.lead.distrust()
	}
}

// CheckpointAll replicates what now remains of each lease that is known to be silent, because
// this leader is about to stop: if all members do, only what is in the log is remembered. It
// calls done once that is so, or when this member does not lead.
func (r *Replica) CheckpointAll(done func()) {
	if !r.primary {
		done()
		return
	}
	r.lead.expiry.checkpointAll(done)
}

// Next returns the earliest instant at which Take may have something to do
// that no input brought, and false if there is none in sight.
func (r *Replica) Next() (lease.Instant, bool) {
	if r.raft.backlog.any() {
		return r.now, true
	}
	at, ok := r.failover.at, r.failover.at != 0
	if r.lead != nil {
		at, ok = r.lead.gate.next(r.lead.expiry.next())
	}
	if r.silence != nil {
		if look, any := r.silence.Next(); any && (!ok || look < at) {
			return look, true
		}
	}
	return at, ok
}

// Status is what a replica knows of the group.
type Status struct {
	Term, Leader     uint64
	Index, Applied   uint64
	Leading, Primary bool
	Pending          int
	// Overdue is for how long the lease that waits longest to be expired has been
	// past its expiry; 0 if none does (T12).
	Overdue lease.TTL
	// Refreshing says that Refresh was called, and waits for what was decided before.
	Refreshing bool
	// Elections is how many this member has begun.
	Elections uint64
}

// Status returns the replica's state as of the last call of Take.
func (r *Replica) Status() Status {
	out := Status{
		Term: r.term, Leader: r.leader, Index: r.raft.committed, Applied: r.machine.Index(),
		Leading: r.leading, Primary: r.primary, Elections: r.raft.elections,
		Pending: len(r.inflight) + len(r.relay.commands.sent),
	}
	if l := r.lead; l != nil {
		out.Pending += len(l.queue.waiting)
		out.Refreshing = l.expiry.refresh
		out.Overdue = max(l.expiry.overdue(), l.gate.singles.overdue(r.now))
	}
	return out
}

// ConfState returns the group's configuration as of the last applied entry.
func (r *Replica) ConfState() *raftpb.ConfState { return r.raft.conf }

// Delayed reports whether commands wait for others to come, and for nothing else. The
// shell then calls EndDelay, after about the time that a sync or two take.
func (r *Replica) Delayed() bool { return r.lead != nil && r.lead.queue.delayed(r.raft.appending) }

// EndDelay says that commands have waited long enough for others.
func (r *Replica) EndDelay() {
	if r.lead != nil {
		r.lead.queue.delay.End()
	}
}
