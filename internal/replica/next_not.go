//go:build !next

package replica

import "leasehold.dev/internal/encoding"

// What the make-believe next release has more is in next.go. This one has nothing of it.

// nextMessage is what of a message only the next version has.
type nextMessage struct{}

// Only the next version reads it.
var _ = Message{}.nextMessage

func (m *Message) append(b []byte) []byte { return m.Reply.append(append(b, wireReply)) }

func (m *Message) size() int { return m.Reply.size() }

func (m *Message) decode(d *encoding.Decoder, kind byte) { d.Unknown("kind", uint64(kind)) }

func (r *Replica) tickNext() {}

func (r *Replica) stepNext(*Message) bool { return false }
