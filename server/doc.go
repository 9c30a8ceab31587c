// Package server implements a member as a library. Create it with New, and run it with Run until
// the context ends. Programs and tests can embed it. The command "leasehold serve" only adds flags.
//
// All goroutines of the member are started in this package. One of them, the core, owns the
// replica, and with it the leases and the keys. The others send to its inbox, and read the
// immutable views that it publishes. The core never waits for the disk, a client or a reader.
// docs/architecture.md lists the goroutines, and follows a put and an expiry through the code.
package server
