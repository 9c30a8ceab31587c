package lease

import (
	"iter"
)

// Lessor holds every lease and the keys attached to it.
//
// Lessor never reads a clock, starts a goroutine or does I/O. It is not safe for concurrent use.
type Lessor struct {
	cfg Config
	// now is the instant passed to the last Advance.
	now   Instant
	table *table
	keys  *attachments
	kept  int // number of keys on leases that keep them
	// countdown is, for a checkpointed lease, the instant of this member's own clock from which it
	// may end; 0 means that this member has recovered the lease, which then counts from counting.
	countdown paged[Instant]
	// counting is the instant of the first promotion after this member recovered the leases, or 0.
	counting Instant
	// tracker times the leases. It is nil unless this member is primary.
	tracker    *tracker
	lastToken  Token
	generation uint64
	lastGroup  GroupID
}

// New returns an empty Lessor, as a follower, whose clock shows 0.
func New(c Config) *Lessor {
	return &Lessor{cfg: c.withDefaults(), table: newTable(0), keys: newAttachments()}
}

// Revoke ends a lease at once, delayed or not, with its keys. It returns ErrNotFound.
func (l *Lessor) Revoke(id ID) (Ended, error) {
	slot, ok := l.find(id)
	if !ok {
		return Ended{}, ErrNotFound
	}
	return l.end(slot), nil
}

// Expire ends a lease as Due decided. It does nothing, and returns ok=false, if the lease has
// ended, was granted again (T28), or has changed since the decision. On a primary a changed lease
// is then alive again.
//
// A lease with a lock delay becomes Delayed; a second Expire, decided after the delay, removes
// it.
func (l *Lessor) Expire(d Due) (_ Ended, ok bool) {
	slot, ok := l.find(d.ID)
	if !ok {
		return Ended{}, false
	}
	r := l.table.record(slot)
	if r.token != d.Token {
		// Another incarnation of the ID. A decision to end that one is a different decision, and
		// its outcome is still unknown.
		return Ended{}, false
	}
	if r.stamp != d.Stamp {
		if l.tracker != nil {
			l.tracker.reinstate(slot, isExpiring)
		}
		return Ended{}, false
	}
	x := l.table.extra(slot).orEmpty()
	if x.lockDelay > 0 && x.outlived == 0 {
		return l.delay(slot), true
	}
	e := l.end(slot)
	e.Keep = x.keepKeys
	return e, true
}

// delay begins the lock delay of an expired lease. It runs like the TTL of a lease that can only be
// revoked.
func (l *Lessor) delay(slot uint32) Ended {
	x, r := l.table.amend(slot), l.table.change(slot)
	y := x.orEmpty()
	y.outlived, r.ttl = r.ttl, y.lockDelay
	x.setRare(y)
	l.restartTime(slot)
	if l.tracker != nil {
		l.tracker.restart(slot, true)
	}
	return Ended{Info: l.table.info(slot)}
}

// restartTime is common to all replicated changes that restart a lease's time: a checkpoint, and a
// decision in flight, become void.
func (l *Lessor) restartTime(slot uint32) {
	r := l.table.change(slot)
	r.stamp++
	r.remaining = 0
	l.countdown.clear(slot)
}

// end removes a lease with its keys in one step (T5).
func (l *Lessor) end(slot uint32) Ended {
	e := Ended{
		Info: l.table.info(slot), Keys: l.keys.detachAll(slot), Gone: true,
		Account: l.table.pages[slot>>pageBits].account(slot),
	}
	if e.KeepKeys {
		l.kept -= len(e.Keys)
	}
	if l.tracker != nil {
		l.tracker.forget(slot)
	}
	l.countdown.clear(slot)
	l.table.remove(slot)
	return e
}

// find returns the slot of a lease for a change of the lease or a query of its times. On a primary,
// the lease is then timed.
func (l *Lessor) find(id ID) (slot uint32, ok bool) {
	if slot, ok = l.table.find(id); ok {
		l.meet(slot)
	}
	return slot, ok
}

// meet makes a primary time the lease in a slot, if it is not timed yet, and removes the lease from
// its group if that has ended.
func (l *Lessor) meet(slot uint32) {
	if l.tracker != nil {
		l.tracker.meet(slot)
		l.tracker.settle(slot)
	}
}

// alive finds a lease that is not delayed.
func (l *Lessor) alive(id ID) (slot uint32, ok bool) {
	slot, ok = l.find(id)
	return slot, ok && !l.table.delayed(slot)
}

// Lookup returns a copy of a lease, which may be Delayed.
func (l *Lessor) Lookup(id ID) (Info, bool) {
	slot, ok := l.table.find(id)
	if !ok {
		return Info{}, false
	}
	return l.table.info(slot), true
}

// Whose returns the name and the principal of a lease. It costs less than Lookup.
func (l *Lessor) Whose(id ID) (name, principal string, ok bool) {
	slot, ok := l.table.find(id)
	if !ok {
		return "", "", false
	}
	if x := l.table.extra(slot); x != nil {
		name, principal = x.name, x.principal
	}
	return name, principal, true
}

