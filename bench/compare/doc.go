// Package compare puts the same load on different servers of the etcd v3 API and measures how each
// performs.
//
// A Workload talks to one server through an Env: a load.Client, or Sessions of the server's own
// client. It returns a Result: a rate, latencies, and the resources that the server's process used.
// A Target is a way to start a server: a leasehold binary, an etcd binary, ZooKeeper, or the
// ceiling, which is a bare gRPC server for etcd's messages that stores nothing and answers at once.
// Run runs workloads against targets in turn, round by round, each server alone on the machine with
// a fresh directory, so that a slow hour of the machine affects all targets alike.
//
// A server may be a cluster of members on loopback. Then a workload is measured through its leader,
// its followers or all members, and the resources are summed over its members. Failover workloads
// kill members, and measure the service in two ways: with probes that nothing delays, which show
// the behavior of the service, and with the Go client, which shows what a program observes.
//
// Cache workloads run on etcd without caches: with the same reads from the server, and the same
// writes in the presence of watchers.
//
// Only ratios within one run are meaningful; absolute figures depend on the machine.
package compare
