//go:build next

package replica

import (
	"encoding/binary"

	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/fsm"
)

// In the make-believe next release a leader has the state count, at each tick, and tells the others
// so. So all that the release has more is in use as soon as the cluster version allows it.

// nextMessage is what of a message only the next version has: the count, at least 1.
type nextMessage struct{ next uint64 }

const (
	wireNext  = wireReply + 1
	sinceNext = 2
)

func (m *Message) append(b []byte) []byte {
	if m.next == 0 {
		return m.Reply.append(append(b, wireReply))
	}
	return binary.AppendUvarint(append(b, wireNext), m.next)
}

func (m *Message) size() int {
	if m.next == 0 {
		return m.Reply.size()
	}
	return binary.MaxVarintLen64
}

func (m *Message) decode(d *encoding.Decoder, kind byte) {
	if kind != wireNext || d.Version() < sinceNext {
		d.Unknown("kind", uint64(kind))
		return
	}
	if m.next = d.Uvarint(); m.next == 0 {
		d.Fail("a count of 0")
	}
}

func (r *Replica) tickNext() {
	if !r.primary || r.machine.Version().Number < sinceNext {
		return
	}
	r.lead.proposeOwn(&fsm.Next{Step: 1}, internal{})
	for _, m := range r.machine.View().Members {
		if m.ID != r.cfg.ID {
			r.send(&Message{To: m.ID, nextMessage: nextMessage{r.ticks + 1}})
		}
	}
}

// stepNext takes the count of a leader, which is all that there is to be done with it.
func (r *Replica) stepNext(m *Message) bool { return m.next != 0 }
