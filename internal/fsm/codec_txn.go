package fsm

import (
	"encoding/binary"

	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/mvcc"
)

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
	op := func(o *Op) { d.op(o, depth) }
	mem := d.slabs()
	c := mem.txns.one()
	c.Compare = list(d, &mem.compares, d.compare)
	c.Then = list(d, &mem.ops, op)
	c.Else = list(d, &mem.ops, op)
	return c
}

func appendCompare(b []byte, c Compare) []byte {
	b = append(b, byte(c.Target), byte(c.Relation))
	b = encoding.AppendBytes(encoding.AppendBytes(b, c.Key), c.End)
	if c.Target.bytes() {
		return encoding.AppendBytes(b, c.Value)
	}
	return binary.AppendVarint(b, c.Number)
}

func (d *decoder) compare(c *Compare) {
	if c.Target = Target(d.Byte()); !c.Target.known() {
		d.Unknown("comparison target", uint64(c.Target))
	}
	c.Relation = Relation(d.Choice("comparison relation", byte(NotEqual)))
	c.Key, c.End = d.Text(), d.Text()
	if c.Target.bytes() {
		c.Value = d.Bytes()
	} else {
		c.Number = d.Varint()
	}
}

// Tags for the operations in a transaction. They are stored on disk: never reuse a number.
const (
	opPut byte = iota + 1
	opDelete
	opRange
	opTxn
	opGrant
	opRevoke
	opTouch
	opDraw
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
	case op.Grant != nil:
		return appendGrant(append(b, opGrant), op.Grant)
	case op.Revoke != nil:
		return appendRevoke(append(b, opRevoke), op.Revoke)
	case op.Touch != nil:
		return appendRef(append(b, opTouch), 0, ref{op.Touch.ID, op.Touch.Name, op.Touch.Token})
	case op.Draw:
		return append(b, opDraw)
	default:
		panic("fsm: empty operation in a transaction")
	}
}

func (d *decoder) op(o *Op, depth int) {
	switch k := d.Byte(); k {
	case opPut:
		o.Put = d.put()
	case opDelete:
		o.Delete = d.deleteRange()
	case opRange:
		o.Range = d.rangeOp()
	case opTxn:
		o.Txn = d.txn(depth + 1)
	case opGrant:
		o.Grant = d.grant()
	case opRevoke:
		o.Revoke = d.revoke()
	case opTouch:
		_, r := d.ref("a touch", refID|refName|refToken)
		o.Touch = &Touch{ID: r.id, Name: r.name, Token: r.token}
	case opDraw:
		o.Draw = true
	default:
		d.Unknown("an operation of kind", uint64(k))
	}
}

// Flags of a range. The four revision limits are either all present or all absent.
const (
	rangeEnd byte = 1 << iota
	rangeRevision
	rangeLimit
	rangeRevisions
	rangeSort
	rangeDescend
	rangeCountOnly

	rangeFlags = rangeEnd | rangeRevision | rangeLimit | rangeRevisions | rangeSort |
		rangeDescend | rangeCountOnly
)

func appendRange(b []byte, c *Range) []byte {
	o := &c.Options
	revisions := o.MinModRevision != 0 || o.MaxModRevision != 0 || o.MinCreateRevision != 0 ||
		o.MaxCreateRevision != 0
	f := encoding.Flag(c.End != "", rangeEnd) | encoding.Flag(o.Revision != 0, rangeRevision) |
		encoding.Flag(o.Limit != 0, rangeLimit) | encoding.Flag(revisions, rangeRevisions) |
		encoding.Flag(o.SortBy != mvcc.None, rangeSort) | encoding.Flag(o.Descend, rangeDescend) |
		encoding.Flag(o.CountOnly, rangeCountOnly)
	b = encoding.AppendBytes(append(b, f), c.Key)
	if c.End != "" {
		b = encoding.AppendBytes(b, c.End)
	}
	if o.Revision != 0 {
		b = binary.AppendVarint(b, o.Revision)
	}
	if o.Limit != 0 {
		b = binary.AppendVarint(b, o.Limit)
	}
	if revisions {
		b = binary.AppendVarint(binary.AppendVarint(b, o.MinModRevision), o.MaxModRevision)
		b = binary.AppendVarint(binary.AppendVarint(b, o.MinCreateRevision), o.MaxCreateRevision)
	}
	if o.SortBy != mvcc.None {
		b = append(b, byte(o.SortBy))
	}
	return b
}

func (d *decoder) rangeOp() *Range {
	f := d.Flags("a range", rangeFlags)
	r := d.slabs().ranges.one()
	o := &r.Options
	o.Descend, o.CountOnly = f&rangeDescend != 0, f&rangeCountOnly != 0
	r.Key = d.Text()
	if f&rangeEnd != 0 {
		r.End = d.Text()
	}
	if f&rangeRevision != 0 {
		o.Revision = d.Varint()
	}
	if f&rangeLimit != 0 {
		o.Limit = d.Varint()
	}
	if f&rangeRevisions != 0 {
		o.MinModRevision, o.MaxModRevision = d.Varint(), d.Varint()
		o.MinCreateRevision, o.MaxCreateRevision = d.Varint(), d.Varint()
	}
	if f&rangeSort != 0 {
		o.SortBy = mvcc.SortBy(d.Choice("sort order", byte(mvcc.ByValue)))
	}
	return r
}
