package fsm

// Repeatable returns the command by which a client asks for a grant that it may repeat (T3).
// If neither the ID nor the name is in use it does the grant and the puts. Otherwise the
// grant finds out what that means; if it is a repetition, the lease that the first one made
// is renewed, through the log. What remains of the lease would be no answer: that is what
// the leader's timer says, and another leader may have counted from an earlier checkpoint.
// The response of the grant is the first of the TxnResult, and Succeeded says that it was
// not repeated.
func (c *Grant) Repeatable(puts ...*Put) *Txn {
	t := &Txn{
		Compare: []Compare{{
			Target: TargetLeaseAlive, Relation: NotEqual, Number: int64(c.Terms.ID),
		}},
		Then: []Op{{Grant: c}},
		// The Touch is of the lease that the Grant returns, whatever its ID. A Grant that
		// is no repetition fails here, and the whole with it.
		Else: []Op{{Grant: c}, {Touch: &Touch{ID: c.Terms.ID}}},
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
