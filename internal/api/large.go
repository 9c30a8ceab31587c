package api

import (
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/mvcc"
)

// fewKeys is the maximum number of keys in a small response.
const fewKeys = 4

// MayBeLarge reports whether the response to a command may contain more than a few keys with their
// values. Such a request must reserve memory before it is evaluated (see listen.Room).
func MayBeLarge(c fsm.Command) bool { return few.returned(c) > fewKeys }

// KeysReturned returns the approximate number of keys that the response to a command contains with
// their values.
func KeysReturned(c fsm.Command, v *mvcc.View) int64 {
	return counting(func(key, end string, limit int64) int64 {
		return v.Visits(key, end, mvcc.RangeOptions{Limit: limit})
	}).returned(c)
}

// ManyKeys reports whether a range may contain more than a few keys.
func ManyKeys(end string, limit int64) bool { return few("", end, limit) > fewKeys }

// counting is a function that counts the keys in a range.
type counting func(key, end string, limit int64) int64

// returned returns an upper bound on the number of keys that the response to c contains with their
// values.
func (f counting) returned(c fsm.Command) int64 {
	switch c := c.(type) {
	case *fsm.Put:
		return flag(c.PrevKV)
	case *fsm.DeleteRange:
		if c.PrevKV {
			return f(c.Key, c.End, 0)
		}
	case *fsm.Txn:
		return max(f.returnedBy(c.Then), f.returnedBy(c.Else))
	}
	return 0
}

func (f counting) returnedBy(ops []fsm.Op) (n int64) {
	for i := range ops {
		switch op := &ops[i]; {
		case op.Range != nil && !op.Range.Options.CountOnly:
			n += f(op.Range.Key, op.Range.End, op.Range.Options.Limit)
		case op.Put != nil:
			n += f.returned(op.Put)
		case op.Delete != nil:
			n += f.returned(op.Delete)
		case op.Txn != nil:
			n += f.returned(op.Txn)
		}
	}
	return n
}

// few returns an upper bound on the number of keys in a range, or fewKeys+1 if the bound exceeds
// fewKeys.
var few counting = func(_, end string, limit int64) int64 {
	switch {
	case end == "":
		return 1
	case limit > 0 && limit <= fewKeys:
		return limit
	}
	return fewKeys + 1
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
