// Package transport carries messages and snapshots between the members of a
// cluster, over gRPC on their peer URLs. It does not know what they mean.
//
// Each member opens one connection to each other member and sends on it, in
// order, all that it has to say: between two members there are two connections,
// one for each direction. Messages that gather while a write is under way leave
// in one frame. A snapshot travels on a connection of its own, so that a
// heartbeat never queues behind it, and under gRPC's flow control, so that a
// slow receiver slows its sender.
//
// The transport promises order, not delivery: what one member sends arrives in
// the order of sending, perhaps with gaps, never twice, and never damaged (each
// frame has a checksum). The caller's protocol must stand loss; Raft does. Of
// each loss the caller is told through [Handler.Unreachable].
//
// It also finds out quickly who has died. The kernel closes the connections of
// a killed process at once, and refuses new ones; so a connection that breaks is
// dialed again in the same moment, and if the answer is "refused", or if a new
// process answers, the old one is gone for certain: [Handler.Gone]. A member
// that merely does not answer is not gone, whatever it is.
//
// Of two processes with one identity that are alive, which a copied data directory makes, it
// refuses one: see [ErrCopy] and [Handler.Copied].
//
// Members of neighboring versions understand each other: a stream has the newest format that both
// ends speak, see [Formats].
//
// The caller says where it listens. So a member that was down while the others
// changed can answer one that it does not know, or that has moved: see
// [Transport.Update].
//
// Beside messages there are notes, which may be lost and which an older release does not take:
// see [Transport.Note].
//
// What the transport does not do: it does not decide who is a member (the
// handler's Admit does), does not listen (give [Transport.Serve] a listener, as
// listen.Mux has one), and does not keep a message for later.
//
// Goroutines, all of which end in [Transport.Close]: for each other member one
// that dials and then writes, one that reports losses, while connected one
// that reads and one that watches for silence, and one for each question of
// [Transport.Ask]; for each stream from another member one that reads and one
// that says "alive" once a second; and gRPC's own.
package transport
