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
	kept  int // number of keys on leases with KeepKeys
	// countdown maps the slot of a checkpointed lease to the earliest instant at which the lease
	// may end, according to this member's own clock. 0 means that this member recovered the lease
	// from a saved state. In that case, the countdown starts at counting.
	countdown paged[Instant]
	// counting is the instant of the first promotion after this member recovered its leases, or 0
	// if it has not been promoted since.
	counting Instant
	// tracker times the leases. It is nil unless this member is primary.
	tracker    *tracker
	lastToken  Token
	generation uint64
	lastGroup  GroupID
}

// New returns an empty Lessor. It is a follower, and its clock is at 0.
func New(c Config) *Lessor {
	return &Lessor{cfg: c.withDefaults(), table: newTable(0), keys: newAttachments()}
}

// Revoke ends a lease and its keys immediately, even during its lock delay. It returns ErrNotFound
// if there is no such lease.
func (l *Lessor) Revoke(id ID) (Ended, error) {
	slot, ok := l.find(id)
	if !ok {
		return Ended{}, ErrNotFound
	}
	return l.end(slot), nil
}

// Expire ends a lease that Due decided to end. It does nothing and returns ok=false if the lease
// has ended, was granted again (T28), or has changed since the decision. If it has changed, a
// primary treats the lease as alive again.
//
// A lease with a lock delay becomes Delayed. A second Expire, decided after the delay, removes it.
func (l *Lessor) Expire(d Due) (_ Ended, ok bool) {
	slot, ok := l.find(d.ID)
	if !ok {
		return Ended{}, false
	}
	r := l.table.record(slot)
	if r.token != d.Token {
		// This is another incarnation of the ID. Any decision to end it is a separate one, whose
		// outcome is still unknown.
		return Ended{}, false
	}
	if r.stamp != d.Stamp {
		if l.tracker != nil {
			l.tracker.reinstate(slot, isExpiring)
		}
		return Ended{}, false
	}
	x := l.table.extra(slot).orEmpty()
	if x.lockDelay > 0 && x.originalTTL == 0 {
		return l.delay(slot), true
	}
	e := l.end(slot)
	e.Keep = x.keepKeys
	return e, true
}

// delay starts the lock delay of an expired lease. The delay is timed like a lease's TTL, but
// during the delay the lease can only be revoked.
func (l *Lessor) delay(slot uint32) Ended {
	x, r := l.table.amend(slot), l.table.change(slot)
	y := x.orEmpty()
	y.originalTTL, r.ttl = r.ttl, y.lockDelay
	x.setRare(y)
	l.restartTime(slot)
	if l.tracker != nil {
		l.tracker.restart(slot, true)
	}
	return Ended{Info: l.table.info(slot)}
}

// restartTime does what all replicated changes that restart a lease's TTL have in common. It voids
// the checkpoint of the lease and any decision in flight.
func (l *Lessor) restartTime(slot uint32) {
	r := l.table.change(slot)
	r.stamp++
	r.remaining = 0
	l.countdown.clear(slot)
}

// end removes a lease and its keys in one step (T5).
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

// find returns the slot of a lease, for callers that change the lease or read its times. On a
// primary, it makes sure that the lease is timed.
func (l *Lessor) find(id ID) (slot uint32, ok bool) {
	if slot, ok = l.table.find(id); ok {
		l.startTiming(slot)
	}
	return slot, ok
}

// startTiming starts timing the lease in a slot, if this member is primary and has not timed it
// yet. It also removes the lease from its group if the group has ended.
func (l *Lessor) startTiming(slot uint32) {
	if l.tracker != nil {
		l.tracker.startTiming(slot)
		l.tracker.settle(slot)
	}
}

// alive finds a lease that is not in its lock delay.
func (l *Lessor) alive(id ID) (slot uint32, ok bool) {
	slot, ok = l.find(id)
	return slot, ok && !l.table.delayed(slot)
}

// Lookup returns a copy of a lease. The lease may be Delayed.
func (l *Lessor) Lookup(id ID) (Info, bool) {
	slot, ok := l.table.find(id)
	if !ok {
		return Info{}, false
	}
	return l.table.info(slot), true
}

