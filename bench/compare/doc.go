// Package compare applies the same load to different servers of the etcd v3 API and measures how
// each performs.
//
// A Workload accesses one server through an Env, which contains a load.Client or Sessions of the
// server's own client. It returns a Result with a rate, latencies, and the resources used by the
// server's process. A Target describes how to start a server: a leasehold binary, an etcd binary,
// ZooKeeper, or the ceiling, which is a bare gRPC server for etcd's messages that stores nothing
// and answers immediately. Run runs the workloads, and within a workload alternates between the
// targets, round by round. Each server is alone on the machine and has an empty directory. If the
// machine is slow for a while, that affects all targets equally.
//
// A server can be a cluster of members on loopback. If so, a workload is measured through the
// leader, the followers or all members, and the resources of all members are added up. Failover
// workloads kill members and measure the service in two ways: probes, which nothing delays, show
// how the service behaves, and the Go client shows what a program observes.
//
// On etcd, the cache workload performs only the writes, while clients watch the key.
//
// Only ratios within one run are meaningful. Absolute figures depend on the machine.
package compare
