package fsm

import (
	"encoding/binary"
	"errors"
	"fmt"

	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// ErrCorrupt means that bytes from the log or a snapshot do not decode.
var ErrCorrupt = errors.New("fsm: corrupt encoding")

// decoder takes commands and what is in them.
type decoder struct{ encoding.Decoder }

func newDecoder(b []byte) *decoder { return &decoder{encoding.NewDecoder(b, ErrCorrupt)} }

// logVersion is the version of the encoding of log entries, their first byte.
// Version 1 had no origins, and is still read.
const logVersion = 2

// maxTxnDepth bounds the nesting of transactions, so that a hostile entry
// cannot exhaust the stack. The API refuses deeper ones before they are
// proposed.
const maxTxnDepth = 32

// An entry of the log is the version byte followed by the commands that were
// proposed together. AppendEntry begins one, AppendCommand adds to it. Commands
// that came through another member than the one that proposed them stand
// behind an AppendOrigin.

// Origin says through which member commands came, so that this member knows
// the outcome as its own when it applies them.
type Origin struct {
	// Member is the member's ID, 0 for the one that proposed the entry.
	Member uint64
	// Seq is the member's number for the first of the commands; the others follow.
	Seq uint64
}

// Group is commands of one entry that have one origin.
type Group struct {
	Origin   Origin
	Commands []Command
}

// originMark stands where a command's kind would, before an origin.
const originMark = 0xff

// AppendEntry begins the encoding of a log entry.
func AppendEntry(b []byte) []byte { return append(b, logVersion) }

// AppendOrigin says that the n commands that follow in the entry came from o.
func AppendOrigin(b []byte, o Origin, n int) []byte {
	b = append(b, originMark)
	b = binary.BigEndian.AppendUint64(b, o.Member)
	b = binary.BigEndian.AppendUint64(b, o.Seq)
	return binary.AppendUvarint(b, uint64(n))
}

// DecodeEntry decodes a log entry. It keeps no part of data.
func DecodeEntry(data []byte) ([]Group, error) {
	d := newDecoder(data)
	if v := d.Byte(); d.Err() == nil && (v == 0 || v > logVersion) {
		return nil, fmt.Errorf("%w: log entry of version %d, this release reads up to %d",
			ErrCorrupt, v, logVersion)
	}
	var groups []Group
	for d.Len() > 0 {
		groups = append(groups, d.group())
	}
	if err := d.Err(); err != nil {
		return nil, err
	}
	return groups, nil
}

// group decodes commands up to where the origin changes.
func (d *decoder) group() Group {
	var g Group
	if d.Peek() != originMark {
		for d.Len() > 0 && d.Peek() != originMark {
			g.Commands = append(g.Commands, d.command())
		}
		return g
	}
	d.Byte()
	g.Origin = Origin{Member: d.Uint64(), Seq: d.Uint64()}
	n := d.Count()
	g.Commands = make([]Command, 0, n)
	for range n {
		g.Commands = append(g.Commands, d.command())
	}
	return g
}

// DecodeCommands decodes n commands, one AppendCommand after another, of which
// nothing is known yet: they came from outside. It keeps no part of data.
func DecodeCommands(data []byte, n int) ([]Command, error) {
	d := newDecoder(data)
	var commands []Command
	for range n {
		if commands = append(commands, d.command()); d.Err() != nil {
			break
		}
	}
	if err := d.End(); err != nil {
		return nil, err
	}
	return commands, nil
}

// AppendCommand appends the encoding of one command to an entry.
func AppendCommand(b []byte, c Command) []byte {
	b = append(b, byte(c.kind()))
	switch c := c.(type) {
	case *Put:
		return appendPut(b, c)
	case *DeleteRange:
		return appendDelete(b, c)
	case *Txn:
		return appendTxn(b, c)
	case *Compact:
		return binary.AppendVarint(b, c.Revision)
	case *Grant:
		return appendTerms(b, c.Terms)
	case *Revoke:
		return binary.AppendVarint(b, int64(c.ID))
	case *Expire:
		return appendExpire(b, c)
	case *Checkpoint:
		return appendCheckpoint(b, c)
	case *SetAlarm:
		b = encoding.AppendBools(b, c.Off)
		b = binary.AppendUvarint(b, c.Alarm.Member)
		return append(b, byte(c.Alarm.Kind))
	case *SetMember:
		return appendMember(b, c.Member)
	case *AddMember:
		return appendMember(b, c.Member)
	case *RemoveMember:
		return binary.AppendUvarint(b, c.ID)
	case *PromoteMember:
		return binary.AppendUvarint(b, c.ID)
	default:
		panic(fmt.Sprintf("fsm: no encoding for %T", c))
	}
}

func (d *decoder) command() Command {
	switch k := kind(d.Byte()); k {
	case kindPut:
		return d.put()
	case kindDeleteRange:
		return d.deleteRange()
	case kindTxn:
		return d.txn(0)
	case kindCompact:
		return &Compact{Revision: d.Varint()}
	case kindGrant:
		return &Grant{Terms: d.terms()}
	case kindRevoke:
		return &Revoke{ID: lease.ID(d.Varint())}
	case kindExpire:
		return d.expire()
	case kindCheckpoint:
		return d.checkpoint()
	case kindSetAlarm:
		off := d.Byte()&1 != 0
		return &SetAlarm{Off: off, Alarm: Alarm{Member: d.Uvarint(), Kind: AlarmKind(d.Byte())}}
	case kindSetMember:
		return &SetMember{Member: d.member()}
	case kindAddMember:
		return &AddMember{Member: d.member()}
	case kindRemoveMember:
		return &RemoveMember{ID: d.Uvarint()}
	case kindPromoteMember:
		return &PromoteMember{ID: d.Uvarint()}
	default:
		d.Fail(fmt.Sprintf("command of unknown kind %d", k))
		return nil
	}
}

func appendPut(b []byte, c *Put) []byte {
	b = encoding.AppendBools(b, c.PrevKV, c.IgnoreValue, c.IgnoreLease)
	b = encoding.AppendBytes(b, c.Key)
	b = encoding.AppendBytes(b, c.Value)
	return binary.AppendVarint(b, int64(c.Lease))
}

func (d *decoder) put() *Put {
	f := d.Byte()
	return &Put{
		PrevKV: f&1 != 0, IgnoreValue: f&2 != 0, IgnoreLease: f&4 != 0,
		Key: d.Text(), Value: d.Bytes(), Lease: lease.ID(d.Varint()),
	}
}

func appendDelete(b []byte, c *DeleteRange) []byte {
	b = encoding.AppendBools(b, c.PrevKV)
	return encoding.AppendBytes(encoding.AppendBytes(b, c.Key), c.End)
}

func (d *decoder) deleteRange() *DeleteRange {
	f := d.Byte()
	return &DeleteRange{PrevKV: f&1 != 0, Key: d.Text(), End: d.Text()}
}

func appendRange(b []byte, c *Range) []byte {
	o := &c.Options
	b = encoding.AppendBools(b, o.Descend, o.CountOnly)
	b = append(b, byte(o.SortBy))
	b = encoding.AppendBytes(encoding.AppendBytes(b, c.Key), c.End)
	for _, v := range [...]int64{
		o.Revision, o.Limit, o.MinModRevision, o.MaxModRevision,
		o.MinCreateRevision, o.MaxCreateRevision,
	} {
		b = binary.AppendVarint(b, v)
	}
	return b
}

func (d *decoder) rangeOp() *Range {
	f := d.Byte()
	r := &Range{Options: mvcc.RangeOptions{Descend: f&1 != 0, CountOnly: f&2 != 0}}
	o := &r.Options
	o.SortBy = mvcc.SortBy(d.Byte())
	r.Key, r.End = d.Text(), d.Text()
	for _, v := range [...]*int64{
		&o.Revision, &o.Limit, &o.MinModRevision, &o.MaxModRevision,
		&o.MinCreateRevision, &o.MaxCreateRevision,
	} {
		*v = d.Varint()
	}
	return r
}

func appendTxn(b []byte, c *Txn) []byte {
	b = encoding.AppendList(b, c.Compare, appendCompare)
	b = encoding.AppendList(b, c.Then, appendOp)
	return encoding.AppendList(b, c.Else, appendOp)
}

func (d *decoder) txn(depth int) *Txn {
	if depth > maxTxnDepth {
		d.Fail("transaction nested too deeply")
		return &Txn{}
	}
	op := func() Op { return d.op(depth) }
	return &Txn{
		Compare: encoding.List(&d.Decoder, d.compare),
		Then:    encoding.List(&d.Decoder, op),
		Else:    encoding.List(&d.Decoder, op),
	}
}

func appendCompare(b []byte, c Compare) []byte {
	b = append(b, byte(c.Target), byte(c.Relation))
	b = encoding.AppendBytes(encoding.AppendBytes(b, c.Key), c.End)
	if c.Target == TargetValue {
		return encoding.AppendBytes(b, c.Value)
	}
	return binary.AppendVarint(b, c.Number)
}

func (d *decoder) compare() Compare {
	c := Compare{Target: Target(d.Byte()), Relation: Relation(d.Byte())}
	if c.Target > TargetLease || c.Relation > NotEqual {
		d.Fail("compare")
	}
	c.Key, c.End = d.Text(), d.Text()
	if c.Target == TargetValue {
		c.Value = d.Bytes()
	} else {
		c.Number = d.Varint()
	}
	return c
}

// opKind tags an operation inside a transaction.
const (
	opPut byte = iota + 1
	opDelete
	opRange
	opTxn
)

func appendOp(b []byte, op Op) []byte {
	switch {
	case op.Put != nil:
		return appendPut(append(b, opPut), op.Put)
	case op.Delete != nil:
		return appendDelete(append(b, opDelete), op.Delete)
	case op.Range != nil:
		return appendRange(append(b, opRange), op.Range)
	case op.Txn != nil:
		return appendTxn(append(b, opTxn), op.Txn)
	default:
		panic("fsm: empty operation in a transaction")
	}
}

func (d *decoder) op(depth int) Op {
	switch d.Byte() {
	case opPut:
		return Op{Put: d.put()}
	case opDelete:
		return Op{Delete: d.deleteRange()}
	case opRange:
		return Op{Range: d.rangeOp()}
	case opTxn:
		return Op{Txn: d.txn(depth + 1)}
	default:
		d.Fail("operation of unknown kind")
		return Op{}
	}
}

func appendTerms(b []byte, t lease.Terms) []byte {
	b = binary.AppendVarint(b, int64(t.ID))
	b = binary.AppendVarint(b, int64(t.TTL))
	for _, s := range [...]string{t.Name, t.Owner, t.RequestID} {
		b = encoding.AppendBytes(b, s)
	}
	return encoding.AppendMap(b, t.Labels)
}

func (d *decoder) terms() lease.Terms {
	return lease.Terms{
		ID: lease.ID(d.Varint()), TTL: lease.TTL(d.Varint()),
		Name: d.Text(), Owner: d.Text(), RequestID: d.Text(),
		Labels: d.Map(),
	}
}

func appendExpire(b []byte, c *Expire) []byte {
	b = binary.AppendUvarint(b, c.Term)
	return encoding.AppendList(b, c.Leases, func(b []byte, l lease.Due) []byte {
		b = binary.AppendVarint(b, int64(l.ID))
		b = binary.AppendUvarint(b, uint64(l.Token))
		return binary.AppendUvarint(b, l.Stamp)
	})
}

func (d *decoder) expire() *Expire {
	one := func() lease.Due {
		return lease.Due{
			ID: lease.ID(d.Varint()), Token: lease.Token(d.Uvarint()), Stamp: d.Uvarint(),
		}
	}
	return &Expire{Term: d.Uvarint(), Leases: encoding.List(&d.Decoder, one)}
}

func appendCheckpoint(b []byte, c *Checkpoint) []byte {
	b = binary.AppendUvarint(b, c.Term)
	return encoding.AppendList(b, c.Leases, func(b []byte, l lease.Checkpoint) []byte {
		b = binary.AppendVarint(b, int64(l.ID))
		b = binary.AppendUvarint(b, uint64(l.Token))
		return binary.AppendVarint(b, int64(l.Remaining))
	})
}

func (d *decoder) checkpoint() *Checkpoint {
	one := func() lease.Checkpoint {
		return lease.Checkpoint{
			ID: lease.ID(d.Varint()), Token: lease.Token(d.Uvarint()),
			Remaining: lease.TTL(d.Varint()),
		}
	}
	return &Checkpoint{Term: d.Uvarint(), Leases: encoding.List(&d.Decoder, one)}
}

func appendMember(b []byte, m Member) []byte {
	b = binary.AppendUvarint(b, m.ID)
	b = encoding.AppendBools(b, m.Learner)
	b = encoding.AppendBytes(b, m.Name)
	b = encoding.AppendList(b, m.PeerURLs, encoding.AppendBytes[string])
	return encoding.AppendList(b, m.ClientURLs, encoding.AppendBytes[string])
}

func (d *decoder) member() Member {
	return Member{
		ID: d.Uvarint(), Learner: d.Byte()&1 != 0, Name: d.Text(),
		PeerURLs:   encoding.List(&d.Decoder, d.Text),
		ClientURLs: encoding.List(&d.Decoder, d.Text),
	}
}

// Cost returns about how many bytes a command may add to the state.
func Cost(c Command) int64 {
	switch c := c.(type) {
	case *Put:
		return int64(len(c.Key)+len(c.Value)) + recordOverhead
	case *Grant:
		return recordOverhead
	case *Txn:
		return max(opsCost(c.Then), opsCost(c.Else))
	default:
		return 0
	}
}

// recordOverhead is about what a record takes beside its key and value.
const recordOverhead = 200

func opsCost(ops []Op) (sum int64) {
	for i := range ops {
		if ops[i].Put != nil {
			sum += Cost(ops[i].Put)
		} else if ops[i].Txn != nil {
			sum += Cost(ops[i].Txn)
		}
	}
	return sum
}
