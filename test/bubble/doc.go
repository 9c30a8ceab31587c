// Package bubble runs real clusters and real clients in a bubble of testing/synctest: in one
// process and in virtual time, on simulated machines whose networks, disks and clocks fail. See
// docs/simulator.md.
package bubble
