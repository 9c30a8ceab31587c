package replica

import (
	"fmt"

	"leasehold.dev/internal/fsm"
)

// stopIfDamaged makes this member stop, and not go on after another start either, if the majority
// has found that its state differs from theirs. So what it has is left as evidence, and gives no
// more wrong answers.
func (r *Replica) stopIfDamaged() {
	if r.machine.IsDamaged(r.cfg.ID) {
		r.out.Failed = fmt.Errorf("%w, as of entry %d", ErrDamaged, r.machine.Index())
	}
}

// TellHash tells the other members the hash of the state that Output.Hash is. Nobody waits for
// the outcome: if it is lost, the next one counts.
func (r *Replica) TellHash(of *fsm.Image, hash uint32, owner any) {
	if of.View.Index == r.machine.HashedAt() {
		r.Propose(&Proposal{Owner: owner, Command: &fsm.StateHash{
			Member: r.cfg.ID, Index: of.View.Index, Hash: uint64(hash),
		}})
	}
}
