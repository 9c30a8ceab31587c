package wire

import pb "leasehold.dev/leaseholdpb"

// Parts of transactions, each in one piece of memory.
type (
	// txn has room for the lists of most.
	txn struct {
		request pb.TxnRequest
		compare [1]*pb.Compare
		then    [2]*pb.Op
		other   [1]*pb.Op
	}
	compare struct {
		compare        pb.Compare
		version        pb.Compare_Version
		createRevision pb.Compare_CreateRevision
		modRevision    pb.Compare_ModRevision
		lease          pb.Compare_Lease
		leaseAlive     pb.Compare_LeaseAlive
	}
	putOp struct {
		op   pb.Op
		body pb.Op_Put
		put  pb.PutRequest
	}
	deleteOp struct {
		op     pb.Op
		body   pb.Op_Delete
		delete pb.DeleteRequest
	}
	rangeOp struct {
		op   pb.Op
		body pb.Op_Range
		read pb.RangeRequest
	}
	drawOp struct {
		op   pb.Op
		body pb.Op_DrawToken
		draw pb.DrawTokenRequest
	}
)

func (r *reader) txnRequest(t *txn) {
	if r.depth++; r.depth > maxDepth {
		r.odd = true
	}
	m := &t.request
	for r.more() {
		switch r.field() {
		case 1<<3 | typeBytes:
			if m.Compare == nil {
				m.Compare = t.compare[:0]
			}
			m.Compare = append(m.Compare, r.compare())
		case 2<<3 | typeBytes:
			if m.Then == nil {
				m.Then = t.then[:0]
			}
			m.Then = append(m.Then, r.op())
		case 3<<3 | typeBytes:
			if m.Else == nil {
				m.Else = t.other[:0]
			}
			m.Else = append(m.Else, r.op())
		case 4<<3 | typeBytes:
			if r.once(m.Await == nil) {
				m.Await = r.await()
			}
		default:
			r.odd = true
		}
	}
	r.depth--
}

func (r *reader) await() *pb.Await {
	m := &pb.Await{}
	end := r.enter()
	for r.more() {
		switch r.field() {
		case 1<<3 | typeBytes:
			m.Key = r.key()
		case 2<<3 | typeBytes:
			m.Prefix = r.key()
		case 3<<3 | typeVarint:
			m.Permits = r.int()
		case 4<<3 | typeBytes:
			m.Beside = r.bytes()
		default:
			r.odd = true
		}
	}
	r.leave(end)
	return m
}

func (r *reader) compare() *pb.Compare {
	c := &compare{}
	m := &c.compare
	end := r.enter()
	for r.more() {
		k := r.field()
		if k >= 4<<3 {
			if r.once(m.Target == nil) {
				r.target(k, c)
			}
			continue
		}
		switch k {
		case 1<<3 | typeVarint:
			m.Relation = pb.Compare_Relation(r.int())
		case 2<<3 | typeBytes:
			m.Key = r.key()
		case 3<<3 | typeBytes:
			m.RangeEnd = r.key()
		default:
			r.odd = true
		}
	}
	r.leave(end)
	return m
}

// target reads what a condition is about.
func (r *reader) target(key uint64, c *compare) {
	m := &c.compare
	switch key {
	case 4<<3 | typeVarint:
		c.version.Version = r.int()
		m.Target = &c.version
	case 5<<3 | typeVarint:
		c.createRevision.CreateRevision = r.int()
		m.Target = &c.createRevision
	case 6<<3 | typeVarint:
		c.modRevision.ModRevision = r.int()
		m.Target = &c.modRevision
	case 7<<3 | typeBytes:
		m.Target = &pb.Compare_Value{Value: r.bytes()}
	case 8<<3 | typeVarint:
		c.lease.Lease = r.int()
		m.Target = &c.lease
	case 9<<3 | typeVarint:
		c.leaseAlive.LeaseAlive = r.int()
		m.Target = &c.leaseAlive
	case 10<<3 | typeBytes:
		m.Target = &pb.Compare_NameToken{NameToken: r.nameToken()}
	default:
		r.odd = true
	}
}

func (r *reader) nameToken() *pb.NameToken {
	m := &pb.NameToken{}
	end := r.enter()
	for r.more() {
		switch r.field() {
		case 1<<3 | typeBytes:
			m.Name = r.text()
		case 2<<3 | typeVarint:
			m.Token = r.varint()
		default:
			r.odd = true
		}
	}
	r.leave(end)
	return m
}

func (r *reader) op() *pb.Op {
	var m *pb.Op
	end := r.enter()
	for r.more() {
		k := r.field()
		if !r.once(m == nil) {
			break
		}
		switch k {
		case 6<<3 | typeBytes:
			m = &pb.Op{Op: &pb.Op_Renew{Renew: r.leaseRef()}}
		case 7<<3 | typeBytes:
			m = &pb.Op{Op: &pb.Op_Revoke{Revoke: r.leaseRef()}}
		default:
			end := r.enter()
			m = r.operation(k)
			r.leave(end)
		}
	}
	r.leave(end)
	if m == nil {
		return &pb.Op{}
	}
	return m
}

func (r *reader) operation(key uint64) *pb.Op {
	switch key {
	case 1<<3 | typeBytes:
		o := &putOp{}
		o.op.Op, o.body.Put = &o.body, &o.put
		r.putRequest(&o.put)
		return &o.op
	case 2<<3 | typeBytes:
		o := &deleteOp{}
		o.op.Op, o.body.Delete = &o.body, &o.delete
		r.deleteRequest(&o.delete)
		return &o.op
	case 3<<3 | typeBytes:
		o := &rangeOp{}
		o.op.Op, o.body.Range = &o.body, &o.read
		r.rangeRequest(&o.read)
		return &o.op
	case 4<<3 | typeBytes:
		t := &txn{}
		r.txnRequest(t)
		return &pb.Op{Op: &pb.Op_Txn{Txn: &t.request}}
	case 5<<3 | typeBytes:
		m := &pb.GrantRequest{}
		r.grantRequest(m)
		return &pb.Op{Op: &pb.Op_Grant{Grant: m}}
	case 8<<3 | typeBytes:
		o := &drawOp{}
		o.op.Op, o.body.DrawToken = &o.body, &o.draw
		r.odd = r.odd || r.more()
		return &o.op
	default:
		r.odd = true
		return nil
	}
}
