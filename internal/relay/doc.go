// Package relay is a relay as a library: Config, New, Run. A relay serves many clients in the place
// of a member, and carries their calls to one member over one stream (package channel).
//
// It keeps nothing and promises nothing. It answers no call itself, least of all a renewal: each
// answer is that of a member, and what a client may conclude from it the client counts from before
// it has asked. So a relay that is slow or dead can only end a validity early.
//
// It is with the member that leads, as a client is, and turns to another one as a client does.
// Calls that were carried to a member before stay with that one until they end.
package relay
