package replica

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/encoding"
)

// unreadable records that an entry cannot be applied. The checksums of the log and of the messages
// were correct, so the entry was written by a newer release, or sent by a faulty member or an
// outsider. Neither the entry nor anything after it is applied.
func (r *Replica) unreadable(e *raftpb.Entry, err error) {
	if errors.Is(err, encoding.ErrNewer) || errors.Is(err, encoding.ErrOlder) {
		r.out.Failed = fmt.Errorf("replica: entry %d of term %d is committed, and this release "+
			"cannot apply it: %w", e.GetIndex(), e.GetTerm(), err)
		return
	}
	r.out.Failed = fmt.Errorf("%w: entry %d of term %d is committed and cannot be applied: %w",
		ErrImpossible, e.GetIndex(), e.GetTerm(), err)
}
