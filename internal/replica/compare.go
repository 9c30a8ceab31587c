package replica

import (
	"fmt"

	"leasehold.dev/internal/fsm"
)

// stopIfDamaged stops this member, also after a restart, if the majority found that its state
// differs from theirs. Its state is kept as evidence, and gives no more wrong answers.
func (r *Replica) stopIfDamaged() {
	if r.machine.IsDamaged(r.cfg.ID) {
		r.out.Failed = fmt.Errorf("%w, as of entry %d", ErrDamaged, r.machine.Index())
	}
}

// ReportHash proposes the hash of the image in Output.Hash. Nothing waits for the outcome: if it is
// lost, the next one counts.
func (r *Replica) ReportHash(of *fsm.Image, hash uint32, owner any) {
	if of.View.Index == r.machine.HashedAt() {
		r.Propose(&Proposal{Owner: owner, Command: &fsm.StateHash{
			Member: r.cfg.ID, Index: of.View.Index, Hash: uint64(hash),
		}})
	}
}
