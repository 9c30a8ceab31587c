// Package fsm is the replicated state machine: the only place where leases
// and keys meet.
//
// A Machine applies the commands of the Raft log, in order, to the lease
// table and the store. Apply is deterministic: the same commands give the same
// state, revisions and hash on every member. It reads no clock, draws no
// random number and never asks who leads; ids and times were put into the
// command by its proposer. The one thing that differs between members is the
// lease tracker, the timers of the member that leads, which is no part of the
// state.
//
// The package is pure: no goroutine, no lock, no I/O. Its caller, the
// replica, owns a Machine and calls it from one goroutine; the Views it hands
// out are immutable and may be read from any.
package fsm
