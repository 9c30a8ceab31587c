package shell

import "leasehold.dev/lease"

// A snapshot is due when the log since the last one is long, in entries or bytes, and not small
// compared with the last snapshot: writing a large state because of a short log would cost more
// disk I/O than it saves at a restart. Applying the log takes about four times as long per key as
// loading a snapshot, so a restart after a kill may take twice as long as after a stop.
//
// An idle member, whose log hardly grows, also writes a snapshot for a shorter log: the disk has
// nothing else to do, and the next restart is faster. It writes at most one a minute, and large
// ones less often, since a log may grow slowly forever.
const (
	snapshotLogBytes   = 16 << 20 // long, even with fewer than Count entries
	snapshotLogPart    = 4        // small, if less than 1/4 of the last snapshot
	snapshotCheckEvery = 256      // entries between two checks

	restLook     = 5_000   // ms between two checks of the log
	restEvery    = 60_000  // minimum ms between two idle snapshots
	restRate     = 128     // bytes of idle snapshots per ms, on average
	restLogBytes = 1 << 20 // long, for an idle member
	restLogPart  = 64      // small, for an idle member: 1/64
)

// Snapshots decides when a member writes a snapshot of its own state, and how much of the log it
// then keeps. It writes one at a time. It belongs to the core's goroutine, and starts with
// Restored.
type Snapshots struct {
	Count uint64 // entries between two snapshots
	Tail  uint64 // entries kept before the snapshot, for members that lag

	last, looked uint64 // index of the last snapshot, and of the last check
	lastBytes    uint64
	writing      bool
	sending      map[uint64]uint64 // index of the state that is being sent to each member

	rested   uint64        // length of the log at DueAtRest's last check; 0 after a snapshot
	nextLook lease.Instant // next check by DueAtRest
	nextRest lease.Instant // earliest next idle snapshot
}

// Restored records that the newest snapshot has the given size and was not written through this
// Snapshots.
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
// grown since the last check. It then counts the snapshot as written, unless Ended reports
// otherwise. It is called from time to time.
func (s *Snapshots) DueAtRest(now lease.Instant, index uint64, logBytes func() uint64) bool {
	if s.writing || index == s.last || now < s.nextLook {
		return false
	}
	log := logBytes()
	grown := log - min(s.rested, log) // log may be less, if a new leader has replaced its end
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

// Begin records that a snapshot of the state at index is being written. It returns the index up to
// which the log may be dropped afterwards, if tail entries before the snapshot are kept.
func (s *Snapshots) Begin(index, tail uint64) (keep uint64) {
	s.writing = true
	keep = index - min(index, tail)
	for _, sent := range s.sending {
		keep = min(keep, sent)
	}
	return keep
}

// Ended records that the snapshot of Begin is finished, and whether it is now the newest.
func (s *Snapshots) Ended(index, bytes uint64, newest bool) {
	if s.writing = false; newest {
		s.last, s.lastBytes, s.rested = index, bytes, 0
	} else {
		s.nextRest = 0
	}
}

// Hold keeps the log after index until Release, because a member that is being sent the state at
// index will need it.
func (s *Snapshots) Hold(member, index uint64) {
	if s.sending == nil {
		s.sending = make(map[uint64]uint64)
	}
	s.sending[member] = index
}

// Release undoes Hold.
func (s *Snapshots) Release(member uint64) { delete(s.sending, member) }
