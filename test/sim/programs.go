package sim

import (
	"fmt"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// This file contains the client programs that work with keys and leases. Each runs as a thread and
// never ends.

// command sends a command without retries.
func (t *thread) command(c fsm.Command) *Op {
	return t.do(&Op{Kind: opCommand, Request: Request{Command: c}})
}

// get reads a range.
func (t *thread) get(key, end string, o mvcc.RangeOptions, serializable bool) *Op {
	return t.do(&Op{Kind: opRange, Request: Request{
		Range: &fsm.Range{Key: key, End: end, Options: o}, Serializable: serializable,
	}})
}

// value returns a value that no other operation writes.
func (w *world) value() []byte { return fmt.Appendf(nil, "v%d", len(w.h.Ops)) }

// registers reads and writes a few keys.
func (t *thread) registers() {
	w := t.c.w
	for {
		t.think()
		key := fmt.Sprintf("r%d", w.rng.IntN(4))
		switch w.rng.IntN(10) {
		case 0, 1, 2:
			t.command(&fsm.Put{Key: key, Value: w.value(), PrevKV: w.chance(2)})
		case 3:
			t.command(&fsm.DeleteRange{Key: key, PrevKV: w.chance(2)})
		case 4:
			// The end of the range has no effect, but makes this deletion unique.
			t.command(&fsm.DeleteRange{Key: "r1", End: "r2~" + string(w.value())})
		case 5:
			t.swap(key)
		case 6:
			t.get("r", "s", mvcc.RangeOptions{}, false)
		case 7:
			t.get(key, "", mvcc.RangeOptions{}, true)
		default:
			t.get(key, "", mvcc.RangeOptions{}, false)
		}
	}
}

// swap writes a key if the key has not changed since it was read.
func (t *thread) swap(key string) {
	op := t.get(key, "", mvcc.RangeOptions{}, t.c.w.chance(4))
	if op.Outcome != Done || op.Err != nil {
		return
	}
	var mod int64
	if len(op.Answer.Range.KVs) > 0 {
		mod = op.Answer.Range.KVs[0].ModRevision
	}
	t.command(&fsm.Txn{
		Compare: []fsm.Compare{{Key: key, Target: fsm.TargetMod, Relation: fsm.Equal, Number: mod}},
		Then: []fsm.Op{
			{Put: &fsm.Put{Key: key, Value: t.c.w.value()}},
			{Put: &fsm.Put{Key: key + "x", Value: t.c.w.value()}},
		},
		Else: []fsm.Op{{Range: &fsm.Range{Key: key}}},
	})
}

// ttl draws a TTL.
func (w *world) ttl() lease.TTL {
	if w.p.Renewing.Groups {
		return groupTTLs[w.rng.IntN(len(groupTTLs))]
	}
	return lease.TTL(w.between(500*Millisecond, 20*Second) / Millisecond)
}

// attacher keeps leases alive, changes their TTLs, and attaches, moves and detaches keys.
func (t *thread) attacher() {
	w := t.c.w
	for {
		s := t.grant(lease.Terms{TTL: w.ttl(), KeepKeys: w.chance(4), LockDelay: w.lockDelay()})
		if s == nil {
			continue
		}
		for n := w.rng.IntN(20); n > 0 && !s.ended; n-- {
			t.think()
			t.attach(s, fmt.Sprintf("k%d", w.rng.IntN(8)))
		}
		if w.chance(2) {
			t.revoke(s)
		} else {
			s.rest() // let the lease expire
			t.renewLate(s)
		}
	}
}

// attach performs a random operation on a key and a session's lease.
func (t *thread) attach(s *session, key string) {
	w := t.c.w
	switch w.rng.IntN(11) {
	case 0:
		t.command(&fsm.Put{Key: key, Value: w.value()}) // detaches the key
	case 1:
		t.command(&fsm.DeleteRange{Key: key})
	case 2:
		t.ask()
	case 3:
		t.touch(s, &fsm.Put{Key: key, Value: w.value(), Lease: s.terms.ID})
	case 4:
		t.changeTTL(s)
	case 5:
		t.command(&fsm.Txn{
			Compare: []fsm.Compare{{
				Target: fsm.TargetLeaseAlive, Relation: fsm.Equal, Number: int64(s.terms.ID),
			}},
			Then: []fsm.Op{{Put: &fsm.Put{Key: key, Value: w.value(), Lease: s.terms.ID}}},
			Else: []fsm.Op{{Delete: &fsm.DeleteRange{Key: key}}},
		})
	case 6:
		t.putBound(key)
	case 7:
		t.draw(key)
	default:
		t.command(&fsm.Put{Key: key, Value: w.value(), Lease: s.terms.ID})
	}
}

// putBound puts a key with a TTL. Sometimes the same transaction deletes the key, which ends the
// lease. Sometimes a second put tries to attach another key to the lease, which must be rejected.
func (t *thread) putBound(key string) {
	w := t.c.w
	terms := lease.Terms{ID: lease.ID(w.rng.Int64N(1<<40) + 1), TTL: w.ttl(), Bound: true}
	put := fsm.Op{Put: &fsm.Put{Key: key, Value: w.value(), Lease: terms.ID}}
	ops := []fsm.Op{{Grant: &fsm.Grant{Terms: terms}}, put}
	if w.chance(8) {
		ops = append(ops, fsm.Op{Delete: &fsm.DeleteRange{Key: key}})
	}
	t.command(&fsm.Txn{Then: ops})
	if w.chance(8) {
		t.command(&fsm.Put{Key: key + "x", Value: w.value(), Lease: terms.ID})
	}
}

// renewLate sometimes renews a silent lease, which may be checkpointed or about to end.
func (t *thread) renewLate(s *session) {
	w := t.c.w
	for w.chance(2) {
		t.sleep(Time(float64(Time(s.terms.TTL)*Millisecond) * (0.3 + w.rng.Float64())))
		t.renew(s)
	}
}

// ask requests the remaining time of a lease.
func (t *thread) ask() {
	w := t.c.w
	if n := len(w.leases); n > 0 {
		id := w.leases[n-1-w.rng.IntN(min(n, 10))]
		t.do(&Op{Kind: opTTL, Request: Request{Lease: id}})
	}
}

// leaver grants leases, attaches keys, and abandons the leases.
func (t *thread) leaver() {
	w := t.c.w
	for {
		t.think()
		s := t.grant(lease.Terms{TTL: w.ttl(), KeepKeys: w.chance(4), LockDelay: w.lockDelay()})
		if s == nil {
			continue
		}
		s.rest()
		for range w.rng.IntN(4) {
			t.command(&fsm.Put{
				Key: fmt.Sprintf("k%d", w.rng.IntN(8)), Value: w.value(), Lease: s.terms.ID,
			})
		}
		t.renewLate(s)
		t.ask()
	}
}

// compactor occasionally compacts the store and reads past revisions.
func (t *thread) compactor() {
	w := t.c.w
	for {
		t.sleep(w.exp(20 * w.p.Think))
		op := t.get("r0", "", mvcc.RangeOptions{}, false)
		if op.Outcome != Done {
			continue
		}
		rev := op.Answer.Range.Revision
		if back := w.rng.Int64N(20); rev > back+1 {
			t.command(&fsm.Compact{Revision: rev - back})
		}
		t.get("r", "s", mvcc.RangeOptions{Revision: t.c.old()}, w.chance(2))
	}
}
