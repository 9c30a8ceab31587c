package fsm

import (
	"errors"
	"fmt"
	"math"

	"leasehold.dev/lease"
)

// ErrRevision means that a revision cannot be raised as far as was asked.
var ErrRevision = errors.New("fsm: revision out of range")

// tokenGenerationShift is where in a token its generation begins.
const tokenGenerationShift = 48

// eventsGap is by how much the number of the last lease event is raised:
// more than there were after any backup was taken.
const eventsGap = 1 << 32

// Restoration says how the state of one cluster becomes the first state of
// another.
type Restoration struct {
	// ID identifies the restore. No two restores may have the same one.
	ID uint64
	// Members are the founders of the new cluster, in place of the old members.
	Members []Member
	// Removed are the IDs of members that may come back, and are to be sent away.
	Removed []uint64
	// Above is a token that every later one is to exceed. If it is not above
	// the tokens given out before, the next generation begins instead.
	Above lease.Token
	// BumpRevision is added to the revision, and MinRevision is what it is at least then.
	// So clients that saw revisions after the backup was taken do not see them again
	// with other contents (T34).
	BumpRevision, MinRevision int64
	// MarkCompacted compacts at the new revision, so that those clients are told
	// to read anew instead of waiting for events that never come.
	MarkCompacted bool
}

// RestoreBackup builds a Machine from a snapshot of another cluster, as [Restore]
// does: the same keys, leases and history, with other members and with tokens
// that never repeat one of the past (T27). The alarms of the old members are
// gone. Index and term go on from the snapshot's.
func RestoreBackup(
	c Config, f Restoration, next func() (chunk []byte, ok bool, err error),
) (*Machine, error) {
	m, err := rebuild(c, next, func(r *restorer, s *lease.State) error {
		// A release reads what all earlier ones wrote. The new cluster has none of their members.
		v := &r.m.version
		*v = ClusterVersion{Number: max(v.Number, r.m.cfg.Versions.Oldest), Decided: r.m.index}
		if err := r.m.Foreign(); err != nil {
			return err
		}
		if f.BumpRevision < 0 || r.revision > math.MaxInt64-f.BumpRevision {
			return fmt.Errorf("%w: %d raised by %d", ErrRevision, r.revision, f.BumpRevision)
		}
		r.revision = max(r.revision+f.BumpRevision, f.MinRevision)
		if err := f.raise(s); err != nil {
			return err
		}
		// Nobody may resume behind events of the generation before that are not in the
		// backup, and be told of others under their numbers.
		r.m.events.start(max(r.m.events.last, s.LastToken) + eventsGap)
		return nil
	})
	if err != nil {
		return nil, err
	}
	clear(m.members)
	clear(m.removed)
	clear(m.alarms)
	m.meta.comparison = comparison{}
	m.meta.restore = f.ID
	last := m.sessions.last
	m.sessions = newSessions() // what their clients wait for was of another generation
	m.sessions.last = last
	// What caches have is of a generation whose last writes may be missing here, so nobody may
	// go on with it: a cache that is told that it holds nothing drops everything.
	m.holds = holdings{}
	for _, n := range f.Members {
		m.AddMember(n)
	}
	for _, id := range f.Removed {
		if _, member := m.members[id]; !member {
			m.removed[id] = struct{}{}
		}
	}
	if rev := m.store.Revision(); f.MarkCompacted && m.store.Compacted() < rev {
		if err := m.store.Compact(rev); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// raise moves the tokens up.
//
// The generation alone, counted, would not do: two restores of one backup
// would both get the next, and give out the same tokens to two generations of the
// cluster. So the caller names a token that grows with time.
func (f *Restoration) raise(s *lease.State) error {
	if err := s.CheckTokens(); err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if uint64(f.Above) > s.LastToken {
		s.LastToken, s.Generation = uint64(f.Above), uint64(f.Above>>tokenGenerationShift)
		return nil
	}
	s.Generation++ // after the last there is none: Recover refuses it
	s.LastToken = s.Generation << tokenGenerationShift
	return nil
}
