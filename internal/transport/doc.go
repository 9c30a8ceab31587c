// Package transport carries messages and snapshots between the members of a cluster, over gRPC on
// their peer URLs. It does not interpret them.
//
// Each member opens one connection to each other member and sends all its messages on it, in order.
// So two members have two connections, one for each direction. Messages that arrive during a write
// are sent together in one frame. A snapshot has its own connection, so that a heartbeat never
// waits behind it. gRPC's flow control lets a slow receiver of a snapshot slow down its sender.
//
// The transport guarantees order, but not delivery. Messages arrive in the order they were sent,
// possibly with gaps, never twice, and never damaged (each frame has a checksum). The caller's
// protocol must tolerate loss, as Raft does. [Handler.Unreachable] reports losses.
//
// The transport also detects quickly that a process has died. The kernel closes the connections of
// a killed process immediately and refuses new ones. So when a connection breaks, the transport
// redials immediately. If the connection is refused, or a new process answers, the old process is
// certainly dead, and the transport calls [Handler.Gone]. It does not do so for a member that
// merely fails to answer.
//
// If two live processes have the same identity, because a data directory was copied, the transport
// rejects one of them; see [ErrCopy] and [Handler.Copied].
//
// Members of adjacent versions can communicate: a stream uses the newest format that both ends
// support (see [Formats]).
//
// A connecting member sends its URLs. So even a member that was down while the membership changed
// can answer a member that it does not know, or that has moved; see [Transport.Update].
//
// The transport does not decide which processes are members; the handler's Admit does. It does not
// listen; [Transport.Serve] takes a listener, such as the one from listen.Mux. It does not store
// messages.
//
// All of its goroutines end in [Transport.Close]. For each other member, there is one that dials
// and then writes, one that reports losses, and one for each call of [Transport.Ask]. While the
// member is connected, one more reads and one detects silence. For each stream from another member,
// there is one that reads and one that sends "alive" once a second. In addition, gRPC has its own
// goroutines.
package transport
