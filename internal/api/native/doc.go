// Package native serves leasehold.v1, the service's own API. It checks requests,
// makes commands and questions of them, and tells the outcome; every error has a
// leaseholdv1.Error in its details, whose reason comes from the one table in
// package api.
//
// It draws what is random: the IDs of leases for which the client named none, and
// their secrets, of which only the hash goes further. It keeps nothing between two
// calls. A stream is one call, and may last as long as its client: its requests, watches,
// caches and turns (stream.go, feed.go) are told of as their outcomes come, and end with it.
package native
