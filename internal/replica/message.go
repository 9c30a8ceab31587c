package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

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
	Queries  []lease.ID
	// Abandoned are leases that nobody tends any more; see [Replica.Abandon].
	Abandoned []lease.ID
}

// Ask is one renewal in a Forward. Token is 0 if the holder did not say his.
type Ask struct {
	Seq   uint64
	ID    lease.ID
	Token lease.Token
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
	// wireTokens is a Forward whose renewals have tokens. One without any is sent as
	// wireForward.
	wireTokens
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
	case m.Forward != nil:
		kind := m.Forward.kind()
		return m.Forward.append(append(b, kind), kind == wireTokens)
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
		for _, c := range m.Forward.Commands {
			size += 64 + int(fsm.Cost(c))
		}
	default:
		size += 16 * (len(m.Reply.Refused) + len(m.Reply.Left) + len(m.Reply.Renewed))
	}
	return size
}

// DecodeMessage decodes what AppendTo wrote. It keeps no part of data.
func DecodeMessage(from, to uint64, data []byte) (*Message, error) {
	m := &Message{From: from, To: to}
	if len(data) == 0 {
		return nil, fmt.Errorf("%w: no kind", ErrMessage)
	}
	d := &decoder{b: data[1:]}
	switch data[0] {
	case wireRaft:
		m.Raft = &raftpb.Message{}
		if err := proto.Unmarshal(d.b, m.Raft); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrMessage, err)
		}
		if m.Raft.GetFrom() != from || m.Raft.GetTo() != to {
			return nil, fmt.Errorf("%w: from %x to %x, but it came from %x to %x",
				ErrMessage, m.Raft.GetFrom(), m.Raft.GetTo(), from, to)
		}
		return m, nil
	case wireForward, wireTokens:
		m.Forward = d.forward(data[0] == wireTokens)
	case wireReply:
		m.Reply = d.reply()
	default:
		return nil, fmt.Errorf("%w: of unknown kind %d", ErrMessage, data[0])
	}
	if d.err == nil && len(d.b) > 0 {
		d.fail()
	}
	return m, d.err
}

// kind is the one that the message is sent as.
func (f *Forward) kind() byte {
	if slices.ContainsFunc(f.Renewals, func(a Ask) bool { return a.Token != 0 }) {
		return wireTokens
	}
	return wireForward
}

func (f *Forward) append(b []byte, tokens bool) []byte {
	b = binary.AppendUvarint(b, f.Term)
	b = binary.AppendUvarint(b, f.First)
	b = binary.AppendUvarint(b, f.Base)
	b = binary.AppendUvarint(b, f.Round)
	b = binary.AppendUvarint(b, uint64(len(f.Renewals)))
	for _, a := range f.Renewals {
		b = binary.AppendUvarint(b, a.Seq)
		b = binary.AppendVarint(b, int64(a.ID))
		if tokens {
			b = binary.AppendUvarint(b, uint64(a.Token))
		}
	}
	b = appendIDs(appendIDs(b, f.Queries), f.Abandoned)
	b = binary.AppendUvarint(b, uint64(len(f.Commands)))
	for _, c := range f.Commands {
		b = fsm.AppendCommand(b, c)
	}
	return b
}

func appendIDs(b []byte, ids []lease.ID) []byte {
	b = binary.AppendUvarint(b, uint64(len(ids)))
	for _, id := range ids {
		b = binary.AppendVarint(b, int64(id))
	}
	return b
}

func (d *decoder) ids() []lease.ID {
	ids := make([]lease.ID, d.count())
	for i := range ids {
		ids[i] = lease.ID(d.varint())
	}
	return ids
}

func (d *decoder) forward(tokens bool) *Forward {
	f := &Forward{Term: d.uvarint(), First: d.uvarint(), Base: d.uvarint(), Round: d.uvarint()}
	f.Renewals = make([]Ask, d.count())
	for i := range f.Renewals {
		f.Renewals[i] = Ask{Seq: d.uvarint(), ID: lease.ID(d.varint())}
		if tokens {
			f.Renewals[i].Token = lease.Token(d.uvarint())
		}
	}
	f.Queries, f.Abandoned = d.ids(), d.ids()
	n := d.count()
	if d.err != nil {
		return nil
	}
	f.Commands, d.err = fsm.DecodeCommands(d.b, n)
	d.b = nil
	return f
}

func (r *Reply) append(b []byte) []byte {
	for _, v := range [...]uint64{r.Term, r.Next, r.Round, r.Index, uint64(len(r.Refused))} {
		b = binary.AppendUvarint(b, v)
	}
	for _, f := range r.Refused {
		b = append(binary.AppendUvarint(b, f.Seq), byte(f.Code))
	}
	b = binary.AppendUvarint(b, uint64(len(r.Left)))
	for _, l := range r.Left {
		found := byte(0)
		if l.Found {
			found = 1
		}
		b = append(binary.AppendVarint(b, int64(l.TTL)), found)
	}
	b = binary.AppendUvarint(b, uint64(len(r.Renewed)))
	for _, n := range r.Renewed {
		b = binary.AppendUvarint(b, n.Seq)
		b = append(binary.AppendVarint(b, int64(n.TTL)), byte(n.Code))
	}
	return b
}

func (d *decoder) reply() *Reply {
	r := &Reply{Term: d.uvarint(), Next: d.uvarint(), Round: d.uvarint(), Index: d.uvarint()}
	r.Refused = make([]Refusal, d.count())
	for i := range r.Refused {
		r.Refused[i] = Refusal{Seq: d.uvarint(), Code: Code(d.byte())}
	}
	r.Left = make([]Left, d.count())
	for i := range r.Left {
		r.Left[i] = Left{TTL: lease.TTL(d.varint()), Found: d.byte() != 0}
	}
	r.Renewed = make([]Renewed, d.count())
	for i := range r.Renewed {
		r.Renewed[i] = Renewed{Seq: d.uvarint(), TTL: lease.TTL(d.varint()), Code: Code(d.byte())}
	}
	return r
}

// decoder reads what the append methods wrote. The first error sticks.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail() {
	if d.err == nil {
		d.err = fmt.Errorf("%w: it does not decode", ErrMessage)
	}
	d.b = nil
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.fail()
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

// count reads a number of elements, which take at least a byte each: that
// bounds what a corrupt one can make us allocate.
func (d *decoder) count() int {
	n := d.uvarint()
	if n > uint64(len(d.b)) {
		d.fail()
		return 0
	}
	return int(n)
}
