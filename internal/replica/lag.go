package replica

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"
)

// A Lag is the number of committed entries that a member does not have yet, as far as the leader
// knows.
type Lag struct{ Member, Entries uint64 }

// Lags returns how far the other members are behind, in ID order. A member that has sent nothing
// since this leader's election may have no entries; it is left out during the first election
// timeout. Lags returns nothing on a member that does not lead.
func (r *Replica) Lags() []Lag {
	if r.lead == nil {
		return nil
	}
	var out []Lag
	r.raft.node.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		if id != r.cfg.ID && (p.Match > 0 || !r.lead.expiry.fresh()) {
			out = append(out, Lag{id, r.raft.committed - min(p.Match, r.raft.committed)})
		}
	})
	return out
}
