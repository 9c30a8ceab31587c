package replica

import (
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica/silence"
	"leasehold.dev/lease"
)

// Config configures a Replica.
type Config struct {
	// ID is the member's ID, never 0.
	ID uint64
	// FirstSeq is this member's first number for forwarded commands, reads and renewals. It is
	// random, so that it differs from the numbers of every earlier incarnation of the member.
	// Otherwise the leader's answer to an earlier incarnation could be mistaken for an answer to
	// this one.
	FirstSeq uint64
	// Log is the log on disk. When Persisted is called for an append message returned by Take, the
	// message must be visible in Log.
	Log raft.Storage
	// Machine is the state as of the snapshot in Log.
	Machine *fsm.Machine
	// ElectionTicks and HeartbeatTicks are measured in calls to Tick.
	ElectionTicks, HeartbeatTicks int
	// NoPreVote lets a member raise the term without first checking whether it could win.
	NoPreVote bool
	// Silence configures when a member that sends no messages counts as unresponsive. The zero
	// value leaves that to Raft's election timeout. NoPreVote has the same effect, because without
	// the pre-vote, one mistaken member would depose a healthy leader.
	Silence silence.Config
	// MaxBatch is the approximate maximum size of an entry, in bytes.
	MaxBatch int
	// MaxExpire is the maximum number of leases that one entry expires. It bounds how long other
	// requests wait while the entry is applied.
	MaxExpire int
	// MaxUncommitted bounds the number of bytes in entries that are proposed but not yet committed.
	// Further commands are rejected with ErrOverloaded rather than queued. 0 means 256 MiB.
	MaxUncommitted uint64
	// CommitDelay makes commands wait briefly for other commands that can share their sync. When
	// Delayed returns true, the shell calls EndDelay a short time later.
	CommitDelay bool
	// RefuseForwarded reports whether this leader currently rejects commands from other members
	// with ErrOverloaded. The caller checks its own clients' commands before calling Propose. If
	// RefuseForwarded is nil, no command is rejected.
	RefuseForwarded func() bool
	// Membership configures which membership changes are rejected.
	Membership Membership
	// CompareTicks is how often a leader compares the members' states, in ticks; 0 means never.
	CompareTicks uint64
	// Logger receives the Raft library's log. It is required, because the library calls it to
	// panic.
	Logger raft.Logger
}

// Membership configures which membership changes are rejected.
type Membership struct {
	// Strict rejects changes that the currently connected voters could not commit.
	Strict bool
	// Stable is how long a voter must have been in uninterrupted contact before it counts as
	// connected when a member is added.
	Stable lease.TTL
	// MaxLearners is the maximum number of learners; 0 means no limit.
	MaxLearners int
	// MaxLag is how many entries a learner can lag behind when it is promoted.
	MaxLag uint64
}

// maxUncommitted is the default for Config.MaxUncommitted.
const maxUncommitted = 256 << 20

// maxInflightBytes bounds the bytes sent to one member that the member has not acknowledged yet.
const maxInflightBytes = 32 << 20

// Replica is one member of the Raft group. It is not safe for concurrent use: one goroutine owns
// it.
//
// It ties together parts that do not refer to one another. Each part takes values and returns
// values, or appends to the output. lead is the state that this member has only while it leads.
// relay holds this member's requests to the leader when another member leads.
type Replica struct {
	*local
	raft     *driver
	lead     *leadership // nil unless this member leads
	relay    relay
	inflight inflight     // this member's entries in the log
	incoming *fsm.Machine // state from a received snapshot, until that snapshot is on disk
	links    links
	failover failover
	silence  *silence.Watch // nil if Config.Silence is disabled
	slow     slowCaches
	scratch  scratch
	// lastRound is the last confirm round of the earlier terms that this member led, and lastGroup
	// is the newest lease group.
	lastRound uint64
	lastGroup lease.GroupID
}

// New returns a replica that continues from the contents of Config.Log and Config.Machine.
func New(c Config) (*Replica, error) {
	m := &local{cfg: c, machine: c.Machine, lessor: c.Machine.Lessor()}
	d, err := newDriver(&m.cfg)
	if err != nil {
		return nil, err
	}
	m.term = d.node.BasicStatus().HardState.GetTerm()
	first := max(c.FirstSeq, 1) // 0 means no number
	r := &Replica{
		local: m, raft: d, relay: newRelay(m, first),
		links: links{self: c.ID, timeout: uint64(c.ElectionTicks)},
	}
	if c.Silence.Heartbeat > 0 && !c.NoPreVote {
		r.silence = silence.New(c.Silence)
	}
	r.stopIfDamaged()
	return r, nil
}

// Machine returns the state machine. A received snapshot replaces it (see [Output.Restored]).
func (r *Replica) Machine() *fsm.Machine { return r.machine }

// Campaign starts an election immediately instead of after the election timeout. A sole voter calls
// it at startup, because there is no other voter to wait for.
func (r *Replica) Campaign() error {
	return r.raft.node.Campaign()
}

