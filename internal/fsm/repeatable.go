package fsm

import "bytes"

// Repeatable returns the command for a grant that a client may retry (T3), together with puts.
// Without puts it is the grant itself, which renews the lease that it finds. With puts it is a
// transaction: if neither the ID nor the name is in use, it applies the grant and the puts.
// Otherwise it applies the grant alone, which either recognizes a repetition or fails. The grant's
// response is the first of the TxnResult, and Succeeded is true if the grant was not a repetition.
func (c *Grant) Repeatable(puts ...*Put) Command {
	grant := *c
	grant.Renew = true
	if len(puts) == 0 {
		return &grant
	}
	t := &Txn{
		Compare: []Compare{{
			Target: TargetLeaseAlive, Relation: NotEqual, Number: int64(c.Terms.ID),
		}},
		Then: []Op{{Grant: &grant}},
		Else: []Op{{Grant: &grant}},
	}
	for _, p := range puts {
		t.Then = append(t.Then, Op{Put: p})
	}
	if c.Terms.Name != "" {
		t.Compare = append(t.Compare, Compare{
			Target: TargetNameToken, Relation: Equal, Key: c.Terms.Name,
		})
	}
	return t
}

// repeatableOf returns the grant of a command that Repeatable built, or nil. It depends only on the
// contents of the command, so the answer is the same on each member and after encoding.
func repeatableOf(c Command) *Grant {
	switch c := c.(type) {
	case *Grant:
		if c.Renew && c.Terms.RequestID != "" {
			return c
		}
	case *Txn:
		if len(c.Then) > 1 && len(c.Else) == 1 && c.Else[0].Grant != nil {
			return c.repeatable(c.Else[0].Grant)
		}
	}
	return nil
}

// repeatable returns g if g.Repeatable builds this transaction, else nil.
func (c *Txn) repeatable(g *Grant) *Grant {
	if !g.Renew || g.Terms.RequestID == "" {
		return nil
	}
	puts := make([]*Put, 0, len(c.Then))
	for _, op := range c.Then[1:] {
		if op.Put == nil {
			return nil
		}
		puts = append(puts, op.Put)
	}
	if !bytes.Equal(AppendCommand(nil, g.Repeatable(puts...)), AppendCommand(nil, c)) {
		return nil
	}
	return g
}

// granted returns the result of a repeated grant if the lease that the request created still
// exists. Unlike applying the repetition, it does not renew the lease.
func (m *Machine) granted(c Command) (Result, bool) {
	g := repeatableOf(c)
	if g == nil {
		return Result{}, false
	}
	info, ok := m.held(&g.Terms)
	if !ok {
		return Result{}, false
	}
	r := Result{Revision: m.store.Revision(), Repeated: true, Value: &Existing{info}}
	if _, ok := c.(*Txn); ok {
		r.Value = &TxnResult{Responses: []any{r.Value}}
	}
	return r, true
}
