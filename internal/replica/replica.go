package replica

import (
	"cmp"
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// Config is all a Replica needs from the start.
type Config struct {
	// ID is the member's, never 0.
	ID uint64
	// FirstSeq is where this member's numbers of forwarded commands, reads and renewals
	// begin. It must be such that no earlier life of the member used the same numbers: a
	// random one. Else what the leader answers to that life would be taken for an answer.
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
	// MaxBatch is about how many bytes one entry carries, at most.
	MaxBatch int
	// MaxExpire is how many leases one entry expires, at most: a bound on how
	// long applying it holds up the others.
	MaxExpire int
	// MaxUncommitted is how many bytes of entries may be proposed and not yet committed.
	// Beyond it commands are refused with ErrOverloaded, not queued. 0 means 256 MiB.
	MaxUncommitted uint64
	// Gather lets commands wait for others to share their sync with: the shell calls Hurry
	// a short while after Held says that some do.
	Gather bool
	// Membership says which changes of the membership are refused.
	Membership Membership
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
type Replica struct {
	cfg  Config
	raft node
	state
	conf *raftpb.ConfState
	times
	role
	committed uint64 // index of the last entry that is known to be

	gate    gate
	changes memberQueue // changes of the membership that are not yet proposed
	pipeline

	reads    confirmQueue
	parked   parking // of expiring leases, until the outcome is known
	timers   timers
	forward  forwarder // commands for another leader
	asks     relay     // reads and renewals for another leader
	remotes  []*remote // who forwards to this leader, in ID order
	failover failover
	slow     slowCaches
	out      output
	scratch  scratch
}

// state is what this member has applied.
type state struct {
	machine  *fsm.Machine
	lessor   *lease.Lessor // the machine's
	incoming *fsm.Machine  // what a snapshot brings, until it is on disk
	backlog
}

// times are what was read of clocks.
type times struct {
	now   lease.Instant
	ticks uint64
}

// role is the part that this member plays.
type role struct {
	term    uint64
	leader  uint64 // the known leader's ID, 0 for none
	leading bool   // this member is the leader of term
	primary bool   // and has applied an entry of term: its tracker runs
}

// pipeline is what is on its way into this leader's log, and through it.
type pipeline struct {
	waiting   []*Proposal // not yet proposed to Raft
	gathering gathering   // whether they wait for others
	pending   []batch     // proposed, by index
	appending int         // appends of entries that are not yet durable
	deciding  bool        // a change of the cluster version is in the log and not yet applied
	ceiling   byte        // the version that one sets which has no outcome yet, 0 if none does
	last      uint64      // index of the log's last entry, durable or not, as of the last Take
}

// batch is an entry of this member's that is in the log and not yet applied.
type batch struct {
	index, term uint64
	number      uint64 // of the first proposal, in the order in which they left the gate
	proposals   []*Proposal
}

// timers limits each internal command to one entry at a time, so that expiry
// takes its share of the log and no more (T13).
type timers struct {
	began                   uint64 // tick of the promotion
	expiring, checkpointing bool
	versioning              bool
	silence                 lease.Instant // before which no other checkpoint is proposed
	clearing                int           // entries under way that clear a checkpoint
	oldest                  lease.Instant // expiry of the first lease in the entry that expires
	// afterAll is called when the remaining time of every silent lease is replicated.
	afterAll func()
	// refresh says that the clock is not to be trusted until every lease has got its
	// full TTL again.
	refresh bool
}

// New returns a replica that goes on from what Config.Log and
// Config.Machine hold.
func New(c Config) (*Replica, error) {
	_, conf, err := c.Log.InitialState()
	if err != nil {
		return nil, fmt.Errorf("replica: read the log's state: %w", err)
	}
	rn, err := raft.NewRawNode(&raft.Config{
		ID:                        c.ID,
		ElectionTick:              c.ElectionTicks,
		HeartbeatTick:             c.HeartbeatTicks,
		Storage:                   c.Log,
		Applied:                   c.Machine.Index(),
		AsyncStorageWrites:        true,
		MaxSizePerMsg:             1 << 20,
		MaxCommittedSizePerReady:  4 << 20,
		MaxUncommittedEntriesSize: cmp.Or(c.MaxUncommitted, maxUncommitted),
		MaxInflightMsgs:           256,
		MaxInflightBytes:          maxInflightBytes,
		CheckQuorum:               true,
		PreVote:                   !c.NoPreVote,
		ReadOnlyOption:            raft.ReadOnlySafe,
		DisableProposalForwarding: true,
		StepDownOnRemoval:         true,
		Logger:                    discerning{c.Logger},
	})
	if err != nil {
		return nil, fmt.Errorf("replica: start raft: %w", err)
	}
	last, err := c.Log.LastIndex()
	if err != nil {
		return nil, fmt.Errorf("replica: find the log's end: %w", err)
	}
	first := max(c.FirstSeq, 1) // 0 means none
	hard := rn.BasicStatus().HardState
	return &Replica{
		cfg: c, raft: node{raw: rn, touched: true}, conf: conf,
		state: state{machine: c.Machine, lessor: c.Machine.Lessor()},
		role:  role{term: hard.GetTerm()}, committed: hard.GetCommit(),
		pipeline: pipeline{last: last},
		forward:  forwarder{next: first},
		asks:     relay{last: first},
	}, nil
}

// Machine returns the state. It is another one after a snapshot was received
// (see [Output.Restored]).
func (r *Replica) Machine() *fsm.Machine { return r.machine }

// Campaign asks to be elected now rather than after the election timeout. A
// sole voter calls it at start, since it has nobody to wait for.
func (r *Replica) Campaign() error {
	if err := r.raft.Campaign(); err != nil {
		return fmt.Errorf("replica: campaign: %w", err)
	}
	return nil
}

// Advance moves the clock to now. It must be called with a fresh reading
// before any other input of the same step, so that nothing that came in is
// stamped with an instant before its arrival (DESIGN 2.1). The clock is
// boot time: it runs through suspend.
func (r *Replica) Advance(now lease.Instant) {
	r.now = now
	r.lessor.Advance(now)
}

// Tick advances Raft's logical clock by one.
func (r *Replica) Tick() {
	r.ticks++
	r.raft.Tick()
	r.reads.tick(r)
	r.forward.tick(r)
	r.asks.tick(r)
	r.slow.tick(r)
	r.proposeVersion()
	r.tickNext()
}

// Step takes a message from another member. After an [ErrImpossible] the replica must not be
// used any more.
func (r *Replica) Step(m *Message) error {
	r.failover.heard(r, m.From)
	switch {
	case m.Forward != nil:
		r.stepForward(m.From, m.Forward)
		return nil
	case m.Reply != nil:
		r.stepReply(m.From, m.Reply)
		return nil
	case r.stepNext(m):
		return nil
	}
	if t := m.Raft.GetType(); !fromOutside(t) {
		return fmt.Errorf("%w: member %x sent a %s, which members do not send each other",
			ErrMessage, m.From, t)
	}
	return r.stepRaft(m.Raft)
}

// stepRaft gives Raft a message of another member, unless it makes no sense. A commit beyond
// the log's end, or another entry in the place of a committed one, makes the library panic. For
// a member whose disk has forgotten what it acknowledged that is the news that it has. Any other
// panic is a fault of this program and goes on.
func (r *Replica) stepRaft(m *raftpb.Message) (err error) {
	if err := r.vet(m); err != nil {
		return err
	}
	defer func() {
		switch said := recover().(type) {
		case nil:
		case contradiction:
			err = fmt.Errorf("%w: %s from %x: %s", ErrImpossible, m.GetType(), m.GetFrom(), said)
		default:
			panic(said) // the stack still shows where it began
		}
	}()
	if err := r.raft.Step(m); err != nil {
		return fmt.Errorf("replica: step: %w", err)
	}
	return nil
}

// Persisted says that an append message of Output.Append is durable, in the
// order in which Take returned them.
func (r *Replica) Persisted(m *raftpb.Message) {
	if len(m.GetEntries()) > 0 {
		r.appending--
	}
	if s := m.GetSnapshot(); !raft.IsEmptySnap(s) {
		r.install(s)
	}
	for _, resp := range m.GetResponses() {
		r.route(resp)
	}
}

// Recount begins the countdowns of silent leases anew: see [lease.Lessor.Recount]. The member's
// loop calls it, leader or not, when the clock cannot be trusted to have measured the time since
// the last Advance, after the machine was suspended, say (T10). A leader is to Refresh then, too.
func (r *Replica) Recount() { r.lessor.Recount() }

// Refresh gives every lease its full TTL from now, as a promotion does, but for those that are
// silent. The member's loop calls it after a Recount, and after it stood still for so long that
// holders could not renew (T10).
func (r *Replica) Refresh() {
	r.timers.refresh = r.primary
	if r.gate.caches != nil {
		r.gate.caches.Refresh(r.now)
	}
	r.recall()
	r.refresh()
}

// Next returns the earliest instant at which Take may have something to do
// that no input brought, and false if there is none in sight.
func (r *Replica) Next() (lease.Instant, bool) {
	at, ok := r.nextTimer()
	switch {
	case r.backlog.any() || r.gate.caches != nil && len(r.gate.early) > 0:
		return r.now, true
	case r.gate.caches == nil || r.timers.refresh:
		return at, ok
	}
	if over, waits := r.gate.caches.Next(); waits && (!ok || over < at) {
		return max(over, r.now+1), true
	}
	return at, ok
}

// nextTimer is Next but for the gate.
func (r *Replica) nextTimer() (lease.Instant, bool) {
	if at := r.failover.at; at != 0 {
		return at, true
	}
	if !r.primary || r.timers.expiring || r.timers.refresh {
		return 0, false
	}
	if r.timers.afterAll != nil && !r.timers.checkpointing {
		return r.now, true
	}
	at, ok := r.lessor.Next()
	if !ok || at > r.now || !r.timers.checkpointing && r.now >= r.timers.silence {
		return at, ok
	}
	// What is silent now waits: for the outcome of a checkpoint, which is an input, or until
	// others have gathered. What falls due meanwhile does not wait.
	due, ok := r.lessor.NextDue()
	if silence := r.timers.silence; !r.timers.checkpointing && (!ok || silence < due) {
		due, ok = silence, true
	}
	return max(due, r.now+1), ok
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
}

// Status returns the replica's state as of the last call of Take.
func (r *Replica) Status() Status {
	out := Status{
		Term: r.term, Leader: r.leader, Index: r.committed, Applied: r.machine.Index(),
		Leading: r.leading, Primary: r.primary,
		Pending: len(r.waiting) + len(r.pending) + len(r.forward.sent),
	}
	out.Refreshing = r.primary && r.timers.refresh
	if r.primary && r.timers.expiring {
		out.Overdue = lease.TTL(r.now - r.timers.oldest)
	}
	out.Overdue = max(out.Overdue, r.gate.overdue(r.now))
	return out
}

// ConfState returns the group's configuration as of the last applied entry.
func (r *Replica) ConfState() *raftpb.ConfState { return r.conf }
