// Package e2e tests the built binary from outside, over its network ports and
// through its exit: what a user sees, with the clients that users have. It
// knows nothing of what is inside.
//
//	go test ./test/e2e                      builds ./cmd/leasehold and tests it
//	go test ./test/e2e -run Crash -rounds 50
//	go test ./test/e2e -server /path/to/etcd -serve "" -foreign
//
// The last form runs the tests against a real etcd, which shows that they ask
// for what etcd does; -foreign leaves out those about our own words and exits.
package e2e
