package sim

import (
	"errors"

	"leasehold.dev/internal/access"
)

// checkAccess checks A1. A client that received data must have had the permission in the state that
// decided the call, and that state must be no older than the data. A cached read follows the same
// rule as a read at a member: the reader had the permission at some time during the read. A denied
// caller had no permission.
func (f *facts) checkAccess() {
	for _, op := range f.h.Ops {
		if op.Caller.User != "" {
			f.checkRights(op)
		}
	}
	for i := range f.h.Deliveries {
		d := &f.h.Deliveries[i]
		w := f.h.Watches[d.Watch]
		if r, ok := f.rightsAt(d.Index); ok && w.Caller.User != "" &&
			(!r.may(fresh(w.Caller, r), access.Read, w.Key, w.End) || d.Revision > f.revisionAt(d.Index)) {
			f.violate(d.At, "A1", "watch %d of client %d (%s) on [%s,%s) at member %d was told all up to "+
				"revision %d by a member that had applied %d", w.ID, w.Client, w.Caller.User, w.Key, w.End,
				w.Member, d.Revision, d.Index)
		}
	}
	for _, t := range f.h.Waits {
		for _, n := range t.Notices {
			r, ok := f.rightsAt(n.Index)
			end := t.Prefix[:max(len(t.Prefix), 1)-1] + "0" // a prefix ends with a slash
			if ok && t.Caller.User != "" && !r.may(fresh(t.Caller, r), access.Read, t.Prefix, end) {
				f.violate(n.At, "A1", "%v (%s) was told %+v by a member that had applied %d",
					t, t.Caller.User, n.News, n.Index)
			}
		}
	}
}

// rightsAt returns the permissions after the entry at an index; ok is false for index 0.
func (f *facts) rightsAt(index uint64) (r *modelRights, ok bool) {
	switch {
	case index == 0:
		return nil, false
	case index < firstIndex:
		return newRights(), true
	}
	return f.rights[min(index-firstIndex, uint64(len(f.rights)-1))], true
}

// revisionAt returns the store's revision after the entry at an index.
func (f *facts) revisionAt(index uint64) int64 {
	return f.revisionOf(int(min(max(index, firstIndex-1)-firstIndex+1, uint64(len(f.revisions)))))
}

// checkRights checks A1 for one operation.
func (f *facts) checkRights(op *Op) {
	r, known := f.rightsAt(op.AsOf)
	switch {
	case op.Kind == opCached && op.Outcome == Done:
		f.checkCachedRight(op)
	case !known:
	case op.Kind == opRange && errors.Is(op.Err, access.ErrPermissionDenied):
		if c := op.Request.Range; r.may(op.Caller, access.Read, c.Key, c.End) {
			f.violate(op.End, "A1", "operation %d of client %d (%s) was refused [%s,%s) at member %d, "+
				"which had applied %d", op.ID, op.Client, op.Caller.User, c.Key, c.End, op.Member, op.AsOf)
		}
	case op.Outcome != Done:
	case op.Kind == opRange:
		c := op.Request.Range
		old := !op.Serializable && op.AsOf+1 < firstIndex+uint64(f.seenAt(op.Start-1))
		if old || !r.may(op.Caller, access.Read, c.Key, c.End) {
			f.violate(op.End, "A1", "operation %d of client %d (%s) read [%s,%s) at member %d, which had "+
				"applied %d", op.ID, op.Client, op.Caller.User, c.Key, c.End, op.Member, op.AsOf)
		}
	case op.Kind == opGroups || op.byRound():
		op.Groups.checkRights(f, op, r)
	case op.Kind == opRenew && op.Err == nil:
		if !f.mayRenew(op, r) {
			f.violate(op.End, "A1", "operation %d of client %d (%s) renewed lease %d at member %d, which "+
				"had applied %d%s", op.ID, op.Client, op.Caller.User, op.Lease, op.Member, op.AsOf,
				f.past(op.Lease))
		}
	}
}

// checkCachedRight checks that caches drop the data they read under a permission before the
// permission is removed.
func (f *facts) checkCachedRight(op *Op) {
	if !f.h.InBound {
		return
	}
	c := op.Request.Range
	for n := f.seenAt(op.Start - 1); n <= f.seenAt(op.End); n++ {
		r, ok := f.rightsAt(uint64(n) + firstIndex - 1)
		if !ok || r.may(fresh(op.Caller, r), access.Read, c.Key, c.End) {
			return
		}
	}
	f.violate(op.End, "A1", "operation %d of client %d (%s) read [%s,%s) from its cache, without "+
		"permission to read it any more", op.ID, op.Client, op.Caller.User, c.Key, c.End)
}

// mayRenew reports whether a caller may renew a lease, according to the member's applied state.
func (f *facts) mayRenew(op *Op, r *modelRights) bool {
	l := f.incarnationAt(op.Lease, int(op.AsOf)-firstIndex)
	if !r.enabled || l == nil {
		return !r.enabled
	}
	return r.holds(op.Caller, &l.modelLease, true, f.scanAt("", "\x00", f.revisionAt(op.AsOf)))
}

// denial reports whether an error concerns the caller's identity or permissions.
func denial(err error) bool {
	return errors.Is(err, access.ErrPermissionDenied) || errors.Is(err, access.ErrOldRevision) ||
		errors.Is(err, access.ErrUserEmpty)
}

// fresh returns the caller as if it had just logged in.
func fresh(who access.Caller, r *modelRights) access.Caller {
	who.Revision = r.revision
	return who
}
