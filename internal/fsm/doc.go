// Package fsm is the replicated state machine: the only place where leases
// and keys meet.
//
// A Machine applies the commands of the Raft log, in order, to the lease table and the store.
// Apply is deterministic: the same commands give the same state, revisions and hash on every
// member. It reads no clock, draws no random number and does not depend on which member leads;
// the proposer puts IDs and times into the command. Only the lease tracker (the timers of the
// leader) differs between members; it is not part of the state.
//
// The package is pure: no goroutine, no lock, no I/O. Its caller, the replica, owns a Machine and
// calls it from one goroutine. Its Views are immutable and may be read from any goroutine.
package fsm
