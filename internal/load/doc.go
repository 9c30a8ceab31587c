// Package load generates load for a server that supports etcd's API, and measures the results.
//
// A Client has a few connections with plain gRPC stubs. It must be cheap, because the load often
// shares the machine with the server. A Remote measures operations on a running server, limits how
// long they run and how many there are, and deletes everything that it wrote. Its errors begin with
// "bench" because `leasehold bench` runs it. MeasureConditions measures the conditions for a lease
// holder: round trips, losses and pauses.
//
// The parts are exported for other measurements: Parallel and Spread run callers, a Histogram
// counts durations, a Renewer saturates a stream of renewals, Deletions records when keys were
// deleted with their leases, and ServeCeiling is a server that stores nothing and responds
// immediately. These parts are used by bench/compare, a separate module that compares servers.
package load
