// Package e2e tests the built binary from outside, over its network ports and by its exit codes,
// with the clients that users have. It uses nothing internal.
//
//	go test ./test/e2e                      builds ./cmd/leasehold and tests it
//	go test ./test/e2e -run Crash -rounds 50
//	go test ./test/e2e -server /path/to/etcd -serve "" -foreign
//
// The last form runs the tests against a real etcd, which shows that they expect what etcd does;
// -foreign skips those about Leasehold's own messages and exit codes.
package e2e
