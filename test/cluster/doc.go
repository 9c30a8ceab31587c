// Package cluster tests a cluster of real processes from outside: three members
// on loopback, or in network namespaces where their links can be cut, and
// clients built on clientv3. Processes are killed and stopped, links are cut,
// and what the clients saw is checked (package history): registers must be
// linearizable, watches must have seen every event once, leases that were kept
// alive must not have been lost, and those of dead holders must be gone on time.
//
//	go test ./test/cluster                     builds ./cmd/leasehold and tests it
//	go test ./test/cluster -run Faults -rounds 50 -seed 7 -v
//	go test ./test/cluster -run Kills -kills 100 -v
//	go test ./test/cluster -long -timeout 1h
//	go test ./test/cluster -server /path/to/etcd -serve "" -foreign
//
// The last form runs the tests against a real etcd, which shows that they ask
// for what etcd does; -foreign leaves out what only leasehold promises.
//
// The tests in namespaces need Linux, root and the ip command, and skip
// themselves with the reason elsewhere.
package cluster
