package fsm

// Repeatable returns the command by which a client asks for a grant that it may repeat (T3),
// with the puts that belong to it. Without puts it is the grant itself, which renews the
// lease that it finds. With puts it is a transaction: if neither the ID nor the name is in
// use it does the grant and the puts, and otherwise the grant alone, which finds out what that
// means and, if it is no repetition, fails. The response of the grant is then the first of
// the TxnResult, and Succeeded says that it was not repeated.
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
