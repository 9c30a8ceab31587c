// Package etcd serves the etcd v3 gRPC API: the services KV, Lease, Watch, Maintenance, Cluster,
// Auth, v3lock and v3election, with the messages, error texts and orderings that etcd's clients
// rely on.
//
// The services check and translate. They have no state except that of open streams, and use the
// member only through the small interfaces in node.go: commands go to Propose, reads to a View
// after Confirm, renewals to Renew, watches to the hub.
//
// Goroutines: gRPC's own, and one more for each open keep-alive, watch or observe stream, which
// ends with the stream; one that checks for a leader while any stream requires one.
//
// Permissions are checked where a command is applied (fsm.By), and against the state that is read
// (permit.go). The context of the call has the principal.
package etcd
