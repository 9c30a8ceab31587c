// Package shell defines the order of a member's work around its replica, as a state machine: take
// the inputs, read the clock, let the replica work, save, send, publish the new state, answer.
// Package server drives it with goroutines, sockets and a disk. Package sim drives the same machine
// in virtual time, where a process can pause or die between any two actions. Saver similarly
// defines the order of the work of a member's disk, and Snapshots decides when to write a snapshot.
//
// None of these types reads a clock, starts a goroutine or performs I/O. Each belongs to one
// goroutine.
package shell
