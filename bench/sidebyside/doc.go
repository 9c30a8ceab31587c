// Sidebyside provokes known faults of lease services in etcd and in leasehold, and prints how each
// behaved:
//
//	go run -C bench ./sidebyside -etcd /path/to/etcd
//	go run -C bench ./sidebyside -etcd /path/to/etcd -run 'T15|T16'
//
// Each fault gets its own servers, one or three of them, on loopback. The same code drives both
// servers through etcd's API, so any difference is due to the servers. docs/simulator.md lists the
// faults and the results.
//
// It exits with 1 if leasehold shows a fault or if a fault could not be tried.
package main
