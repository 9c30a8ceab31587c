package shell

import "leasehold.dev/lease"

// A snapshot is due when the log since the last snapshot is long, in entries or bytes, and is not
// small compared with the last snapshot. Writing a large state because of a short log would cost
// more disk I/O than it saves at a restart. Applying the log takes about four times as long per key
// as loading a snapshot, so a restart after a kill can take twice as long as after a clean
// shutdown.
//
// An idle member, whose log hardly grows, writes a snapshot even if the log is shorter. The disk
// has nothing else to do, and the next restart is faster. Since the log may grow slowly forever,
// the member writes at most one such snapshot per minute, and fewer if they are large.
const (
	// a log of this size counts as long, even with fewer than Count entries
	snapshotLogBytes   = 16 << 20
	snapshotLogPart    = 4   // less than 1/4 of the last snapshot counts as small
	snapshotCheckEvery = 256 // entries between two checks

	restLook     = 5_000   // ms between two checks of the log
	restEvery    = 60_000  // minimum ms between two idle snapshots
	restRate     = 128     // bytes of idle snapshots per ms, on average
	restLogBytes = 1 << 20 // a log of this size counts as long for an idle member
	restLogPart  = 64      // for an idle member, less than 1/64 counts as small
)

// Snapshots decides when a member writes a snapshot of its own state, and how much of the log to
// keep after that. The member writes one snapshot at a time. Snapshots belongs to the core's
// goroutine; Restored must be called first.
type Snapshots struct {
	Count uint64 // entries between two snapshots
	Tail  uint64 // entries kept before the snapshot, for members that lag behind

	last, looked uint64 // indexes of the last snapshot and the last check
	lastBytes    uint64
	writing      bool
	// maps each member to the index of the state that is being sent to it
	sending map[uint64]uint64

	rested   uint64        // length of the log at DueAtRest's last check; 0 after a snapshot
	nextLook lease.Instant // next check by DueAtRest
	nextRest lease.Instant // earliest next idle snapshot
}

// Restored records the index and size of the newest snapshot if that snapshot was not written
// through this Snapshots.
func (s *Snapshots) Restored(index, bytes uint64) {
	s.last, s.looked, s.lastBytes, s.rested = index, index, bytes, 0
}

// Due reports whether to write a snapshot of the state at index, which the member has just reached.
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
// grown since the last check. If it returns true, it assumes that the snapshot will be written,
// unless Ended reports otherwise. It is called periodically.
func (s *Snapshots) DueAtRest(now lease.Instant, index uint64, logBytes func() uint64) bool {
	if s.writing || index == s.last || now < s.nextLook {
		return false
	}
	log := logBytes()
	grown := log - min(s.rested, log) // log can shrink: a new leader may have replaced its end
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
// which the log can be dropped afterwards, if tail entries before the snapshot are to be kept.
func (s *Snapshots) Begin(index, tail uint64) (drop uint64) {
	s.writing = true
	drop = index - min(index, tail)
	for _, sent := range s.sending {
		drop = min(drop, sent)
	}
	return drop
}

// Ended records that the snapshot passed to Begin is finished, and whether it is now the newest.
func (s *Snapshots) Ended(index, bytes uint64, newest bool) {
	if s.writing = false; newest {
		s.last, s.lastBytes, s.rested = index, bytes, 0
	} else {
		s.nextRest = 0
	}
}

// Hold retains the log after index until Release is called, because the state at index is being
// sent to a member that will need that part of the log.
func (s *Snapshots) Hold(member, index uint64) {
	if s.sending == nil {
		s.sending = make(map[uint64]uint64)
	}
	s.sending[member] = index
}

// Release undoes Hold.
func (s *Snapshots) Release(member uint64) { delete(s.sending, member) }
