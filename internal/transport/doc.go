// Package transport carries messages and snapshots between the members of a cluster, over gRPC on
// their peer URLs. It does not interpret them.
//
// Each member opens one connection to each other member and sends all its messages on it, in order.
// So between two members there are two connections, one for each direction. Messages that arrive
// during a write leave together in one frame. A snapshot has its own connection, so that a
// heartbeat never waits behind it, and gRPC's flow control, so that a slow receiver slows its
// sender.
//
// The transport promises order, not delivery: messages arrive in the order of sending, perhaps with
// gaps, never twice, and never damaged (each frame has a checksum). The caller's protocol must
// tolerate loss, as Raft does. [Handler.Unreachable] reports losses.
//
// It also detects the death of a process quickly. The kernel closes the connections of a killed
// process at once, and refuses new ones. So the transport redials a broken connection at once. If
// the connection is refused, or a new process answers, the old process is certainly dead:
// [Handler.Gone]. A member that does not answer is not reported as gone.
//
// If two live processes have the same identity, because a data directory was copied, it refuses one
// of them: see [ErrCopy] and [Handler.Copied].
//
// Members of adjacent versions understand each other: a stream uses the newest format that both
// ends support (see [Formats]).
//
// A connecting member sends its URLs. So a member that was down while the membership changed can
// answer a member that is new to it or has moved: see [Transport.Update].
//
// The transport does not decide which processes are members (the handler's Admit does), does not
// listen (give [Transport.Serve] a listener, such as that of listen.Mux), and does not store
// messages.
//
// Goroutines, all of which end in [Transport.Close]: for each other member one that dials and then
// writes, one that reports losses, while connected one that reads and one that detects silence, and
// one for each call of [Transport.Ask]; for each stream from another member one that reads and one
// that sends "alive" once a second; and gRPC's own.
package transport
