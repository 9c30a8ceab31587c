// Package shell is what a member does around its replica, as a machine of inputs and
// outputs: in which order it takes what came in, reads the clock, lets the replica work,
// saves, sends, shows the new state, and answers. Package server runs it with goroutines,
// sockets and a disk; package sim runs the same machine in virtual time, where a process may
// stand still or die between any two actions. Saver is the same for the member's disk, and
// Snapshots says when a snapshot is written.
//
// None of them reads a clock, starts a goroutine or performs I/O. Each belongs to one goroutine.
package shell
