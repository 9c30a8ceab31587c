// Sidebyside provokes faults that lease services had, in etcd and in leasehold,
// and prints what each did:
//
//	go run -C bench ./sidebyside -etcd /path/to/etcd
//	go run -C bench ./sidebyside -etcd /path/to/etcd -run 'T15|T16'
//
// Each fault gets servers of its own, one or three of them on loopback. Both kinds
// are driven by the same code through etcd's API, so a difference is one of the
// servers. docs/simulator.md lists the faults and the results.
//
// It ends with 1 if leasehold shows a fault, or if a fault could not be tried.
package main
