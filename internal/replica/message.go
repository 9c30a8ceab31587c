package replica

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/holder"
	"leasehold.dev/internal/version"
	"leasehold.dev/lease"
)

// Message is sent from one member to another. Exactly one of Raft, Forward and Reply is set. It is
// immutable once Take has returned it.
//
// Messages may be lost, repeated and reordered; Raft and the other protocols tolerate that. A
// snapshot message (raftpb.MsgSnap) contains only the snapshot's position. The shell streams the
// state separately; see [Replica.Restore].
type Message struct {
	From, To uint64
	// Version is the cluster version used to encode the contents. The receiver is guaranteed to
	// understand it.
	Version byte
	Raft    *raftpb.Message
	Forward *Forward
	Reply   *Reply
}

// Forward carries requests from another member's clients to the leader: all requests since the last
// Forward.
type Forward struct {
	// Term is the term in which the receiver leads. In any other term, the receiver ignores the
	// message.
	Term uint64
	// First is the number of the first command; the others follow consecutively. Base is the first
	// number that the member used in Term. A different Base means a different incarnation of the
	// member.
	First, Base uint64
	Commands    []fsm.Command
	body        []byte // the encoded commands, as in an entry; see add
	// Traces holds the traces of commands, in command order. Arrived is when the message arrived,
	// according to whatever clock the caller of Step chooses. It is not sent over the network, but
	// returned to the caller in the proposals of traced commands.
	Traces  []TracedCommand
	Arrived int64
	// Round, if not 0, requests a confirm round for the queries.
	Round   uint64
	Queries []lease.ID
	// Groups, if its number is not 0, is a round for the lease groups that the member keeps alive.
	// The leases in Renewals join these groups if Access equals the leader's version of users and
	// roles.
	Groups   holder.Round
	Access   uint64
	Renewals []Ask
	// Abandoned lists leases that are no longer tended; see [Replica.Abandon].
	Abandoned []lease.ID
	// Acks are processed before the Fills of the round.
	Acks  []NumberedAck
	Fills []Fill
	Opens []NumberedOpen
}

// TracedCommand is a command in a Forward with its trace.
type TracedCommand struct {
	Seq uint64
	Trace
}

// trace returns the trace of a command, or nil.
func (f *Forward) trace(seq uint64) *Trace {
	i, ok := slices.BinarySearchFunc(f.Traces, seq, func(t TracedCommand, seq uint64) int {
		return cmp.Compare(t.Seq, seq)
	})
	if !ok {
		return nil
	}
	return &f.Traces[i].Trace
}

// Ask is one renewal in a Forward.
type Ask struct {
	Seq   uint64
	ID    lease.ID
	Token lease.Token // see [Renewal]
}

// Reply is the leader's answer to a member's Forwards. It contains everything that is ready. It
// does not mention admitted commands, because the member finds their outcome in the log.
type Reply struct {
	// Term is the leader's term.
	Term uint64
	// Next is the number of the first command that the leader has not received yet; 0 if it has
	// received no Forward.
	Next    uint64
	Refused []Refusal
	// Round, if not 0, is the number of a confirmed round. Its reads can run once Index is applied.
	// Left answers the round's queries, in order.
	Round uint64
	Index uint64
	Left  []Left
	// GroupRound, if not 0, is the number of a completed round of groups. Groups is its outcome.
	GroupRound uint64
	Groups     []holder.RenewedGroup
	Renewed    []Renewed
	// Filled answers the round's fills, in order. An element is true if the data can be cached in
	// Term.
	Filled        []bool
	Opened        []Opened
	Invalidations []Invalidation
	// Slow lists all slow caches if AboutSlow is set. The leader sends it unprompted.
	AboutSlow bool
	Slow      []SlowNotice
}

// Refusal is the rejection of the command numbered Seq.
type Refusal struct {
	Seq  uint64
	Code Code
}

// Left is how long a lease will live. If the lease is not found, a nonzero TTL means that it has
// expired, and is how much of its lock delay remains.
type Left struct {
	TTL   lease.TTL
	Found bool
}

// Renewed is the outcome of one renewal. Group, if not 0, is the group that the lease belongs to as
// of the group round in the same Reply.
type Renewed struct {
	Seq   uint64
	TTL   lease.TTL
	Code  Code
	Group lease.GroupID
}

