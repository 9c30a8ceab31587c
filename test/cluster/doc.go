// Package cluster tests a cluster of real processes from outside. The cluster consists of three
// members on loopback, or in network namespaces whose links can be cut, and clients built on
// clientv3. The tests kill and pause processes and cut links. Package history checks the results
// that the clients observed: registers are linearizable, watches receive every event once, leases
// that are kept alive are not lost, and leases of dead holders end on time.
//
//	go test ./test/cluster                     builds ./cmd/leasehold and tests it
//	go test ./test/cluster -run Faults -rounds 50 -seed 7 -v
//	go test ./test/cluster -long -timeout 1h
//
// The tests in namespaces need Linux, root and the ip command. Elsewhere they are skipped, with the
// reason.
package cluster
