// Package load puts load on a server that speaks etcd's API, and measures what becomes of it.
//
// A Client is a few connections with raw gRPC stubs, because the load often shares the machine
// with the server and must be light. A Remote measures operations of a server that somebody else
// started: bounded in time and number, and it takes away what it left. `leasehold bench` runs it,
// so its errors begin with "bench". Watchful measures what a holder of a lease lives in: round
// trips, losses and pauses.
//
// What these are made of is here for others who measure: Parallel and Spread run callers, a
// Histogram counts what they saw, a Renewer keeps a stream of renewals full, Deletions notes when
// keys went with their leases, and the ceiling is a server that stores nothing and answers at
// once. The comparison of servers in bench/compare, which is another module, stands on them.
package load
