package sim

// FaultKind names a kind of fault. The names are those of the coverage too.
type FaultKind string

// The faults that a world injects.
const (
	FaultCrash      FaultKind = "crash"            // a process dies, its disk loses the unsynced
	FaultPowerLoss  FaultKind = "power loss"       // likewise, and no connection breaks
	FaultCrashAll   FaultKind = "crash of all"     // every member at once
	FaultStop       FaultKind = "stop"             // a clean stop of a process
	FaultPause      FaultKind = "pause"            // a process stands still, its clock goes on
	FaultSuspend    FaultKind = "suspend"          // a machine sleeps, its boot clock goes on
	FaultPartition  FaultKind = "partition"        // the members fall into two groups
	FaultOneWay     FaultKind = "one-way cut"      // a link loses all in one direction
	FaultPartial    FaultKind = "partial cut"      // a link loses all in both directions
	FaultClog       FaultKind = "clog"             // a link holds everything for a while
	FaultLossy      FaultKind = "loss"             // links lose, repeat and reorder messages
	FaultSlowDisk   FaultKind = "slow disk"        // syncs take long
	FaultStuckDisk  FaultKind = "stuck disk"       // a sync takes longer than an election timeout
	FaultFullDisk   FaultKind = "full disk"        // appends wait for room
	FaultLostDisk   FaultKind = "lost disk"        // a member is replaced by a new one
	FaultAddMember  FaultKind = "member added"     // the cluster grows
	FaultRemove     FaultKind = "member removed"   // the cluster shrinks
	FaultTransfer   FaultKind = "leader moved"     // an operator moves the leadership
	FaultForged     FaultKind = "forged expiry"    // a member forwards its own expiry (T1)
	FaultYield      FaultKind = "leader yields"    // a leader gives way because its disk is stuck
	FaultClientCut  FaultKind = "client cut off"   // a client's messages are lost both ways
	FaultClientHalt FaultKind = "client paused"    // a client stands still, its clock goes on
	FaultClientNew  FaultKind = "client restarted" // a client forgets everything
	FaultSnapBreak  FaultKind = "snapshot broken"  // the stream of a snapshot ends in the middle
	FaultCoup       FaultKind = "coup"             // a leader is replaced, and learns of it late
	FaultCongestion FaultKind = "congestion"       // the disks of all are slow
)

// faultKinds are all kinds.
var faultKinds = []FaultKind{
	FaultCrash, FaultPowerLoss, FaultCrashAll, FaultStop, FaultPause, FaultSuspend,
	FaultPartition, FaultOneWay, FaultPartial, FaultClog, FaultLossy, FaultSlowDisk,
	FaultStuckDisk, FaultFullDisk, FaultLostDisk, FaultAddMember, FaultRemove, FaultTransfer,
	FaultForged, FaultYield, FaultClientCut, FaultClientHalt, FaultClientNew, FaultSnapBreak,
	FaultCoup, FaultCongestion,
}
