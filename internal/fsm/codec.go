package fsm

import (
	"encoding/binary"
	"fmt"

	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

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
	d := &decoder{b: data}
	if v := d.byte(); d.err == nil && (v == 0 || v > logVersion) {
		return nil, fmt.Errorf("%w: log entry of version %d, this release reads up to %d",
			ErrCorrupt, v, logVersion)
	}
	var groups []Group
	for len(d.b) > 0 {
		groups = append(groups, d.group())
	}
	if d.err != nil {
		return nil, d.err
	}
	return groups, nil
}

// group decodes commands up to where the origin changes.
func (d *decoder) group() Group {
	var g Group
	if d.b[0] != originMark {
		for len(d.b) > 0 && d.b[0] != originMark {
			g.Commands = append(g.Commands, d.command())
		}
		return g
	}
	d.byte()
	g.Origin = Origin{Member: d.uint64(), Seq: d.uint64()}
	n := d.count()
	g.Commands = make([]Command, 0, n)
	for range n {
		g.Commands = append(g.Commands, d.command())
	}
	return g
}

// DecodeCommands decodes n commands, one AppendCommand after another, of which
// nothing is known yet: they came from outside. It keeps no part of data.
func DecodeCommands(data []byte, n int) ([]Command, error) {
	d := &decoder{b: data}
	var commands []Command
	for range n {
		if commands = append(commands, d.command()); d.err != nil {
			return nil, d.err
		}
	}
	if len(d.b) > 0 {
		return nil, fmt.Errorf("%w: bytes follow %d commands", ErrCorrupt, n)
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
		b = appendBools(b, c.Off)
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
	switch k := kind(d.byte()); k {
	case kindPut:
		return d.put()
	case kindDeleteRange:
		return d.deleteRange()
	case kindTxn:
		return d.txn(0)
	case kindCompact:
		return &Compact{Revision: d.varint()}
	case kindGrant:
		return &Grant{Terms: d.terms()}
	case kindRevoke:
		return &Revoke{ID: lease.ID(d.varint())}
	case kindExpire:
		return d.expire()
	case kindCheckpoint:
		return d.checkpoint()
	case kindSetAlarm:
		off := d.byte()&1 != 0
		return &SetAlarm{Off: off, Alarm: Alarm{Member: d.uvarint(), Kind: AlarmKind(d.byte())}}
	case kindSetMember:
		return &SetMember{Member: d.member()}
	case kindAddMember:
		return &AddMember{Member: d.member()}
	case kindRemoveMember:
		return &RemoveMember{ID: d.uvarint()}
	case kindPromoteMember:
		return &PromoteMember{ID: d.uvarint()}
	default:
		d.fail(fmt.Sprintf("command of unknown kind %d", k))
		return nil
	}
}

func appendPut(b []byte, c *Put) []byte {
	b = appendBools(b, c.PrevKV, c.IgnoreValue, c.IgnoreLease)
	b = appendString(b, c.Key)
	b = appendBytes(b, c.Value)
	return binary.AppendVarint(b, int64(c.Lease))
}

func (d *decoder) put() *Put {
	f := d.byte()
	return &Put{
		PrevKV: f&1 != 0, IgnoreValue: f&2 != 0, IgnoreLease: f&4 != 0,
		Key: d.string(), Value: d.bytes(), Lease: lease.ID(d.varint()),
	}
}

func appendDelete(b []byte, c *DeleteRange) []byte {
	b = appendBools(b, c.PrevKV)
	return appendString(appendString(b, c.Key), c.End)
}

func (d *decoder) deleteRange() *DeleteRange {
	f := d.byte()
	return &DeleteRange{PrevKV: f&1 != 0, Key: d.string(), End: d.string()}
}

func appendRange(b []byte, c *Range) []byte {
	o := &c.Options
	b = appendBools(b, o.Descend, o.CountOnly)
	b = append(b, byte(o.SortBy))
	b = appendString(appendString(b, c.Key), c.End)
	for _, v := range [...]int64{
		o.Revision, o.Limit, o.MinModRevision, o.MaxModRevision,
		o.MinCreateRevision, o.MaxCreateRevision,
	} {
		b = binary.AppendVarint(b, v)
	}
	return b
}

func (d *decoder) rangeOp() *Range {
	f := d.byte()
	r := &Range{Options: mvcc.RangeOptions{Descend: f&1 != 0, CountOnly: f&2 != 0}}
	o := &r.Options
	o.SortBy = mvcc.SortBy(d.byte())
	r.Key, r.End = d.string(), d.string()
	for _, v := range [...]*int64{
		&o.Revision, &o.Limit, &o.MinModRevision, &o.MaxModRevision,
		&o.MinCreateRevision, &o.MaxCreateRevision,
	} {
		*v = d.varint()
	}
	return r
}

func appendTxn(b []byte, c *Txn) []byte {
	b = binary.AppendUvarint(b, uint64(len(c.Compare)))
	for i := range c.Compare {
		b = appendCompare(b, &c.Compare[i])
	}
	return appendOps(appendOps(b, c.Then), c.Else)
}

func (d *decoder) txn(depth int) *Txn {
	if depth > maxTxnDepth {
		d.fail("transaction nested too deeply")
		return &Txn{}
	}
	t := &Txn{}
	if n := d.count(); n > 0 {
		t.Compare = make([]Compare, n)
		for i := range t.Compare {
			t.Compare[i] = d.compare()
		}
	}
	t.Then, t.Else = d.ops(depth), d.ops(depth)
	return t
}

func appendCompare(b []byte, c *Compare) []byte {
	b = append(b, byte(c.Target), byte(c.Relation))
	b = appendString(appendString(b, c.Key), c.End)
	if c.Target == TargetValue {
		return appendBytes(b, c.Value)
	}
	return binary.AppendVarint(b, c.Number)
}

func (d *decoder) compare() Compare {
	c := Compare{Target: Target(d.byte()), Relation: Relation(d.byte())}
	if c.Target > TargetLease || c.Relation > NotEqual {
		d.fail("compare")
	}
	c.Key, c.End = d.string(), d.string()
	if c.Target == TargetValue {
		c.Value = d.bytes()
	} else {
		c.Number = d.varint()
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

func appendOps(b []byte, ops []Op) []byte {
	b = binary.AppendUvarint(b, uint64(len(ops)))
	for i := range ops {
		switch op := &ops[i]; {
		case op.Put != nil:
			b = appendPut(append(b, opPut), op.Put)
		case op.Delete != nil:
			b = appendDelete(append(b, opDelete), op.Delete)
		case op.Range != nil:
			b = appendRange(append(b, opRange), op.Range)
		case op.Txn != nil:
			b = appendTxn(append(b, opTxn), op.Txn)
		default:
			panic("fsm: empty operation in a transaction")
		}
	}
	return b
}

func (d *decoder) ops(depth int) []Op {
	n := d.count()
	if n == 0 {
		return nil
	}
	ops := make([]Op, n)
	for i := range ops {
		switch k := d.byte(); k {
		case opPut:
			ops[i].Put = d.put()
		case opDelete:
			ops[i].Delete = d.deleteRange()
		case opRange:
			ops[i].Range = d.rangeOp()
		case opTxn:
			ops[i].Txn = d.txn(depth + 1)
		default:
			d.fail("operation of unknown kind")
		}
		if d.err != nil {
			return nil
		}
	}
	return ops
}

func appendTerms(b []byte, t lease.Terms) []byte {
	b = binary.AppendVarint(b, int64(t.ID))
	b = binary.AppendVarint(b, int64(t.TTL))
	b = appendString(appendString(appendString(b, t.Name), t.Owner), t.RequestID)
	return appendMap(b, t.Labels)
}

func (d *decoder) terms() lease.Terms {
	return lease.Terms{
		ID: lease.ID(d.varint()), TTL: lease.TTL(d.varint()),
		Name: d.string(), Owner: d.string(), RequestID: d.string(),
		Labels: d.stringMap(),
	}
}

func appendExpire(b []byte, c *Expire) []byte {
	b = binary.AppendUvarint(b, c.Term)
	b = binary.AppendUvarint(b, uint64(len(c.Leases)))
	for _, l := range c.Leases {
		b = binary.AppendVarint(b, int64(l.ID))
		b = binary.AppendUvarint(b, uint64(l.Token))
		b = binary.AppendUvarint(b, l.Stamp)
	}
	return b
}

func (d *decoder) expire() *Expire {
	c := &Expire{Term: d.uvarint()}
	c.Leases = make([]lease.Due, d.count())
	for i := range c.Leases {
		c.Leases[i] = lease.Due{
			ID: lease.ID(d.varint()), Token: lease.Token(d.uvarint()), Stamp: d.uvarint(),
		}
	}
	return c
}

func appendCheckpoint(b []byte, c *Checkpoint) []byte {
	b = binary.AppendUvarint(b, c.Term)
	b = binary.AppendUvarint(b, uint64(len(c.Leases)))
	for _, l := range c.Leases {
		b = binary.AppendVarint(b, int64(l.ID))
		b = binary.AppendUvarint(b, uint64(l.Token))
		b = binary.AppendVarint(b, int64(l.Remaining))
	}
	return b
}

func (d *decoder) checkpoint() *Checkpoint {
	c := &Checkpoint{Term: d.uvarint()}
	c.Leases = make([]lease.Checkpoint, d.count())
	for i := range c.Leases {
		c.Leases[i] = lease.Checkpoint{
			ID: lease.ID(d.varint()), Token: lease.Token(d.uvarint()),
			Remaining: lease.TTL(d.varint()),
		}
	}
	return c
}

func appendMember(b []byte, m Member) []byte {
	b = binary.AppendUvarint(b, m.ID)
	b = appendBools(b, m.Learner)
	b = appendString(b, m.Name)
	return appendStrings(appendStrings(b, m.PeerURLs), m.ClientURLs)
}

func (d *decoder) member() Member {
	m := Member{ID: d.uvarint(), Learner: d.byte()&1 != 0, Name: d.string()}
	m.PeerURLs, m.ClientURLs = d.strings(), d.strings()
	return m
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
