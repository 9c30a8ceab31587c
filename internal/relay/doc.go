// Package relay is a relay as a library: Config, New, Run. A relay serves many clients like a
// member, and carries their calls to one member over one stream (package channel).
//
// A relay has no state and makes no promises. It answers no call itself, not even a renewal: each
// answer comes from a member, and the client counts the validity of a lease from before it sent
// the request. So a relay that is slow or dead can only end a validity early.
//
// Like a client, it prefers the leader and turns to another member when it must. Calls that it
// has already carried to a member stay there until they end.
package relay