// Whose returns the name and the principal of a lease. It is cheaper than Lookup.
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

// Charge charges a lease to an account until the lease ends or is charged to another account. An
// empty account means none. The engine attaches no meaning to accounts. If there is no such lease,
// Charge does nothing.
func (l *Lessor) Charge(id ID, account string) {
	if slot, ok := l.table.find(id); ok {
		l.table.charge(slot, account)
	}
}

// Account returns the account that a lease is charged to, or "" if there is none.
func (l *Lessor) Account(id ID) string {
	slot, ok := l.table.find(id)
	if !ok {
		return ""
	}
	return l.table.pages[slot>>pageBits].account(slot)
}

// Standing returns the TTL and the token of a lease, unless it is Delayed. Unlike Lookup, it does
// not copy the lease.
func (l *Lessor) Standing(id ID) (ttl TTL, token Token, ok bool) {
	slot, ok := l.table.find(id)
	if !ok || l.table.delayed(slot) {
		return 0, 0, false
	}
	r := l.table.record(slot)
	return r.ttl, r.token, true
}

// Changes returns a counter that increases at least once with every replicated change to a lease.
// While it stays the same, Standing returns the same result for every lease.
func (l *Lessor) Changes() uint64 { return l.table.changes }

// ByName returns a copy of the lease that holds a name.
func (l *Lessor) ByName(name string) (Info, bool) {
	slot, ok := l.table.names.find(name)
	if !ok {
		return Info{}, false
	}
	return l.table.info(slot), true
}

// Named yields a copy of every lease whose name begins with the prefix, ordered by name. It skips a
// lease that ends before Named reaches it. It costs a binary search plus one copy per lease.
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
// revoked, rounded down and never negative (T24). ok=false means that there is no such lease. The
// bound is 0 once the decision to end the lease has been made. For a delayed lease, it is a lower
// bound on how long its name and keys remain taken.
//
// Only a primary knows the true value. A follower returns its own countdown for a checkpointed
// lease, and the full TTL for any other lease. The result is not a promise: a later primary that
// applied the lease's checkpoint earlier also ends the lease earlier. Only a renewal clears the
// checkpoint.
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

// SilentUntil returns when a silent lease may end according to this member's countdown. Here, a
// lease is silent if its remaining time is checkpointed. ok=false means that the lease does not
// exist or is not silent. SilentUntil takes constant time.
func (l *Lessor) SilentUntil(id ID) (at Instant, ok bool) {
	slot, ok := l.find(id)
	if !ok || l.table.record(slot).remaining == 0 {
		return 0, false
	}
	return l.counted(slot), true
}

// counted returns the earliest instant at which a checkpointed lease may end, according to this
// member's countdown. If the member recovered the lease and has not been primary since, the
// countdown has not started yet, so it is assumed to start now.
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

// Expiry returns the earliest instant at which the primary may end a lease, even if the decision to
// end it has already been made. No promise to the holder extends beyond that instant. ok=false
// means that there is no such lease, or that this member is a follower.
func (l *Lessor) Expiry(id ID) (at Instant, ok bool) {
	slot, ok := l.find(id)
	if !ok || l.tracker == nil {
		return 0, false
	}
	return l.tracker.end(slot), true
}

// Leases yields a copy of every lease, in ID order. It skips a lease that ends before Leases
// reaches it.
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

// DrawToken returns the next token and uses it up: no lease will get it, and no later call returns
// it. Like Grant, it is a replicated operation.
func (l *Lessor) DrawToken() Token { return l.nextToken() }

// LastToken returns the last token assigned to a lease or drawn. All later tokens are larger.
func (l *Lessor) LastToken() Token { return l.lastToken }

// Len returns the number of leases.
func (l *Lessor) Len() int { return l.table.index.len }

// Bytes returns the approximate size of the leases and their attached keys. It depends only on
// replicated state, so it is the same on every member.
func (l *Lessor) Bytes() int64 {
	return l.table.bytes + int64(l.Attached())*AttachBytes + int64(l.kept)*KeepBytes
}
