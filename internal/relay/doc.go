// Package relay is a relay as a library: Config, New, Run. A relay serves many clients like a
// member, and sends their calls to one member over one stream (package channel).
//
// A relay has no state and makes no promises. It answers no call on its own, not even a renewal:
// each answer comes from a member, and the client counts the validity of a lease from before it
// sent the request. So a slow or failed relay can only end the validity of a lease early.
//
// Like a client, it prefers the leader and moves to another member when necessary. Calls already
// sent to a member stay there until they end.
package relay
