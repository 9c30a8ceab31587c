package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// Message travels from one member to another. Exactly one of Raft, Forward
// and Reply is set. It is immutable once Take has returned it.
//
// Messages may be lost, repeated and reordered; Raft's and the others all
// stand that. A snapshot's message (raftpb.MsgSnap) says only where the snapshot
// stands: the shell streams the state beside it, see [Replica.Restore].
type Message struct {
	From, To uint64
	Raft     *raftpb.Message
	Forward  *Forward
	Reply    *Reply
}

// Forward carries to the leader what clients asked of another member: all that
// gathered since the last one.
type Forward struct {
	// Term is the one in which the leader is asked; in any other it ignores this.
	Term uint64
	// First is the number of the first command; the others follow without a gap.
	// Base is the first number that the member used in Term; another Base is another
	// life of the member.
	First, Base uint64
	Commands    []fsm.Command
	// Round, if not 0, asks for a confirm round; the renewals and queries
	// are asked with it.
	Round    uint64
	Renewals []Ask
	Batches  []AskAll
	Queries  []lease.ID
	// Abandoned are leases that nobody tends any more; see [Replica.Abandon].
	Abandoned []lease.ID
	// Acks come before the Fills that are asked with the round.
	Acks  []NumberedAck
	Fills []Fill
	Opens []NumberedOpen
}

// Ask is one renewal in a Forward.
type Ask struct {
	Seq   uint64
	ID    lease.ID
	Token lease.Token // see [Renewal]
}

// Reply is the leader's answer to a member's Forwards: whatever is ready.
// Commands that were admitted are not in it, because the member learns their
// outcome from the log.
type Reply struct {
	// Term is the leader's.
	Term uint64
	// Next is the number of the first command not yet received; 0 if none was.
	Next    uint64
	Refused []Refusal
	// Round, if not 0, is confirmed: what is applied at Index or later may be read.
	// Left tells of the round's queries, in order.
	Round   uint64
	Index   uint64
	Left    []Left
	Renewed []Renewed
	Batches []RenewedAll
	// Filled tells of the round's fills, in order: they may be cached in Term.
	Filled        []bool
	Opened        []Opened
	Invalidations []Invalidation
	// Slow are, if AboutSlow, all caches that are slow now. That is told unasked.
	AboutSlow bool
	Slow      []SlowNotice
}

// Refusal says that the command with a number was not admitted.
type Refusal struct {
	Seq  uint64
	Code Code
}

// Left is what a lease has left to live. One that is not found may have a TTL: it is over,
// and its lock delay runs for so long.
type Left struct {
	TTL   lease.TTL
	Found bool
}

// Renewed is the outcome of one renewal.
type Renewed struct {
	Seq  uint64
	TTL  lease.TTL
	Code Code
}

// Code is an error on its way between members.
type Code uint8

// codes lists the errors that a leader answers to other members; a Code is a
// place in it, and 0 is no error. The places are on the wire: only append.
var codes = [...]error{
	nil, ErrNoLeader, ErrLeaderChanged, ErrOverloaded, ErrInternal,
	lease.ErrNotFound, ErrUnhealthy, ErrTooManyLearners, ErrLearnerNotReady,
	errWaiting,
}

func codeOf(err error) Code {
	for i, e := range codes {
		if errors.Is(err, e) {
			return Code(i)
		}
	}
	return codeOf(ErrLeaderChanged)
}

// err returns the error of c.
func (c Code) err() error {
	if int(c) >= len(codes) { // of a newer release
		return ErrLeaderChanged
	}
	return codes[c]
}

// The kinds of message, and the version of their encoding, in the first byte.
const (
	wireRaft byte = iota + 1
	wireForward
	wireReply
	// wireForwardTokens is a Forward with the tokens of its renewals, which the
	// first releases did not know: only if there are any.
	wireForwardTokens
	// These two are a Forward with tokens and a Reply with what is about caches: only
	// if there is any.
	wireForwardCaches
	wireReplyCaches
	// These two are the ones before with batches of renewals: only if there are any.
	wireForwardBatches
	wireReplyBatches
)