// Advance moves the clock to now. It must be called with a fresh reading before any other input of
// the same step, so that no timestamp is earlier than the arrival of its input (rule 1). The clock
// is boot time, which keeps running during suspend.
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
	r.slow.tick(r.ticks, uint64(r.cfg.ElectionTicks))
	if r.lead != nil {
		r.lead.raiseVersion()
		r.lead.compare()
	}
	r.forgetRemoved()
}

// Step handles a message from another member. After it returns [ErrImpossible], the replica must
// not be used.
func (r *Replica) Step(m *Message) error {
	r.received(m)
	switch {
	case m.Forward != nil:
		r.stepForward(m.From, m.Forward)
		return nil
	case m.Reply != nil:
		r.stepReply(m.From, m.Reply)
		return nil
	}
	if t := m.Raft.GetType(); !fromOutside(t) {
		return fmt.Errorf("%w: member %x sent a %s, which members never send to each other",
			ErrMessage, m.From, t)
	}
	return r.raft.step(m.Raft, r.role)
}

// stepForward handles requests from another member's clients.
func (r *Replica) stepForward(from uint64, f *Forward) {
	if r.lead == nil || f.Term != r.term {
		return // the member will find the leader and resend its requests to it
	}
	r.lead.forwarded(from, f)
}

// stepReply handles the leader's answer.
func (r *Replica) stepReply(from uint64, m *Reply) {
	if from != r.leader || m.Term != r.term {
		return // from a former leader
	}
	if m.AboutSlow {
		r.slow.set(m.Slow, r.ticks)
	}
	r.relay.answered(m)
}

// Persisted reports to the replica that a message from Output.Append is durable. It must be called
// in the order that Take returned the messages.
func (r *Replica) Persisted(m *raftpb.Message) {
	r.raft.persisted(m)
	if s := m.GetSnapshot(); !raft.IsEmptySnap(s) {
		r.install(s)
	}
	r.raft.respond(m, &r.out)
}

// Recount restarts the countdowns of silent leases: see [lease.Lessor.Recount]. The member's loop
// calls it when the clock may not have measured the time since the last Advance, for example after
// a suspend (T10). It does so whether or not the member leads. On a leader, Refresh must also be
// called.
func (r *Replica) Recount() { r.lessor.Recount() }

// Refresh restores every lease, except silent ones, to its full TTL, counted from now, as a
// promotion does. The member's loop calls it after a Recount, and after the member has paused for
// long enough to keep holders from renewing (T10).
func (r *Replica) Refresh() {
	if r.lead != nil {
		r.lead.distrust()
	}
}

// CheckpointAll replicates the current remaining time of each silent lease, because this leader is
// about to stop. If all members stop, only the log survives. CheckpointAll calls done when it has
// finished, or immediately if this member does not lead.
func (r *Replica) CheckpointAll(done func()) {
	if !r.primary {
		done()
		return
	}
	r.lead.expiry.checkpointAll(done)
}

// Next returns the earliest instant at which Take may have work to do even if no input arrives. It
// returns false if there is no such instant.
func (r *Replica) Next() (lease.Instant, bool) {
	if r.raft.backlog.any() {
		return r.now, true
	}
	at, ok := r.failover.at, r.failover.at != 0
	if r.lead != nil {
		at, ok = r.lead.expiry.next(r.now)
		at, ok = r.lead.gate.next(r.now, at, ok)
	} else if leave, any := r.relay.asks.next(); any && (!ok || leave < at) {
		at, ok = leave, true
	}
	if r.silence != nil {
		if look, any := r.silence.Next(); any && (!ok || look < at) {
			return look, true
		}
	}
	return at, ok
}

// Status is a replica's view of the group.
type Status struct {
	Term, Leader     uint64
	Index, Applied   uint64
	Leading, Primary bool
	Pending          int
	// Overdue is how long ago the most overdue lease expired; 0 if none is overdue (T12).
	Overdue lease.TTL
	// Refreshing is true while Refresh waits for the outcome of earlier decisions in the log.
	Refreshing bool
	// Elections is the number of elections that this member has started.
	Elections uint64
}

// Status returns the replica's state as of the last call to Take.
func (r *Replica) Status() Status {
	out := Status{
		Term: r.term, Leader: r.leader, Index: r.raft.committed, Applied: r.machine.Index(),
		Leading: r.leading, Primary: r.primary, Elections: r.raft.elections,
		Pending: len(r.inflight) + len(r.relay.commands.sent),
	}
	if l := r.lead; l != nil {
		out.Pending += len(l.queue.waiting)
		out.Refreshing = l.expiry.refresh
		out.Overdue = max(l.expiry.overdue(r.now), l.gate.singles.overdue(r.now))
	}
	return out
}

// ConfState returns the group's configuration as of the last applied entry.
func (r *Replica) ConfState() *raftpb.ConfState { return r.raft.conf }

// Delayed reports whether commands are waiting only because of the commit delay. If so, the shell
// calls EndDelay after roughly the time that one or two syncs take.
func (r *Replica) Delayed() bool {
	return r.lead != nil && r.lead.queue.delayed(r.raft.appending, r.now)
}

// EndDelay ends the commit delay.
func (r *Replica) EndDelay() {
	if r.lead != nil {
		r.lead.queue.delay.end()
	}
}
