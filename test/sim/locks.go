package sim

import (
	"fmt"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// This file contains the client programs that acquire locks and campaign in elections, using the
// usual recipes for etcd.

// locker competes for a lock that consists of one key. The creator of the key holds the lock.
func (t *thread) locker() {
	t.compete(func(s *session) { t.lockKey(s, fmt.Sprintf("lock%d", t.c.w.rng.IntN(2))) })
}

// candidate campaigns for a role. Each candidate has a key, and the candidate with the oldest key
// leads.
func (t *thread) candidate() {
	t.compete(func(s *session) { t.campaign(s, fmt.Sprintf("role%d/", t.c.w.rng.IntN(2))) })
}

// compete uses successive sessions, each for a few rounds.
func (t *thread) compete(once func(*session)) {
	w := t.c.w
	for {
		s := t.grant(lease.Terms{TTL: w.ttl()})
		if s == nil {
			continue
		}
		for n := 1 + w.rng.IntN(4); n > 0 && s.alive(); n-- {
			once(s)
			t.think()
		}
		if w.chance(2) {
			t.revoke(s)
		}
		s.rest()
	}
}

// lockKey tries to acquire the lock and holds it for a while.
func (t *thread) lockKey(s *session, key string) {
	w := t.c.w
	mine := w.value()
	for s.alive() {
		op := t.command(&fsm.Txn{
			Compare: []fsm.Compare{{Key: key, Target: fsm.TargetCreate, Relation: fsm.Equal}},
			Then: t.maybeDraw(
				fsm.Op{Put: &fsm.Put{Key: key, Value: mine, Lease: s.terms.ID}},
			),
		})
		if create := t.owns(s, key, string(mine)); create != 0 {
			t.hold(s, claim{beliefLock, key, key, create})
			return
		}
		if op.Outcome == Done && w.chance(4) {
			return
		}
		t.sleep(w.exp(w.p.Think))
	}
}

// owns returns the create revision of a key if the key exists with the given value and the
// session's lease. After a lost or late answer, only a read shows whether the client owns the key
// (T16).
func (t *thread) owns(s *session, key, value string) int64 {
	op := t.get(key, "", mvcc.RangeOptions{}, false)
	if op.Outcome != Done || op.Err != nil || len(op.Answer.Range.KVs) == 0 {
		return 0
	}
	kv := op.Answer.Range.KVs[0]
	if string(kv.Value) != value || lease.ID(kv.Lease) != s.terms.ID {
		return 0
	}
	return kv.CreateRevision
}

// claim identifies a lock or role and the key that claims it.
type claim struct {
	kind      beliefKind
	what, key string
	create    int64 // the key's create revision
}

// hold holds a lock or role for a while and releases it.
func (t *thread) hold(s *session, claim claim) {
	w := t.c.w
	if s.believe(claim.kind, claim.what, claim.create) == nil {
		return
	}
	w.cover["lock or role held"]++
	t.sleep(w.exp(4 * w.p.Think))
	if w.p.Oversleep && w.chance(3) {
		t.oversleep(s)
	} else if w.chance(4) {
		return // the key is deleted with the lease
	}
	s.release(claim.kind, claim.what)
	for range 5 {
		op := t.command(&fsm.Txn{
			Compare: []fsm.Compare{{
				Key: claim.key, Target: fsm.TargetCreate, Relation: fsm.Equal, Number: claim.create,
			}},
			Then: []fsm.Op{{Delete: &fsm.DeleteRange{Key: claim.key}}},
		})
		if op.Outcome == Done {
			return
		}
	}
}

// oversleep pauses the client until its lease has ended and another client can hold the lock or
// role. The client then releases it anyway (T16).
func (t *thread) oversleep(s *session) {
	w := t.c.w
	s.rest()
	t.sleep(Time(s.terms.TTL)*Millisecond + w.exp(4*w.p.Think))
	if s.ended {
		w.cover["lock or role given back too late"]++
	}
}

// campaign waits until all older keys have been deleted, and then leads for a while.
func (t *thread) campaign(s *session, prefix string) {
	w := t.c.w
	key, end := fmt.Sprintf("%s%x", prefix, s.terms.ID), prefix[:len(prefix)-1]+"0"
	create := t.enrol(s, key)
	for create != 0 && s.alive() {
		op := t.get(prefix, end, mvcc.RangeOptions{MaxCreateRevision: create - 1, Limit: 1}, false)
		switch {
		case op.Outcome != Done:
		case len(op.Answer.Range.KVs) > 0:
			t.sleep(w.exp(w.p.Think))
			continue
		case t.created(s, key) != create:
			w.cover["lost the lease while waiting"]++
			return
		default:
			t.hold(s, claim{beliefRole, prefix, key, create})
			return
		}
	}
}

// enrol creates the candidate's key and returns its create revision.
func (t *thread) enrol(s *session, key string) int64 {
	for s.alive() {
		op := t.command(&fsm.Txn{
			Compare: []fsm.Compare{{Key: key, Target: fsm.TargetCreate, Relation: fsm.Equal}},
			Then: t.maybeDraw(
				fsm.Op{Put: &fsm.Put{Key: key, Value: t.c.w.value(), Lease: s.terms.ID}},
			),
			Else: []fsm.Op{{Range: &fsm.Range{Key: key}}},
		})
		if op.Outcome != Done {
			continue
		}
		if op.Fsm.Err != nil {
			return 0
		}
		if create := t.created(s, key); create != 0 {
			return create
		}
	}
	return 0
}

// created returns the create revision of a key of the session, or 0 if the key no longer exists.
func (t *thread) created(s *session, key string) int64 {
	for s.alive() {
		op := t.get(key, "", mvcc.RangeOptions{}, false)
		if op.Outcome != Done {
			continue
		}
		if kvs := op.Answer.Range.KVs; len(kvs) > 0 && lease.ID(kvs[0].Lease) == s.terms.ID {
			return kvs[0].CreateRevision
		}
		return 0
	}
	return 0
}
