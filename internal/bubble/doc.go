// Package bubble runs whole clusters as they ship, with whole clients, in a bubble of
// testing/synctest: in one process, in virtual time, on machines that it makes itself, with
// networks, disks and clocks that fail. docs/bubble.md tells how.
package bubble
