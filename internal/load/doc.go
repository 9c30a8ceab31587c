// Package load puts load on a server that speaks etcd's API, and measures the results.
//
// A Client has a few connections with plain gRPC stubs, because the load often shares the machine
// with the server and must be cheap. A Remote measures operations of a running server, limited in
// time and number, and deletes what it wrote. Its errors begin with "bench" because `leasehold
// bench` runs it. Watchful measures the conditions for a lease holder: round trips, losses and
// pauses.
//
// The parts are exported for other measurements: Parallel and Spread run callers, a Histogram
// counts durations, a Renewer saturates a stream of renewals, Deletions records when keys were
// deleted with their leases, and ServeCeiling is a server that stores nothing and answers at once.
// The comparison of servers in bench/compare, another module, uses them.
package load
