package sim

// faultKind names a kind of fault. Coverage uses the same names.
type faultKind string

// The kinds of faults that a world injects.
const (
	faultCrash       faultKind = "crash"            // a process dies, and unsynced writes are lost
	faultPowerLoss   faultKind = "power loss"       // as above, but connections do not break
	faultCrashAll    faultKind = "crash of all"     // all members crash at the same time
	faultStop        faultKind = "stop"             // a clean stop of a process
	faultPause       faultKind = "pause"            // a process is paused, but its clock continues
	faultSuspend     faultKind = "suspend"          // suspended; the boot clock continues
	faultPartition   faultKind = "partition"        // the members are split into two groups
	faultOneWay      faultKind = "one-way cut"      // a link drops everything in one direction
	faultPartial     faultKind = "partial cut"      // a link drops everything in both directions
	faultClog        faultKind = "clog"             // a link delays all messages for a while
	faultLossy       faultKind = "loss"             // links drop, duplicate and reorder messages
	faultSlowDisk    faultKind = "slow disk"        // syncs are slow
	faultStuckDisk   faultKind = "stuck disk"       // a sync takes longer than an election timeout
	faultFullDisk    faultKind = "full disk"        // appends wait for space
	faultLostDisk    faultKind = "lost disk"        // a member is replaced by a new one
	faultDamaged     faultKind = "damaged member"   // a member's state is wrong
	faultAddMember   faultKind = "member added"     // the cluster grows
	faultRemove      faultKind = "member removed"   // the cluster shrinks
	faultTransfer    faultKind = "leader moved"     // an operator transfers leadership
	faultForged      faultKind = "forged expiry"    // a follower forwards its own expiry (T1)
	faultYield       faultKind = "leader yields"    // a leader steps down because its disk is stuck
	faultClientCut   faultKind = "client cut off"   // a client's messages are lost both ways
	faultClientHalt  faultKind = "client paused"    // a client is paused, but its clock continues
	faultClientNew   faultKind = "client restarted" // a client loses its state
	faultSnapBreak   faultKind = "snapshot broken"  // a snapshot stream breaks off
	faultStaleLeader faultKind = "stale leader"     // a leader is replaced but detects it late
	faultCongestion  faultKind = "congestion"       // the disks of all members are slow
	faultReelected   faultKind = "leader reelected" // a leader steps down and is re-elected
	faultStutter     faultKind = "stutter"          // a process is paused briefly
	faultSwing       faultKind = "swing"            // a member's latency changes
	faultRelayCrash  faultKind = "relay restarted"  // a relay loses its state
	faultRelayPause  faultKind = "relay paused"     // a relay is paused, but its clock continues
	faultRelayCut    faultKind = "relay cut off"    // messages between a relay and members are lost
	faultRelaySlow   faultKind = "relay far away"   // a relay's messages are delayed
)

// faultKinds lists all kinds of faults.
var faultKinds = []faultKind{
	faultCrash, faultPowerLoss, faultCrashAll, faultStop, faultPause, faultSuspend,
	faultPartition, faultOneWay, faultPartial, faultClog, faultLossy, faultSlowDisk,
	faultStuckDisk, faultFullDisk, faultLostDisk, faultAddMember, faultRemove, faultTransfer,
	faultForged, faultYield, faultClientCut, faultClientHalt, faultClientNew, faultSnapBreak,
	faultDamaged, faultStaleLeader, faultCongestion, faultReelected,
	faultStutter, faultSwing,
	faultRelayCrash, faultRelayPause, faultRelayCut, faultRelaySlow,
}
