package sim

// faultKind names a kind of fault. The names are those of the coverage too.
type faultKind string

// The faults that a world injects.
const (
	faultCrash       faultKind = "crash"            // a process dies, its disk loses the unsynced
	faultPowerLoss   faultKind = "power loss"       // likewise, and no connection breaks
	faultCrashAll    faultKind = "crash of all"     // every member at once
	faultStop        faultKind = "stop"             // a clean stop of a process
	faultPause       faultKind = "pause"            // a process stands still, its clock goes on
	faultSuspend     faultKind = "suspend"          // a machine sleeps, its boot clock goes on
	faultPartition   faultKind = "partition"        // the members fall into two groups
	faultOneWay      faultKind = "one-way cut"      // a link loses all in one direction
	faultPartial     faultKind = "partial cut"      // a link loses all in both directions
	faultClog        faultKind = "clog"             // a link holds everything for a while
	faultLossy       faultKind = "loss"             // links lose, repeat and reorder messages
	faultSlowDisk    faultKind = "slow disk"        // syncs take long
	faultStuckDisk   faultKind = "stuck disk"       // a sync takes longer than an election timeout
	faultFullDisk    faultKind = "full disk"        // appends wait for room
	faultLostDisk    faultKind = "lost disk"        // a member is replaced by a new one
	faultDamaged     faultKind = "damaged member"   // a member's state is not what it should be
	faultAddMember   faultKind = "member added"     // the cluster grows
	faultRemove      faultKind = "member removed"   // the cluster shrinks
	faultTransfer    faultKind = "leader moved"     // an operator moves the leadership
	faultForged      faultKind = "forged expiry"    // a member forwards its own expiry (T1)
	faultYield       faultKind = "leader yields"    // a leader gives way because its disk is stuck
	faultClientCut   faultKind = "client cut off"   // a client's messages are lost both ways
	faultClientHalt  faultKind = "client paused"    // a client stands still, its clock goes on
	faultClientNew   faultKind = "client restarted" // a client forgets everything
	faultSnapBreak   faultKind = "snapshot broken"  // the stream of a snapshot ends in the middle
	faultStaleLeader faultKind = "stale leader"     // a leader is replaced, and learns of it late
	faultCongestion  faultKind = "congestion"       // the disks of all are slow
	faultReelected   faultKind = "leader reelected" // a leader leads no more, and is elected again
	faultStutter     faultKind = "stutter"          // a process stands still for a moment
	faultSwing       faultKind = "swing"            // a member is farther away than before
	faultRelayCrash  faultKind = "relay restarted"  // a relay forgets everything
	faultRelayPause  faultKind = "relay paused"     // a relay stands still, its clock goes on
	faultRelayCut    faultKind = "relay cut off"    // messages between relay and members are lost
	faultRelaySlow   faultKind = "relay far away"   // messages between relay and members take long
)

// faultKinds are all kinds.
var faultKinds = []faultKind{
	faultCrash, faultPowerLoss, faultCrashAll, faultStop, faultPause, faultSuspend,
	faultPartition, faultOneWay, faultPartial, faultClog, faultLossy, faultSlowDisk,
	faultStuckDisk, faultFullDisk, faultLostDisk, faultAddMember, faultRemove, faultTransfer,
	faultForged, faultYield, faultClientCut, faultClientHalt, faultClientNew, faultSnapBreak,
	faultDamaged, faultStaleLeader, faultCongestion, faultReelected,
	faultStutter, faultSwing,
	faultRelayCrash, faultRelayPause, faultRelayCut, faultRelaySlow,
}
