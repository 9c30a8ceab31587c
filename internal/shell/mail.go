package shell

import (
	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

// Mail contains the inputs that a member has received since its last step. Each list is in order of
// arrival.
type Mail struct {
	Messages  []*replica.Message // from other members
	Proposals []*replica.Proposal
	Reads     []*replica.Read
	Renewals  []replica.Renewal
	Together  []*replica.Renewals
	Abandoned []lease.ID
	Caches    []CacheMail
	Persisted []*raftpb.Message // messages from replica.Output.Append that are now durable
	Tasks     []func()          // other functions that use the replica
	Arrivals  []Arrival
	DelayOver bool // the commit delay is over
}

// Arrival is a snapshot that has been received from another member but is not the newest one yet.
type Arrival struct {
	Message *raftpb.Message
	Machine *fsm.Machine // state that was built from the snapshot
	Owner   any
}

// Emptied returns an empty Mail that reuses the memory of m.
func (m *Mail) Emptied() Mail {
	clear(m.Messages)
	clear(m.Proposals)
	clear(m.Reads)
	clear(m.Renewals)
	clear(m.Together)
	clear(m.Caches)
	clear(m.Persisted)
	clear(m.Tasks)
	clear(m.Arrivals)
	return Mail{
		Messages: m.Messages[:0], Proposals: m.Proposals[:0], Reads: m.Reads[:0],
		Renewals: m.Renewals[:0], Together: m.Together[:0], Abandoned: m.Abandoned[:0],
		Caches: m.Caches[:0], Persisted: m.Persisted[:0], Tasks: m.Tasks[:0],
		Arrivals: m.Arrivals[:0],
	}
}

// Refusal is a message from another member that the replica rejected, with the reason.
type Refusal struct {
	From uint64
	Err  error
}

// Declined is a snapshot that the replica did not accept. Err is nil if the replica does not need
// the snapshot.
type Declined struct {
	Owner any
	Err   error
}