// AppendTo appends the encoding of m, without From and To, which the
// transport knows.
func (m *Message) AppendTo(b []byte) []byte {
	switch {
	case m.Raft != nil:
		out, err := proto.MarshalOptions{}.MarshalAppend(append(b, wireRaft), m.Raft)
		if err != nil {
			panic(fmt.Sprintf("replica: encode a message of Raft's: %v", err))
		}
		return out
	case m.Forward != nil && len(m.Forward.Batches) > 0:
		b = m.Forward.appendBatches(append(b, wireForwardBatches))
		return m.Forward.append(m.Forward.appendCaches(b), true)
	case m.Forward != nil && m.Forward.aboutCaches():
		b = m.Forward.appendCaches(append(b, wireForwardCaches))
		return m.Forward.append(b, true)
	case m.Forward != nil:
		if slices.ContainsFunc(m.Forward.Renewals, func(a Ask) bool { return a.Token != 0 }) {
			return m.Forward.append(append(b, wireForwardTokens), true)
		}
		return m.Forward.append(append(b, wireForward), false)
	case len(m.Reply.Batches) > 0:
		b = m.Reply.appendBatches(append(b, wireReplyBatches))
		return m.Reply.append(m.Reply.appendCaches(b))
	case m.Reply.aboutCaches():
		return m.Reply.append(m.Reply.appendCaches(append(b, wireReplyCaches)))
	default:
		return m.Reply.append(append(b, wireReply))
	}
}

// Size returns about how many bytes AppendTo appends.
func (m *Message) Size() int {
	size := 64
	switch {
	case m.Raft != nil:
		for _, e := range m.Raft.GetEntries() {
			size += 32 + len(e.GetData())
		}
	case m.Forward != nil:
		size += 24*len(m.Forward.Renewals) + 8*len(m.Forward.Queries) + 8*len(m.Forward.Abandoned)
		size += m.Forward.cachesSize() + m.Forward.batchesSize()
		for _, c := range m.Forward.Commands {
			size += fsm.Size(c)
		}
	default:
		size += 16 * (len(m.Reply.Refused) + len(m.Reply.Left) + len(m.Reply.Renewed))
		size += m.Reply.cachesSize() + m.Reply.batchesSize()
	}
	return size
}

// DecodeMessage decodes what AppendTo wrote. It keeps no part of data.
func DecodeMessage(from, to uint64, data []byte) (*Message, error) {
	m := &Message{From: from, To: to}
	if len(data) == 0 {
		return nil, fmt.Errorf("%w: no kind", ErrMessage)
	}
	d := encoding.NewDecoder(data[1:], ErrMessage)
	switch data[0] {
	case wireRaft:
		m.Raft = &raftpb.Message{}
		if err := proto.Unmarshal(d.Rest(), m.Raft); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrMessage, err)
		}
		if m.Raft.GetFrom() != from || m.Raft.GetTo() != to {
			return nil, fmt.Errorf("%w: from %x to %x, but it came from %x to %x",
				ErrMessage, m.Raft.GetFrom(), m.Raft.GetTo(), from, to)
		}
	case wireForward, wireForwardTokens:
		m.Forward = decodeForward(&d, data[0] == wireForwardTokens)
	case wireForwardCaches, wireForwardBatches:
		first := Forward{}
		if data[0] == wireForwardBatches {
			first.decodeBatches(&d)
		}
		first.decodeCaches(&d)
		m.Forward = decodeForward(&d, true)
		m.Forward.Acks, m.Forward.Fills, m.Forward.Opens = first.Acks, first.Fills, first.Opens
		m.Forward.Batches = first.Batches
	case wireReply:
		m.Reply = decodeReply(&d)
	case wireReplyCaches, wireReplyBatches:
		first := Reply{}
		if data[0] == wireReplyBatches {
			first.decodeBatches(&d)
		}
		first.decodeCaches(&d)
		m.Reply = decodeReply(&d)
		m.Reply.Filled, m.Reply.Opened = first.Filled, first.Opened
		m.Reply.Invalidations = first.Invalidations
		m.Reply.AboutSlow, m.Reply.Slow = first.AboutSlow, first.Slow
		m.Reply.Batches = first.Batches
	default:
		return nil, fmt.Errorf("%w: of unknown kind %d", ErrMessage, data[0])
	}
	if err := d.End(); err != nil {
		return nil, err
	}
	return m, nil
}

