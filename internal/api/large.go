package api

import "leasehold.dev/internal/fsm"

// fewKeys is the maximum number of keys in a small answer.
const fewKeys = 4

// MayBeLarge reports whether the answer to a command may have more than a few keys with their
// values. Such a request must reserve memory before it is evaluated (listen.Room).
func MayBeLarge(c fsm.Command) bool { return keysReturned(c) > fewKeys }

// ManyKeys reports whether a range may have more than a few keys.
func ManyKeys(end string, limit int64) bool { return keysWithin(end, limit) > fewKeys }

// keysReturned returns an upper bound of the keys returned with their values, or more than fewKeys.
func keysReturned(c fsm.Command) int {
	switch c := c.(type) {
	case *fsm.Put:
		return flag(c.PrevKV)
	case *fsm.DeleteRange:
		return flag(c.PrevKV) * keysWithin(c.End, 0)
	case *fsm.Txn:
		return max(keysReturnedBy(c.Then), keysReturnedBy(c.Else))
	}
	return 0
}

func keysReturnedBy(ops []fsm.Op) (n int) {
	for i := range ops {
		switch op := &ops[i]; {
		case op.Range != nil && !op.Range.Options.CountOnly:
			n += keysWithin(op.Range.End, op.Range.Options.Limit)
		case op.Put != nil:
			n += keysReturned(op.Put)
		case op.Delete != nil:
			n += keysReturned(op.Delete)
		case op.Txn != nil:
			n += keysReturned(op.Txn)
		}
	}
	return n
}

// keysWithin returns an upper bound of the keys in a range, or more than fewKeys.
func keysWithin(end string, limit int64) int {
	switch {
	case end == "":
		return 1
	case limit > 0 && limit <= fewKeys:
		return int(limit)
	}
	return fewKeys + 1
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}
