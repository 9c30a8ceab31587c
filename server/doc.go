// Package server is one member as a library: configure it, make it with New,
// run it with Run until the context ends. Programs and tests may embed it; the
// command "leasehold serve" is no more than flags around it.
//
// The member's goroutines are all started here. One of them, the core, owns
// the replica and with it the leases and the keys; the others reach it through
// its inbox and read the immutable views that it publishes. Nothing that the
// core does waits for the disk, a client or a reader. docs/architecture.md
// lists the goroutines and follows a put and an expiry through the code.
package server
