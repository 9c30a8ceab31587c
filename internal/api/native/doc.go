// Package native serves leasehold.v1, the service's own API. It checks requests, turns them into
// commands and reads, and returns the outcome. Every error has a leaseholdv1.Error in its
// details, whose reason comes from the one table in package api.
//
// It draws the random values: lease IDs if the client names none, and secrets, of which only the
// hash goes to the replica. It keeps no state between two calls. A stream is one call, which may
// last as long as its client. The stream sends the outcomes of its requests, watches, caches and
// tickets (stream.go, feed.go) as they come, and all of these end with it.
package native
