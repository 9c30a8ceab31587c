package replica

import (
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// checkpoint returns a command that replicates the remaining time of at most limit silent leases,
// and marks the leases as proposed. It returns nil if no checkpoint is due.
func (e *expirer) checkpoint(now lease.Instant, limit int) fsm.Command {
	if e.checkpointing || e.waits(now) || now < e.silence && e.afterAll == nil {
		return nil
	}
	silent := e.lessor.Silent(limit)
	more := e.lessor.MoreSilent()
	if len(silent) == 0 {
		if !more {
			e.checkpointedAll()
		}
		return nil
	}
	e.checkpointing = true
	if !more {
		e.silence = now + checkpointEvery
	}
	return &fsm.Checkpoint{Term: e.term, Leases: silent}
}

// checkpointed handles the outcome of a checkpoint.
func (e *expirer) checkpointed(silent []lease.Checkpoint, applied bool) {
	e.checkpointing = false
	if !applied {
		e.lessor.Unreport(silent)
	}
}

// clear returns a command that clears the checkpoint of a lease, and counts the command as
// proposed.
func (e *expirer) clear(id lease.ID, token lease.Token) *fsm.Checkpoint {
	e.clearing++
	return &fsm.Checkpoint{Term: e.term, Leases: []lease.Checkpoint{{ID: id, Token: token}}}
}

// checkpointAll calls done once the remaining time of every silent lease has been replicated.
func (e *expirer) checkpointAll(done func()) {
	e.lessor.CheckpointAll()
	e.afterAll = done
}

func (e *expirer) checkpointedAll() {
	if done := e.afterAll; done != nil {
		e.afterAll = nil
		done()
	}
}
