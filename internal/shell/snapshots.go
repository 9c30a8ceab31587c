package shell

import "leasehold.dev/lease"

// A snapshot is due when the log since the last one is long, in entries or bytes, and not small
// compared with the last snapshot: writing a large state for a short log would cost more disk
// than it saves at a restart. To apply the log costs about four times as much for a key as to load
// it from a snapshot: after a kill a restart may take twice as long as after a stop.
//
// A member at rest, whose log hardly grows, writes one for a shorter log too: the disk has nothing
// else to do, and the next restart has less. One a minute at most, and a large one less often: a
// log that grows slowly may do so for ever.
const (
	snapshotLogBytes   = 16 << 20 // long, if it has not Count entries
	snapshotLogPart    = 4        // small, if it is less than this part of the last snapshot
	snapshotCheckEvery = 256      // entries between two looks

	restLook     = 5_000   // ms between two looks at the log
	restEvery    = 60_000  // ms between two snapshots at rest, at least
	restRate     = 128     // bytes of such snapshots in a ms, on average
	restLogBytes = 1 << 20 // long, for a member at rest
	restLogPart  = 64      // small, for a member at rest
)

// Snapshots says when a member writes a snapshot of its own state, and which part of the log it
// keeps then. It writes one at a time. It belongs to the core's goroutine, and begins with
// Restored.
type Snapshots struct {
	Count uint64 // entries between two snapshots
	Tail  uint64 // entries kept before the snapshot, for members that lag

	last, looked uint64 // index of the last snapshot, and of the last look
	lastBytes    uint64
	writing      bool
	sending      map[uint64]uint64 // index of the state that is sent to a member

	rested   uint64        // how long the log was at DueAtRest's last look since the last snapshot
	nextLook lease.Instant // of DueAtRest
	nextRest lease.Instant // no snapshot at rest before
}

// Restored says that a snapshot of so many bytes is the newest, which this Snapshots has not
// written.
func (s *Snapshots) Restored(index, bytes uint64) {
	s.last, s.looked, s.lastBytes, s.rested = index, index, bytes, 0
}

// Due reports whether to write a snapshot of the state at index, which has just been reached.
func (s *Snapshots) Due(index uint64, logBytes func() uint64) bool {
	if s.writing || index-s.looked < min(snapshotCheckEvery, s.Count) {
		return false
	}
	s.looked = index
	log := logBytes()
	long := index-s.last >= s.Count || log >= snapshotLogBytes
	return long && log >= s.lastBytes/snapshotLogPart
}

// DueAtRest reports whether to write a snapshot of the state at index because the log has hardly
// grown since the last look, and counts it as written, unless Ended says that it was not. It is
// called from time to time.
func (s *Snapshots) DueAtRest(now lease.Instant, index uint64, logBytes func() uint64) bool {
	if s.writing || index == s.last || now < s.nextLook {
		return false
	}
	log := logBytes()
	grown := log - min(s.rested, log) // less, if another leader has replaced the end of the log
	s.rested, s.nextLook = log, now+restLook
	least := max(restLogBytes, s.lastBytes/restLogPart)
	if log < least || grown >= least || now < s.nextRest {
		return false
	}
	s.nextRest = now + max(restEvery, lease.Instant(s.lastBytes/restRate))
	return true
}

// Writing reports whether a snapshot is being written.
func (s *Snapshots) Writing() bool { return s.writing }

// Begin says that a snapshot of the state at index is being written. It returns the index up to
// which the log may be dropped then, if tail entries before the snapshot are kept.
func (s *Snapshots) Begin(index, tail uint64) (keep uint64) {
	s.writing = true
	keep = index - min(index, tail)
	for _, sent := range s.sending {
		keep = min(keep, sent)
	}
	return keep
}

// Ended says that the snapshot of Begin is finished, and whether it is the newest now.
func (s *Snapshots) Ended(index, bytes uint64, newest bool) {
	if s.writing = false; newest {
		s.last, s.lastBytes, s.rested = index, bytes, 0
	} else {
		s.nextRest = 0
	}
}

// Hold keeps the log after index until Release, because a member that is being sent the state
// at index will need it.
func (s *Snapshots) Hold(member, index uint64) {
	if s.sending == nil {
		s.sending = make(map[uint64]uint64)
	}
	s.sending[member] = index
}

// Release ends what Hold began.
func (s *Snapshots) Release(member uint64) { delete(s.sending, member) }
