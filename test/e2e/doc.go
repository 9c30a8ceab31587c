// Package e2e tests the built binary from outside, through its network ports and exit codes, with
// the same clients that users run. It uses no internal interfaces.
//
//	go test ./test/e2e                      builds ./cmd/leasehold and tests it
//	go test ./test/e2e -run Crash -rounds 50
package e2e
