package replica

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"
)

// A Lag is the number of committed entries that a member lacks, according to the leader.
type Lag struct{ Member, Entries uint64 }

// Lags returns how far the other members lag behind, in ID order. The leader does not know what a
// member has until the member answers. During the first election timeout, Lags omits members that
// have not answered. It returns nil on a member that does not lead.
func (r *Replica) Lags() []Lag {
	if r.lead == nil {
		return nil
	}
	var out []Lag
	r.raft.node.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		if id != r.cfg.ID && (p.Match > 0 || !r.lead.expiry.fresh(r.ticks, uint64(r.cfg.ElectionTicks))) {
			out = append(out, Lag{id, r.raft.committed - min(p.Match, r.raft.committed)})
		}
	})
	return out
}
