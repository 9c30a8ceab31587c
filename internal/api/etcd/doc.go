// Package etcd serves the etcd v3 gRPC API: the services KV, Lease, Watch, Maintenance, Cluster,
// Auth, v3lock and v3election. It provides the messages, error texts and orderings that etcd
// clients rely on.
//
// The services check and translate requests. They have no state except for open streams. They use
// the member only through the small interfaces in node.go: they send commands to Propose, read from
// a View after Confirm, renew leases with Renew, and watch through the hub.
//
// Each open keep-alive, watch or observe stream has one goroutine in addition to gRPC's own, which
// ends with the stream. One more goroutine checks for a leader while any stream requires one.
//
// Permissions are checked where a command is applied (fsm.By), and against the state that is read
// (permit.go). The context of the call contains the principal.
package etcd
