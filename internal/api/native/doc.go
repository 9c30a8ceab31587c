// Package native serves leasehold.v1, the service's own API. It checks requests, translates them
// into commands and reads, and returns the outcome. The details of every error include a
// leaseholdv1.Error. Its reason comes from the single table in package api.
//
// The package generates random values: lease IDs, unless clients choose them, and secrets. Only the
// hash of a secret is sent to the replica. The package keeps no state between calls. A stream is
// one call and may last as long as its client. It sends the results of its requests, watches,
// caches and tickets (stream.go, feed.go) as they become available. All of these end with the
// stream.
package native