func (f *Forward) append(b []byte, tokens bool) []byte {
	for _, v := range [...]uint64{f.Term, f.First, f.Base, f.Round} {
		b = binary.AppendUvarint(b, v)
	}
	b = encoding.AppendList(b, f.Renewals, func(b []byte, a Ask) []byte {
		b = appendID(binary.AppendUvarint(b, a.Seq), a.ID)
		if tokens {
			b = binary.AppendUvarint(b, uint64(a.Token))
		}
		return b
	})
	b = encoding.AppendList(b, f.Queries, appendID)
	b = encoding.AppendList(b, f.Abandoned, appendID)
	return encoding.AppendList(b, f.Commands, fsm.AppendCommand)
}

func appendID(b []byte, id lease.ID) []byte { return binary.AppendVarint(b, int64(id)) }

func decodeForward(d *encoding.Decoder, tokens bool) *Forward {
	id := func() lease.ID { return lease.ID(d.Varint()) }
	ask := func() Ask {
		a := Ask{Seq: d.Uvarint(), ID: id()}
		if tokens {
			a.Token = lease.Token(d.Uvarint())
		}
		return a
	}
	f := &Forward{
		Term: d.Uvarint(), First: d.Uvarint(), Base: d.Uvarint(), Round: d.Uvarint(),
		Renewals:  encoding.List(d, ask),
		Queries:   encoding.List(d, id),
		Abandoned: encoding.List(d, id),
	}
	n := d.Count()
	commands, err := fsm.DecodeCommands(d.Rest(), n)
	if err != nil {
		d.Fail(err.Error())
	}
	f.Commands = commands
	return f
}

func (r *Reply) append(b []byte) []byte {
	for _, v := range [...]uint64{r.Term, r.Next, r.Round, r.Index} {
		b = binary.AppendUvarint(b, v)
	}
	b = encoding.AppendList(b, r.Refused, func(b []byte, f Refusal) []byte {
		return append(binary.AppendUvarint(b, f.Seq), byte(f.Code))
	})
	b = encoding.AppendList(b, r.Left, func(b []byte, l Left) []byte {
		return encoding.AppendBools(binary.AppendVarint(b, int64(l.TTL)), l.Found)
	})
	return encoding.AppendList(b, r.Renewed, func(b []byte, n Renewed) []byte {
		b = binary.AppendVarint(binary.AppendUvarint(b, n.Seq), int64(n.TTL))
		return append(b, byte(n.Code))
	})
}

func decodeReply(d *encoding.Decoder) *Reply {
	return &Reply{
		Term: d.Uvarint(), Next: d.Uvarint(), Round: d.Uvarint(), Index: d.Uvarint(),
		Refused: encoding.List(d, func() Refusal {
			return Refusal{Seq: d.Uvarint(), Code: Code(d.Byte())}
		}),
		Left: encoding.List(d, func() Left {
			return Left{TTL: lease.TTL(d.Varint()), Found: d.Byte() != 0}
		}),
		Renewed: encoding.List(d, func() Renewed {
			return Renewed{Seq: d.Uvarint(), TTL: lease.TTL(d.Varint()), Code: Code(d.Byte())}
		}),
	}
}
