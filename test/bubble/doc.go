// Package bubble runs real clusters and real clients in a testing/synctest bubble: in one process,
// in virtual time, and on simulated machines with failing networks, disks and clocks. See
// docs/simulator.md.
package bubble
