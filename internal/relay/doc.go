// Package relay implements a relay as a library: Config, New, Run. Like a member, a relay serves
// many clients. It forwards their calls to one member over a single stream (see package channel).
//
// A relay has no state and makes no promises. It never answers a call on its own, not even a
// renewal. Every response comes from a member, and the client counts the validity of a lease from a
// time before it sent the request. Therefore, a slow or failed relay can only cause a client to
// consider its lease invalid too early.
//
// Like a client, a relay prefers the leader and moves to another member when necessary. Calls that
// it has already sent to a member stay there until they end.
package relay
