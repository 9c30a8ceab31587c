// Package load puts load on a server that speaks etcd's API, and measures the results.
//
// A Client is a few connections with raw gRPC stubs, because the load often shares the machine
// with the server and must be light. A Remote measures operations on a server that is already
// running, bounded in time and number, and deletes what it wrote. `leasehold bench` runs it, so
// its errors begin with "bench". Watchful measures the conditions of a lease holder: round trips,
// losses and pauses.
//
// The parts are exported for other measurements: Parallel and Spread run callers, a Histogram
// counts what they saw, a Renewer keeps a stream of renewals full, Deletions notes when keys were
// deleted with their leases, and the ceiling is a server that stores nothing and answers at once.
// The comparison of servers in bench/compare, another module, uses them.
package load
