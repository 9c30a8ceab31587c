package fsm

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
