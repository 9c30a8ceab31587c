package fsm

import "leasehold.dev/lease"

// Silence says that a lease is silent, or was heard again. Silence is replicated by
// Checkpoint, so that every member tells of it, though of no instant sooner than
// its leader found it. What is asked of leases here is advisory, no promise.
type Silence struct {
	// Info is the lease after that. Its labels must not be changed.
	Info lease.Info
	// Until is when the lease may end if it stays silent, by this member's clock; 0
	// means that it was heard again.
	Until lease.Instant
	// Again says that the lease was silent before, and has not been heard since.
	Again bool

	index uint64 // of the entry
}

// keptSilences is how many are kept. A follower that comes late looks at all
// leases instead.
const keptSilences = 4096

// Silences is an immutable picture of the leases that fell silent lately, or were
// renewed again. Any goroutine may read it.
type Silences struct {
	recent  recent[Silence]
	dropped uint64 // index of the newest that is not kept
}

// Since calls f for what happened after the entry of an index, in order, and returns
// true; or it returns false, if not all of it is kept any more.
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

// last returns the index of the entry of the newest.
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

// applyCheckpoint sets and clears checkpoints.
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

// checkpointed tells what a checkpoint has brought about: nothing, if the lease has
// changed since it was proposed. Before says whether it was silent already.
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

// isSilent reports whether a lease is silent, for heard.
func (m *Machine) isSilent(id lease.ID) bool {
	_, silent := m.lessor.SilentUntil(id)
	return silent
}

// silence tells that a lease fell silent, or was heard.
func (m *Machine) silence(news Silence) {
	s := &m.silences
	news.index = m.index
	if old := s.recent.push(news, eventBytes+news.Info.Bytes()); old != nil {
		s.dropped = old[len(old)-1].index
	}
}
