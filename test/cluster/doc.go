// Package cluster tests a cluster of real processes from outside: three members on loopback, or in
// network namespaces whose links can be cut, and clients built on clientv3. Processes are killed
// and stopped, links are cut, and package history checks what the clients saw: registers are
// linearizable, watches get every event once, leases that are kept alive are not lost, and those of
// dead holders end on time.
//
//	go test ./test/cluster                     builds ./cmd/leasehold and tests it
//	go test ./test/cluster -run Faults -rounds 50 -seed 7 -v
//	go test ./test/cluster -long -timeout 1h
//
// The tests in namespaces need Linux, root and the ip command, and are skipped with
// the reason elsewhere.
package cluster
