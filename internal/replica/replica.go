package replica

import (
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
	// Log is what is on disk. Append messages that Take returned become
	// visible through it before Persisted is called for them.
	Log raft.Storage
	// Machine is the state as of the snapshot in Log.
	Machine *fsm.Machine
	// ElectionTicks and HeartbeatTicks count calls of Tick.
	ElectionTicks, HeartbeatTicks int
	// MaxBatch is about how many bytes one entry carries, at most.
	MaxBatch int
	// MaxExpire is how many leases one entry expires, at most: a bound on how
	// long applying it holds up the others.
	MaxExpire int
	// Logger receives the Raft library's log.
	Logger raft.Logger
}

// maxUncommitted bounds the bytes of entries that are proposed and not yet
// committed. Beyond it proposals are refused, not queued.
const maxUncommitted = 256 << 20

// Replica is one member of the Raft group. It is not safe for concurrent
// use: one goroutine owns it.
type Replica struct {
	cfg     Config
	raft    *raft.RawNode
	machine *fsm.Machine
	lessor  *lease.Lessor
	conf    *raftpb.ConfState
	now     lease.Instant

	term    uint64
	leader  uint64 // the known leader's ID, 0 for none
	leading bool   // this member is the leader of term
	primary bool   // and has applied an entry of term: its tracker runs

	waiting   []*Proposal // not yet proposed to Raft
	pending   []batch     // proposed, by index
	appending int         // appends of entries that are not yet durable

	reads   confirmQueue
	parked  []Renewal // of expiring leases, until the outcome is known
	expiry  inflight
	silence inflight
	out     Output
}

// batch is an entry of this member's that is in the log and not yet applied.
type batch struct {
	index, term uint64
	proposals   []*Proposal
}

// inflight limits an internal command to one entry at a time, so that expiry
// takes its share of the log and no more (T13).
type inflight struct{ busy bool }

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
		MaxUncommittedEntriesSize: maxUncommitted,
		MaxInflightMsgs:           256,
		CheckQuorum:               true,
		PreVote:                   true,
		ReadOnlyOption:            raft.ReadOnlySafe,
		DisableProposalForwarding: true,
		StepDownOnRemoval:         true,
		Logger:                    c.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("replica: start raft: %w", err)
	}
	return &Replica{
		cfg: c, raft: rn, machine: c.Machine, lessor: c.Machine.Lessor(), conf: conf,
		term: rn.BasicStatus().HardState.GetTerm(),
	}, nil
}

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
	r.raft.Tick()
	r.reads.tick(r)
}

// Step takes a message from another member.
func (r *Replica) Step(m *raftpb.Message) error {
	if raft.IsLocalMsg(m.GetType()) {
		return fmt.Errorf("replica: %s from outside", m.GetType())
	}
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
	for _, resp := range m.GetResponses() {
		r.route(resp)
	}
}

// Refresh gives every lease its full TTL from now, as a promotion does. The
// member's loop calls it when the clock cannot be trusted to have measured the
// time since the last Advance, after the machine was suspended, say (T10).
func (r *Replica) Refresh() {
	if r.primary {
		r.demote()
		r.promote()
	}
}

// Next returns the earliest instant at which Take may have an expiry or a
// checkpoint to propose, and false if there is none in sight.
func (r *Replica) Next() (lease.Instant, bool) {
	if !r.primary || r.expiry.busy {
		return 0, false
	}
	return r.lessor.Next()
}

// Status is what a replica knows of the group.
type Status struct {
	Term, Leader     uint64
	Index, Applied   uint64
	Leading, Primary bool
	Pending          int
}

// Status returns the replica's present state.
func (r *Replica) Status() Status {
	s := r.raft.BasicStatus()
	return Status{
		Term: s.HardState.GetTerm(), Leader: r.leader,
		Index: s.HardState.GetCommit(), Applied: r.machine.Index(),
		Leading: r.leading, Primary: r.primary,
		Pending: len(r.waiting) + len(r.pending),
	}
}

// ConfState returns the group's configuration as of the last applied entry.
func (r *Replica) ConfState() *raftpb.ConfState { return r.conf }