// Code is the encoding of an error that one member returns to another.
type Code uint8

// codes lists the errors that a leader returns to other members. A Code is an index into this list;
// 0 means no error. The indexes are part of the wire format, so new errors must be appended.
var codes = [...]error{
	nil, ErrNoLeader, ErrLeaderChanged, ErrOverloaded, ErrInternal,
	lease.ErrNotFound, ErrUnhealthy, ErrTooManyLearners, ErrLearnerNotReady,
	errWaiting, ErrTooLarge, ErrVersion,
}

func codeOf(err error) Code {
	for i, e := range codes {
		if errors.Is(err, e) {
			return Code(i)
		}
	}
	return codeOf(ErrLeaderChanged)
}

// err returns the error for c, which must be valid.
func (c Code) err() error { return codes[c] }

func decodeCode(d *encoding.Decoder) Code {
	return Code(d.Choice("error code", byte(len(codes)-1)))
}

// messageFormat is the format of messages: the version, the kind, and the kind's fields.
var messageFormat = encoding.Format{
	Name: "message between members", Version: version.Newest, Corrupt: ErrMessage,
}

// These constants are the kinds of message.
const (
	wireRaft byte = iota + 1
	wireForward
	wireReply
)

// AppendTo appends the encoding of m, except From and To, which the transport supplies.
func (m *Message) AppendTo(b []byte) []byte {
	b = append(b, m.Version)
	switch {
	case m.Raft != nil:
		out, err := proto.MarshalOptions{}.MarshalAppend(append(b, wireRaft), m.Raft)
		if err != nil {
			panic(fmt.Sprintf("replica: encode a Raft message: %v", err))
		}
		return out
	case m.Forward != nil:
		return m.Forward.append(append(b, wireForward), m.Version)
	default:
		return m.Reply.append(append(b, wireReply))
	}
}

// fixedSize bounds the total encoded size of all parts whose length is bounded.
const fixedSize = 256

// tracedSize is an upper bound on the encoded size of a TracedCommand.
const tracedSize = 34

// Size returns an upper bound on the number of bytes that AppendTo appends. The bound is close for
// a large message.
func (m *Message) Size() int {
	size := fixedSize
	switch {
	case m.Raft != nil:
		for _, e := range m.Raft.GetEntries() {
			size += 40 + len(e.GetData())
		}
		size += len(m.Raft.GetContext())
	case m.Forward != nil:
		size += 28*len(m.Forward.Renewals) + 8*len(m.Forward.Queries) + 8*len(m.Forward.Abandoned)
		size += m.Forward.cachesSize() + m.Forward.groupsSize() + tracedSize*len(m.Forward.Traces)
		size += len(m.Forward.encoded())
	default:
		size += m.Reply.size()
	}
	return size
}

func (r *Reply) size() int {
	return 16*(len(r.Refused)+len(r.Left)) + 32*len(r.Renewed) + r.cachesSize() + r.groupsSize()
}

// DecodeMessage decodes a message written by AppendTo. It does not retain data. For a message from
// a newer release, it returns encoding.ErrNewer.
func DecodeMessage(from, to uint64, data []byte) (*Message, error) {
	m := &Message{From: from, To: to}
	d := messageFormat.Open(data)
	m.Version = d.Version()
	switch kind := d.Byte(); kind {
	case wireRaft:
		m.Raft = &raftpb.Message{}
		if err := proto.Unmarshal(d.Rest(), m.Raft); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrMessage, err)
		}
		if m.Raft.GetFrom() != from || m.Raft.GetTo() != to {
			return nil, fmt.Errorf("%w: addressed from %x to %x, but sent from %x to %x",
				ErrMessage, m.Raft.GetFrom(), m.Raft.GetTo(), from, to)
		}
	case wireForward:
		var err error
		if m.Forward, err = decodeForward(&d); err != nil {
			return nil, err
		}
	case wireReply:
		m.Reply = decodeReply(&d)
	default:
		d.Unknown("kind", uint64(kind))
	}
	if err := d.End(); err != nil {
		return nil, err
	}
	return m, nil
}

