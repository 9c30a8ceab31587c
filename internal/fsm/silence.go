package fsm

import "leasehold.dev/lease"

// Silence reports that a lease became silent or was renewed again. It results from a Checkpoint.
// Since that is replicated, every member reports the Silence, but only after it has applied the
// leader's checkpoint. Silences are advisory: no promise depends on them.
type Silence struct {
	// Info is the lease after the change. Its labels must not be modified.
	Info lease.Info
	// Until is when the lease may end if it stays silent, according to this member's clock. It is 0
	// if the lease was renewed again.
	Until lease.Instant
	// Again is true if the lease was already silent and has not been renewed since.
	Again bool

	index uint64 // of the entry
}

// keptSilences is how many silences are kept. A follower that is further behind scans all leases
// instead.
const keptSilences = 4096

// Silences is an immutable view of the leases that recently became silent or were renewed again.
// Any goroutine may read it.
type Silences struct {
	recent  recent[Silence]
	dropped uint64 // entry index of the newest dropped silence
}

// Since calls f for each change after the entry with the given index, in order, and returns true.
// If some of those changes are no longer kept, it returns false without calling f.
func (s Silences) Since(index uint64, f func(*Silence)) bool {
	if index < s.dropped {
		return false
	}
	for _, chunk := range s.recent.full {
		since(chunk, index, f)
	}
	since(s.recent.tail, index, f)
	return true
}

// last returns the entry index of the newest silence.
func (s *Silences) last() uint64 {
	if n := len(s.recent.tail); n > 0 {
		return s.recent.tail[n-1].index
	}
	return s.dropped
}

func since(chunk []Silence, index uint64, f func(*Silence)) {
	if len(chunk) == 0 || chunk[len(chunk)-1].index <= index {
		return
	}
	for i := range chunk {
		if chunk[i].index > index {
			f(&chunk[i])
		}
	}
}

func (m *Machine) applyCheckpoint(c *Checkpoint) Result {
	if c.Term != m.term {
		return Result{Err: ErrStale}
	}
	for i := range c.Leases {
		before := m.isSilent(c.Leases[i].ID)
		m.lessor.Checkpoint(c.Leases[i : i+1])
		m.checkpointed(&c.Leases[i], before)
	}
	return Result{}
}

// checkpointed reports the effect of a checkpoint. It reports nothing if the lease changed after
// the checkpoint was proposed. before is true if the lease was already silent.
func (m *Machine) checkpointed(c *lease.Checkpoint, before bool) {
	until, silent := m.lessor.SilentUntil(c.ID)
	if silent != (c.Remaining > 0) {
		return
	}
	if info, ok := m.lessor.Lookup(c.ID); ok && info.Token == c.Token && !info.Delayed {
		if silent {
			m.stats.Checkpointed++
		}
		m.silence(Silence{Info: info, Until: until, Again: silent && before})
	}
}

func (m *Machine) isSilent(id lease.ID) bool {
	_, silent := m.lessor.SilentUntil(id)
	return silent
}

// silence records that a lease became silent or was renewed again.
func (m *Machine) silence(news Silence) {
	s := &m.silences
	news.index = m.index
	if old := s.recent.push(news, eventBytes+news.Info.Bytes()); old != nil {
		s.dropped = old[len(old)-1].index
	}
}
