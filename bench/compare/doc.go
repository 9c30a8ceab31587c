// Package compare puts the same load on different servers of the etcd v3 API and
// measures what each makes of it.
//
// A Workload talks to one server through an Env: a load.Client, or Sessions of the
// server's own client. It returns a Result: a rate, latencies, and what the
// server's process spent. A Target is a way to start a server: a leasehold
// binary, an etcd binary, ZooKeeper, or the ceiling, which is a bare gRPC server of
// etcd's messages that stores nothing and answers at once. Run runs workloads
// against targets in turn, round by round, each server alone on the machine
// with a fresh directory, so that a slow hour of the machine meets all alike.
//
// A server may be a cluster of members on loopback; then a workload is measured
// through its leader, its followers or all, and what the server spent is the sum
// of its members. Workloads about failover kill members, and look at the service
// twice: with probes that nothing delays, which show what the service does, and
// with the Go client, which shows what a program sees.
//
// Workloads about caches run on etcd without them: the same reads from the server, the
// same writes beside watchers.
//
// Only ratios within one run mean anything; absolute figures move with the
// machine.
package compare