// These flags indicate which fields a Forward has.
const (
	forwardRenewals byte = 1 << iota
	forwardTokens        // sent with the renewals
	forwardGroups
	forwardQueries
	forwardAbandoned
	forwardCaches
	forwardCommands // encoded like a log entry, up to the end of the message
	forwardTraces   // precede the commands

	forwardFlags = forwardRenewals | forwardTokens | forwardGroups | forwardQueries |
		forwardAbandoned | forwardCaches | forwardCommands | forwardTraces
)

// add adds a command unless the command is too large. It encodes the command immediately, so the
// size of the message is exact rather than an estimate.
func (f *Forward) add(c fsm.Command) (ok bool) {
	if f.body, ok = appendCommand(f.body, c); ok {
		f.Commands = append(f.Commands, c)
	}
	return ok
}

// encoded returns the commands in the encoding of an entry.
func (f *Forward) encoded() []byte {
	body := f.body
	if body == nil { // f came from another member
		for _, c := range f.Commands {
			body = fsm.AppendCommand(body, c)
		}
	}
	return body
}

func (f *Forward) append(b []byte, v byte) []byte {
	tokens := slices.ContainsFunc(f.Renewals, func(a Ask) bool { return a.Token != 0 })
	b = append(b, encoding.Flag(len(f.Renewals) > 0, forwardRenewals)|
		encoding.Flag(tokens, forwardTokens)|
		encoding.Flag(f.Groups.Number > 0, forwardGroups)|
		encoding.Flag(len(f.Queries) > 0, forwardQueries)|
		encoding.Flag(len(f.Abandoned) > 0, forwardAbandoned)|
		encoding.Flag(f.aboutCaches(), forwardCaches)|
		encoding.Flag(len(f.Commands) > 0, forwardCommands)|
		encoding.Flag(len(f.Traces) > 0, forwardTraces))
	for _, v := range [...]uint64{f.Term, f.First, f.Base, f.Round} {
		b = binary.AppendUvarint(b, v)
	}
	if len(f.Renewals) > 0 {
		b = encoding.AppendList(b, f.Renewals, func(b []byte, a Ask) []byte {
			b = appendID(binary.AppendUvarint(b, a.Seq), a.ID)
			if tokens {
				b = binary.AppendUvarint(b, uint64(a.Token))
			}
			return b
		})
	}
	if f.Groups.Number > 0 {
		b = f.appendGroups(b)
	}
	if len(f.Queries) > 0 {
		b = encoding.AppendList(b, f.Queries, appendID)
	}
	if len(f.Abandoned) > 0 {
		b = encoding.AppendList(b, f.Abandoned, appendID)
	}
	if f.aboutCaches() {
		b = f.appendCaches(b)
	}
	if len(f.Traces) > 0 {
		b = encoding.AppendList(b, f.Traces, func(b []byte, t TracedCommand) []byte {
			return append(append(binary.AppendUvarint(b, t.Seq), t.ID[:]...), t.Span[:]...)
		})
	}
	if len(f.Commands) > 0 {
		b = fsm.AppendGroup(fsm.AppendEntry(b, v), fsm.Origin{}, len(f.Commands))
		b = append(b, f.encoded()...)
	}
	return b
}

// appendID appends a lease ID. Most IDs are random, so a varint would be longer.
func appendID(b []byte, id lease.ID) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(id))
}

func decodeForward(d *encoding.Decoder) (*Forward, error) {
	id := func() lease.ID { return lease.ID(d.Uint64()) }
	has := d.Flags("a forward", forwardFlags)
	f := &Forward{Term: d.Uvarint(), First: d.Uvarint(), Base: d.Uvarint(), Round: d.Uvarint()}
	if has&(forwardRenewals|forwardTokens) == forwardTokens {
		d.Fail("tokens without renewals")
	}
	if has&forwardRenewals != 0 {
		f.Renewals = encoding.List(d, func() Ask {
			a := Ask{Seq: d.Uvarint(), ID: id()}
			if has&forwardTokens != 0 {
				a.Token = lease.Token(d.Uvarint())
			}
			return a
		})
	}
	if has&forwardGroups != 0 {
		f.decodeGroups(d)
	}
	if has&forwardQueries != 0 {
		f.Queries = encoding.List(d, id)
	}
	if has&forwardAbandoned != 0 {
		f.Abandoned = encoding.List(d, id)
	}
	if has&forwardCaches != 0 {
		f.decodeCaches(d)
	}
	if has&forwardTraces != 0 {
		f.Traces = encoding.List(d, func() TracedCommand {
			t := TracedCommand{Seq: d.Uvarint()}
			binary.BigEndian.PutUint64(t.ID[:8], d.Uint64())
			binary.BigEndian.PutUint64(t.ID[8:], d.Uint64())
			binary.BigEndian.PutUint64(t.Span[:], d.Uint64())
			return t
		})
	}
	if has&forwardCommands == 0 || d.Err() != nil {
		return f, d.Err()
	}
	if v := d.Peek(); v > d.Version() {
		d.Unknown("command version", uint64(v))
		return f, d.Err()
	}
	commands, err := fsm.DecodeCommands(d.Rest())
	if err != nil && !errors.Is(err, encoding.ErrNewer) {
		err = fmt.Errorf("%w: %w", ErrMessage, err)
	}
	f.Commands = commands
	return f, err
}

