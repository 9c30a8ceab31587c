package fsm

import (
	"encoding/binary"

	"leasehold.dev/internal/encoding"
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
	mem := d.room()
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
	c.Target, c.Relation = Target(d.Byte()), Relation(d.Byte())
	if !c.Target.known() || c.Relation > NotEqual {
		d.Fail("compare")
	}
	c.Key, c.End = d.Text(), d.Text()
	if c.Target.bytes() {
		c.Value = d.Bytes()
	} else {
		c.Number = d.Varint()
	}
}

// TooDeep reports whether transactions are nested in c beyond what the log takes. Such a
// command must not be proposed: no member could read the entry.
func (c *Txn) TooDeep() bool { return c.deeper(maxTxnDepth) }

func (c *Txn) deeper(levels int) bool {
	for _, ops := range [...][]Op{c.Then, c.Else} {
		for i := range ops {
			if t := ops[i].Txn; t != nil && (levels == 0 || t.deeper(levels-1)) {
				return true
			}
		}
	}
	return false
}

// opKind tags an operation inside a transaction.
const (
	opPut byte = iota + 1
	opDelete
	opRange
	opTxn
	opGrant
	opRevoke
	opTouch
	opGrantHolds
	opDraw
	opNamed // as kindNamed
)

func appendOp(b []byte, op Op) []byte {
	name, token := nameInOp(&op)
	b = appendName(b, opNamed, name, token)
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
		if len(op.Grant.Holds) > 0 {
			return appendGrant(append(b, opGrantHolds), op.Grant, kindGrantHolds)
		}
		return appendGrant(append(b, opGrant), op.Grant, kindGrantMore)
	case op.Revoke != nil:
		return appendRevoke(append(b, opRevoke), op.Revoke)
	case op.Touch != nil:
		return appendToken(append(b, opTouch), op.Touch.ID, op.Touch.Token)
	case op.Draw:
		return append(b, opDraw)
	default:
		panic("fsm: empty operation in a transaction")
	}
}

func (d *decoder) op(o *Op, depth int) {
	switch d.Byte() {
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
	case opGrantHolds:
		o.Grant = d.grantHolds()
	case opRevoke:
		o.Revoke = d.revoke()
	case opTouch:
		id, token := d.token()
		o.Touch = &Touch{ID: id, Token: token}
	case opDraw:
		o.Draw = true
	case opNamed:
		d.namedOp(o, depth)
	default:
		d.Fail("operation of unknown kind")
	}
}

func appendOnce(b []byte, c *Once) []byte {
	b = binary.AppendUvarint(b, c.Session.ID)
	b = binary.BigEndian.AppendUint64(b, c.Session.Nonce)
	b = binary.AppendUvarint(b, c.Number)
	b = binary.AppendUvarint(b, c.Settled)
	return AppendCommand(b, c.Command)
}

func (d *decoder) once() Command {
	c := d.room().onces.one()
	c.Session = Session{ID: d.Uvarint(), Nonce: d.Uint64()}
	c.Number, c.Settled = d.Uvarint(), d.Uvarint()
	if !kind(d.Peek()).repeatable() { // another Once, for one
		d.Fail("command that is not done once")
		return nil
	}
	c.Command = d.command()
	return c
}

// Cost returns about how many bytes a command may add to the state.
func Cost(c Command) int64 {
	switch c := Inner(c).(type) {
	case *Put:
		return int64(len(c.Key)+len(c.Value)) + recordOverhead
	case *Grant:
		return recordOverhead + int64(termsSize(&c.Terms)) + holdsCost(c.Holds)
	case *HandOver:
		return int64(len(c.Owner))
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
		switch op := &ops[i]; {
		case op.Put != nil:
			sum += Cost(op.Put)
		case op.Grant != nil:
			sum += Cost(op.Grant)
		case op.Txn != nil:
			sum += Cost(op.Txn)
		}
	}
	return sum
}
