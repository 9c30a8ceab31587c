package replica

import (
	"fmt"

	"leasehold.dev/internal/fsm"
)

// stopIfDamaged stops this member if its state differs from the majority's. A restart does not
// help, because the member would stop again. The state remains on disk as evidence, but is not
// served to clients.
func (r *Replica) stopIfDamaged() {
	if r.machine.IsDamaged(r.cfg.ID) {
		r.out.Failed = fmt.Errorf("%w, as of entry %d", ErrDamaged, r.machine.Index())
	}
}

// ReportHash proposes the hash of the image in Output.Hash. It does not wait for the outcome. If
// the proposal is lost, the one from the next comparison replaces it.
func (r *Replica) ReportHash(of *fsm.Image, hash uint32, owner any) {
	if of.View.Index == r.machine.HashedAt() {
		r.Propose(&Proposal{Owner: owner, Command: &fsm.StateHash{
			Member: r.cfg.ID, Index: of.View.Index, Hash: uint64(hash),
		}})
	}
}
