package replica

import (
	"leasehold.dev/internal/directory"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// writeOf returns the possible effects of a command on caches. For a transaction, it includes the
// effects of both branches.
func writeOf(l *lease.Lessor, c fsm.Command) *directory.Write {
	e := effects{lessor: l, w: &directory.Write{}}
	switch c := fsm.Inner(c).(type) {
	case *fsm.Put:
		e.put(c)
	case *fsm.DeleteRange:
		e.touch(c.Key, c.End)
	case *fsm.Txn:
		e.txn(c)
	case *fsm.Grant:
		e.grant(c)
	case *fsm.Revoke:
		e.revoke(c)
	case *fsm.ChangeTTL:
		e.w.Renews = append(e.w.Renews, e.leaseNamed(c.ID, c.Name))
	// no key of these leases is cached, but the directory must know which leases end
	case *fsm.Expire:
		e.w.Ends, e.w.Urgent = taking(l, c.Leases), true
	default:
		if fsm.RevokesPermissions(c) {
			e.w.Touches = []keyrange.Range{keyrange.All}
		}
	}
	return e.w
}

// taking returns the due leases whose keys are deleted when they expire. If a lease has a lock
// delay, its keys are deleted later.
func taking(l *lease.Lessor, due []lease.Due) (out []lease.ID) {
	for _, d := range due {
		info, _ := l.Lookup(d.ID)
		if info.LockDelay == 0 || info.Delayed {
			out = append(out, d.ID)
		}
	}
	return out
}

type effects struct {
	lessor *lease.Lessor
	w      *directory.Write
	// granted maps the ID of each lease granted by the transaction to the lease's name. If the
	// request is a retry, the ID refers to the existing lease with that name.
	granted map[lease.ID]string
}

func (e *effects) touch(key, end string) {
	e.w.Touches = append(e.w.Touches, keyrange.Range{Key: key, End: end})
}

// leaseNamed returns the lease with the given ID or, if the ID is 0, the lease with the given name.
// By the time the command is applied, the name may belong to another lease. But a command with the
// token or secret of the lease returned here does not affect the other lease, which has a different
// token and secret.
func (e *effects) leaseNamed(id lease.ID, name string) lease.ID {
	if id == 0 {
		info, _ := e.lessor.ByName(name)
		return info.ID
	}
	return id
}

func (e *effects) put(c *fsm.Put) {
	e.touch(c.Key, "")
	if c.Lease == 0 {
		e.w.AttachesAny = e.w.AttachesAny || c.LeaseName != ""
		return
	}
	e.w.Attaches = append(e.w.Attaches, c.Lease)
	if _, ok := e.granted[c.Lease]; ok {
		e.w.AttachesAny = true
	}
}

func (e *effects) revoke(c *fsm.Revoke) {
	e.w.Ends = append(e.w.Ends, e.leaseNamed(c.ID, c.Name))
	if c.ID == 0 && c.Name != "" && (c.Token == 0 || c.Token > e.lessor.LastToken()) {
		// It is not known which lease will have this name when the command is applied, or which
		// keys that lease will have.
		e.w.Touches = append(e.w.Touches, keyrange.All)
	}
	if name, ok := e.granted[c.ID]; ok {
		// It is not known which lease will have this name, or which keys that lease will have.
		e.w.Touches = append(e.w.Touches, keyrange.All)
		if info, ok := e.lessor.ByName(name); ok {
			e.w.Ends = append(e.w.Ends, info.ID)
		}
	}
}

func (e *effects) renew(id lease.ID) {
	e.w.Renews = append(e.w.Renews, id)
	if name, ok := e.granted[id]; ok {
		if info, ok := e.lessor.ByName(name); ok {
			e.w.Renews = append(e.w.Renews, info.ID)
		}
	}
}

func (e *effects) txn(c *fsm.Txn) {
	for _, ops := range [...][]fsm.Op{c.Then, c.Else} {
		for i := range ops {
			e.op(&ops[i])
		}
	}
}

func (e *effects) op(op *fsm.Op) {
	switch {
	case op.Put != nil:
		e.put(op.Put)
	case op.Delete != nil:
		e.touch(op.Delete.Key, op.Delete.End)
	case op.Txn != nil:
		e.txn(op.Txn)
	case op.Revoke != nil:
		e.revoke(op.Revoke)
	case op.Touch != nil:
		e.renew(e.leaseNamed(op.Touch.ID, op.Touch.Name))
	case op.Grant != nil:
		e.grant(op.Grant)
	}
}

// grant records the name of the lease, because a repeated request refers to the lease by its name.
// It also records that the lease is renewed, if the grant requests that.
func (e *effects) grant(c *fsm.Grant) {
	t := &c.Terms
	if t.RequestID == "" {
		return
	}
	if t.Name != "" {
		if e.granted == nil {
			e.granted = make(map[lease.ID]string)
		}
		e.granted[t.ID] = t.Name
	}
	if c.Renew {
		e.renew(t.ID)
	}
}
