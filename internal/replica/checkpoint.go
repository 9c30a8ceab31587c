package replica

import (
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// checkpoint returns a command that replicates the remaining time of silent leases, and marks the
// leases as proposed. It returns nil if no checkpoint is due.
func (e *expirer) checkpoint() fsm.Command {
	if e.checkpointing || e.waits() || e.m.now < e.silence && e.afterAll == nil {
		return nil
	}
	silent := e.m.lessor.Silent(e.m.cfg.MaxExpire)
	more := e.m.lessor.MoreSilent()
	if len(silent) == 0 {
		if !more {
			e.checkpointedAll()
		}
		return nil
	}
	e.checkpointing = true
	if !more {
		e.silence = e.m.now + checkpointEvery
	}
	return &fsm.Checkpoint{Term: e.m.term, Leases: silent}
}

// checkpointed handles the outcome of a checkpoint.
func (e *expirer) checkpointed(silent []lease.Checkpoint, applied bool) {
	e.checkpointing = false
	if !applied {
		e.m.lessor.Unreport(silent)
	}
}

// clear returns a command that clears the checkpoint of a lease, and counts the command as
// proposed.
func (e *expirer) clear(id lease.ID, token lease.Token) *fsm.Checkpoint {
	e.clearing++
	return &fsm.Checkpoint{Term: e.m.term, Leases: []lease.Checkpoint{{ID: id, Token: token}}}
}

// checkpointAll calls done once the remaining time of every silent lease has been replicated.
func (e *expirer) checkpointAll(done func()) {
	e.m.lessor.CheckpointAll()
	e.afterAll = done
}

func (e *expirer) checkpointedAll() {
	if done := e.afterAll; done != nil {
		e.afterAll = nil
		done()
	}
}