// These flags indicate which fields a Reply has.
const (
	replyRefused byte = 1 << iota
	replyLeft
	replyRenewed
	replyGroups
	replyCaches
	replySlow

	replyFlags = replyRefused | replyLeft | replyRenewed | replyGroups | replyCaches | replySlow
)

func (r *Reply) append(b []byte) []byte {
	b = append(b, encoding.Flag(len(r.Refused) > 0, replyRefused)|
		encoding.Flag(len(r.Left) > 0, replyLeft)|
		encoding.Flag(len(r.Renewed) > 0, replyRenewed)|
		encoding.Flag(r.GroupRound > 0, replyGroups)|
		encoding.Flag(r.aboutCaches(), replyCaches)|
		encoding.Flag(r.AboutSlow, replySlow))
	for _, v := range [...]uint64{r.Term, r.Next, r.Round, r.Index} {
		b = binary.AppendUvarint(b, v)
	}
	if len(r.Refused) > 0 {
		b = encoding.AppendList(b, r.Refused, func(b []byte, f Refusal) []byte {
			return append(binary.AppendUvarint(b, f.Seq), byte(f.Code))
		})
	}
	if len(r.Left) > 0 {
		b = encoding.AppendList(b, r.Left, func(b []byte, l Left) []byte {
			return append(binary.AppendVarint(b, int64(l.TTL)), encoding.Flag(l.Found, leftFound))
		})
	}
	if len(r.Renewed) > 0 {
		b = encoding.AppendList(b, r.Renewed, func(b []byte, n Renewed) []byte {
			b = binary.AppendVarint(binary.AppendUvarint(b, n.Seq), int64(n.TTL))
			return binary.AppendUvarint(append(b, byte(n.Code)), uint64(n.Group))
		})
	}
	if r.GroupRound > 0 {
		b = r.appendGroups(b)
	}
	if r.aboutCaches() {
		b = r.appendCaches(b)
	}
	if r.AboutSlow {
		b = r.appendSlow(b)
	}
	return b
}

// leftFound marks a Left whose lease was found.
const leftFound byte = 1

func decodeReply(d *encoding.Decoder) *Reply {
	has := d.Flags("a reply", replyFlags)
	r := &Reply{
		Term: d.Uvarint(), Next: d.Uvarint(), Round: d.Uvarint(), Index: d.Uvarint(),
		AboutSlow: has&replySlow != 0,
	}
	if has&replyRefused != 0 {
		r.Refused = encoding.List(d, func() Refusal {
			return Refusal{Seq: d.Uvarint(), Code: decodeCode(d)}
		})
	}
	if has&replyLeft != 0 {
		r.Left = encoding.List(d, func() Left {
			return Left{TTL: lease.TTL(d.Varint()), Found: d.Flags("a left", leftFound) != 0}
		})
	}
	if has&replyRenewed != 0 {
		r.Renewed = encoding.List(d, func() Renewed {
			return Renewed{
				Seq: d.Uvarint(), TTL: lease.TTL(d.Varint()), Code: decodeCode(d),
				Group: lease.GroupID(d.Uvarint()),
			}
		})
	}
	if has&replyGroups != 0 {
		r.decodeGroups(d)
	}
	if has&replyCaches != 0 {
		r.decodeCaches(d)
	}
	if r.AboutSlow {
		r.decodeSlow(d)
	}
	return r
}
