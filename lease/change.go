package lease

import "crypto/subtle"

// held finds the live lease with the given ID and token.
func (l *Lessor) held(id ID, token Token) (slot uint32, ok bool) {
	slot, ok = l.alive(id)
	return slot, ok && l.table.record(slot).token == token
}

// ChangeTTL changes the TTL of a lease and restarts it. It returns a *TTLError, or ErrNotFound if
// there is no lease with that ID and token, or if the lease is delayed.
//
// On the current primary, the change never shortens the current lifetime. But a later primary knows
// only the new TTL, so only the holder may request a change. The holder must use the smaller of the
// two TTLs from just before it sends the request until it learns the outcome. It counts that TTL
// from just before it sent the change or a later renewal.
func (l *Lessor) ChangeTTL(id ID, token Token, ttl TTL) (Info, error) {
	if err := l.checkTTL(ttl); err != nil {
		return Info{}, err
	}
	slot, ok := l.held(id, token)
	if !ok {
		return Info{}, ErrNotFound
	}
	l.table.change(slot).ttl = ttl
	return l.touch(slot), nil
}

// Touch renews a lease through the log. Because every member applies the renewal, it needs no
// confirm round. Token 0 matches any token. Touch returns ErrNotFound if there is no such lease.
func (l *Lessor) Touch(id ID, token Token) (Info, error) {
	slot, ok := l.alive(id)
	if !ok || token != 0 && l.table.record(slot).token != token {
		return Info{}, ErrNotFound
	}
	return l.touch(slot), nil
}

// touch restarts the TTL of a lease.
func (l *Lessor) touch(slot uint32) Info {
	l.restartTime(slot)
	if l.tracker != nil {
		l.tracker.touch(slot)
	}
	return l.table.info(slot)
}

// HandOver transfers a lease, with its name and keys, to another owner. It uses only the Owner,
// Principal and Secret fields of to. The TTL restarts, and the lease gets a new token and secret.
// The old token, secret and request ID become invalid. HandOver returns ErrNotFound if there is no
// lease with that ID and token, or if the lease is delayed.
//
// The holder must stop using the lease before it requests the handover. If it does not learn the
// outcome, it may look up the lease. If the lease still has the old token, the handover has not
// happened yet, but still might.
func (l *Lessor) HandOver(id ID, token Token, to Terms) (Info, error) {
	slot, ok := l.held(id, token)
	if !ok {
		return Info{}, ErrNotFound
	}
	l.table.bytes -= l.table.bytesOf(slot)
	x := l.table.amend(slot)
	x.owner, x.principal = to.Owner, to.Principal
	y := x.orEmpty()
	y.secret = to.Secret
	x.setRare(y)
	return l.succeed(slot, x), nil
}

// Resume transfers a lease to another process that belongs to the same owner and has the secret.
// The TTL restarts, and the lease gets a new token. The old token and request ID become invalid.
// Resume returns ErrNotFound if there is no such lease, if the secret is wrong, or if the lease has
// no secret.
//
// The previous process may keep using the lease until its next renewal fails. Until then, only the
// token distinguishes the two processes.
func (l *Lessor) Resume(id ID, s Secret) (Info, error) {
	slot, ok := l.alive(id)
	if !ok || s == (Secret{}) || !s.equal(l.table.extra(slot).orEmpty().secret) {
		return Info{}, ErrNotFound
	}
	l.table.bytes -= l.table.bytesOf(slot)
	return l.succeed(slot, l.table.amend(slot)), nil
}

// equal compares two secrets in constant time.
func (s Secret) equal(t Secret) bool { return subtle.ConstantTimeCompare(s[:], t[:]) == 1 }

// succeed starts the next incarnation of a lease, with a new token. The caller has already
// subtracted the lease from bytes. succeed clears the request ID. Otherwise a late duplicate of the
// original grant could find the lease and return the new token to the old holder.
func (l *Lessor) succeed(slot uint32, x *extra) Info {
	x.requestID = ""
	l.table.bytes += l.table.bytesOf(slot)
	l.restartTime(slot)
	l.table.change(slot).token = l.nextToken()
	if l.tracker != nil {
		l.tracker.restart(slot, false)
	}
	return l.table.info(slot)
}
