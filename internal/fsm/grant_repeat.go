package fsm

import "bytes"

// Repeatable returns the command for a grant that a client may retry (T3), optionally combined with
// puts. Without puts, the command is the grant itself, which renews the lease if it already exists.
//
// With puts, the command is a transaction. If neither the ID nor the name is in use, it applies the
// grant and the puts. Otherwise it applies only the grant, which either recognizes a repeated
// request or fails. The grant's response is the first one in the TxnResult. Succeeded is true if
// the grant was not a repeated request.
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
// contents of the command, so the result is the same on every member and after encoding.
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

// repeatable returns g if this transaction is what g.Repeatable builds, and nil otherwise.
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

// granted returns the result of a repeated grant if the lease created by the first request still
// exists. Unlike applying the repeated command, it does not renew the lease.
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