// Charge charges a lease to an account, "" for none, until it is charged to another one or ends.
// The engine gives accounts no meaning. If there is no such lease, Charge does nothing.
func (l *Lessor) Charge(id ID, account string) {
	if slot, ok := l.table.find(id); ok {
		l.table.charge(slot, account)
	}
}

// Account returns the account that a lease is charged to, "" for none.
func (l *Lessor) Account(id ID) string {
	slot, ok := l.table.find(id)
	if !ok {
		return ""
	}
	return l.table.pages[slot>>pageBits].account(slot)
}

// Standing returns the TTL and the token of a lease, unless it is Delayed, without the copy that
// Lookup makes.
func (l *Lessor) Standing(id ID) (ttl TTL, token Token, ok bool) {
	slot, ok := l.table.find(id)
	if !ok || l.table.delayed(slot) {
		return 0, 0, false
	}
	r := l.table.record(slot)
	return r.ttl, r.token, true
}

// Changes counts the replicated changes of leases, and possibly more. While it stays the same,
// Standing returns the same for every lease.
func (l *Lessor) Changes() uint64 { return l.table.changes }

// ByName returns a copy of the lease that holds a name.
func (l *Lessor) ByName(name string) (Info, bool) {
	slot, ok := l.table.names.find(name)
	if !ok {
		return Info{}, false
	}
	return l.table.info(slot), true
}

// Named yields a copy of every lease whose name begins with the prefix, in the order of the
// names. A lease that ends before its turn is left out. The cost is a binary search and the
// leases that it yields.
func (l *Lessor) Named(prefix string) iter.Seq[Info] {
	return func(yield func(Info) bool) {
		var found []nameEntry
		l.table.names.within(prefix, func(e nameEntry) bool {
			found = append(found, e)
			return true
		})
		for _, e := range found {
			if slot, ok := l.table.names.find(e.name); ok && !yield(l.table.info(slot)) {
				return
			}
		}
	}
}

// Remaining returns a lower bound on how long a lease will live if it is neither renewed nor
// revoked, rounded down and never negative (T24); ok=false means that there is no such lease. It is
// 0 for a lease whose end is decided. For a delayed lease, it is a lower bound on how long its name
// and keys will stay. Only a primary knows this: a follower returns its own countdown of a
// checkpointed lease, and the full TTL of any other. It is not a promise: a later primary that has
// applied the checkpoint of a lease earlier ends it earlier; only a renewal clears the checkpoint.
func (l *Lessor) Remaining(id ID) (ttl TTL, ok bool) {
	slot, ok := l.find(id)
	if !ok {
		return 0, false
	}
	expiry := l.counted(slot)
	switch {
	case l.tracker != nil:
		expiry = l.tracker.expiry(slot)
	case l.table.record(slot).remaining == 0:
		return l.table.record(slot).ttl, true
	}
	return max(0, TTL(expiry-1-l.now)), true
}

// SilentUntil returns when a silent lease, whose remaining time is checkpointed, may end by this
// member's countdown. ok=false means that there is no such lease, or that it is not silent. It
// costs O(1).
func (l *Lessor) SilentUntil(id ID) (at Instant, ok bool) {
	slot, ok := l.find(id)
	if !ok || l.table.record(slot).remaining == 0 {
		return 0, false
	}
	return l.counted(slot), true
}

// counted returns the instant from which a checkpointed lease may end, by this member's countdown.
// If the member has recovered the lease and was not primary since, the countdown has not begun.
func (l *Lessor) counted(slot uint32) Instant {
	if at := l.countdown.get(slot); at != 0 {
		return at
	}
	since := l.counting
	if since == 0 {
		since = l.now
	}
	return since.after(l.table.record(slot).remaining)
}

// Expiry returns the first instant at which the primary may end a lease, even if the decision was
// already made. No promise to the holder extends beyond it. ok=false means that there is no such
// lease, or this is a follower.
func (l *Lessor) Expiry(id ID) (at Instant, ok bool) {
	slot, ok := l.find(id)
	if !ok || l.tracker == nil {
		return 0, false
	}
	return l.tracker.end(slot), true
}

// Leases yields a copy of every lease, in ID order. A lease that ends before its turn is left
// out.
func (l *Lessor) Leases() iter.Seq[Info] {
	return func(yield func(Info) bool) {
		for _, p := range inOrder(l.table.pages, l.Len()) {
			slot, ok := l.table.find(p.id)
			if ok && !yield(l.table.info(slot)) {
				return
			}
		}
	}
}

// DrawToken returns the next token. No lease has it or will get it, and it is never drawn again.
// Like Grant it is a replicated operation.
func (l *Lessor) DrawToken() Token { return l.nextToken() }

// LastToken returns the last token assigned to a lease or drawn. Every later token is larger.
func (l *Lessor) LastToken() Token { return l.lastToken }

// Len returns the number of leases.
func (l *Lessor) Len() int { return l.table.index.len }

// Bytes returns the approximate size of the leases and their attached keys. It depends only on the
// leases and on their keys, so it is the same on every member.
func (l *Lessor) Bytes() int64 {
	return l.table.bytes + int64(l.Attached())*AttachBytes + int64(l.kept)*KeepBytes
}
