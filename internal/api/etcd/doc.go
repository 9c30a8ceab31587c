// Package etcd serves the etcd v3 gRPC API: the services KV, Lease, Watch, Maintenance, Cluster,
// Auth, v3lock and v3election. It provides the messages, error strings and orderings that etcd
// clients rely on.
//
// The services check and translate requests. They have no state except for open streams. They use
// the member only through the small interfaces in node.go: they send commands to Propose, read from
// a View after Confirm, renew leases with Renew, and watch through the hub.
//
// Besides gRPC's own goroutines, each open keep-alive, watch or observe stream has one more, which
// ends with the stream. One more goroutine checks for a leader while any stream requires one.
//
// Permissions are checked where a command is applied (fsm.By), and against the state that is read
// (permit.go). The call's context carries the principal.
package etcd
