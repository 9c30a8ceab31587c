// Package server is one member as a library: create it with New, and run it with Run until the
// context ends. Programs and tests may embed it; the command "leasehold serve" only adds flags.
//
// This package starts all goroutines of the member. One of them, the core, owns the replica and
// with it the leases and the keys; the others send to its inbox and read the immutable views that
// it publishes. The core never waits for the disk, a client or a reader. docs/architecture.md
// lists the goroutines and follows a put and an expiry through the code.
package server
