package fsm

import "encoding/binary"

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
	if !c.Target.known() || c.Relation > NotEqual {
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
	opGrant
	opRevoke
	opTouch
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
		case op.Grant != nil:
			b = appendTerms(append(b, opGrant), &op.Grant.Terms)
			b = appendMore(b, &op.Grant.Terms, false)
		case op.Revoke != nil:
			b = appendRevoke(append(b, opRevoke), op.Revoke)
		case op.Touch != nil:
			b = appendToken(append(b, opTouch), op.Touch.ID, op.Touch.Token)
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
		case opGrant:
			ops[i].Grant = d.grant()
		case opRevoke:
			ops[i].Revoke = d.revoke()
		case opTouch:
			ops[i].Touch = &Touch{}
			ops[i].Touch.ID, ops[i].Touch.Token = d.token()
		default:
			d.fail("operation of unknown kind")
		}
		if d.err != nil {
			return nil
		}
	}
	return ops
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
