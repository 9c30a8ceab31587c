package fsm

import (
	"errors"
	"fmt"
	"math"

	"leasehold.dev/lease"
)

// ErrRevision means that a revision cannot be increased by the requested amount.
var ErrRevision = errors.New("fsm: revision out of range")

// tokenGenerationShift is the position of the generation in a token.
const tokenGenerationShift = 48

// eventsGap is added to the number of the last lease event. It exceeds the number of events that
// any cluster could have produced since a backup was taken.
const eventsGap = 1 << 32

// Restoration describes how to turn the state of one cluster into the initial state of another.
type Restoration struct {
	// ID identifies the restore. It must be unique.
	ID uint64
	// Members are the founding members of the new cluster. They replace the old members.
	Members []Member
	// Removed lists the IDs of members that may come back and must be rejected.
	Removed []uint64
	// Above is a lower bound for all later tokens. If it does not exceed the tokens already issued,
	// the next generation begins instead.
	Above lease.Token
	// BumpRevision is added to the revision, which is then raised to at least MinRevision.
	// Otherwise clients that saw a revision after the backup could see the same number again with
	// different contents (T34).
	BumpRevision, MinRevision int64
	// MarkCompacted compacts at the new revision. So clients at a revision after the backup get an
	// error and read everything again, instead of waiting for events that never arrive.
	MarkCompacted bool
}

// RestoreBackup builds a Machine from a snapshot of another cluster, like [Restore]. It keeps keys,
// leases and history, replaces the members, and never repeats an earlier token (T27). It drops the
// alarms of the old members. Index and term continue from the snapshot.
func RestoreBackup(
	c Config, f Restoration, next func() (chunk []byte, ok bool, err error),
) (*Machine, error) {
	m, err := rebuild(c, next, func(r *restorer, s *lease.State) error {
		// Any release can read everything written by earlier releases, and no member of the new
		// cluster runs an earlier release.
		v := &r.m.version
		*v = ClusterVersion{Number: max(v.Number, r.m.cfg.Versions.Oldest), Decided: r.m.index}
		if err := r.m.CheckVersion(); err != nil {
			return err
		}
		if f.BumpRevision < 0 || r.revision > math.MaxInt64-f.BumpRevision {
			return fmt.Errorf("%w: %d raised by %d", ErrRevision, r.revision, f.BumpRevision)
		}
		r.revision = max(r.revision+f.BumpRevision, f.MinRevision)
		if err := f.raise(s); err != nil {
			return err
		}
		// The backup may lack the last events of the previous generation. A client must not resume
		// after one of those events, because its number would be reused for another event.
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
	m.sessions = newSessions() // their clients belong to another generation
	m.sessions.last = last
	// Caches of the previous generation may contain writes that are missing here, so they must no
	// longer be used. A cache drops everything once it detects that its lease holds nothing.
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

// raise raises the last token.
//
// Counting generations would not be enough. Two restores of the same backup would both use the next
// generation, and issue the same tokens. The caller therefore passes a token that grows with time.
func (f *Restoration) raise(s *lease.State) error {
	if err := s.CheckTokens(); err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if uint64(f.Above) > s.LastToken {
		s.LastToken, s.Generation = uint64(f.Above), uint64(f.Above>>tokenGenerationShift)
		return nil
	}
	s.Generation++ // Recover rejects an overflow of the generation
	s.LastToken = s.Generation << tokenGenerationShift
	return nil
}
