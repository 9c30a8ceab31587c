package lease

import "crypto/subtle"

// held finds the live lease with an ID and a token.
func (l *Lessor) held(id ID, token Token) (slot uint32, ok bool) {
	slot, ok = l.alive(id)
	return slot, ok && l.table.record(slot).token == token
}

// ChangeTTL changes the TTL of a lease, which starts over. It returns a *TTLError, or ErrNotFound
// if there is no lease with that ID and token, or it is delayed.
//
// On the current primary the lease ends no earlier than before. A later primary knows only the new
// TTL. So only the holder may request a change, and it must take it into account from just before
// it sends the request: until it knows the outcome, it considers the lease valid only for the
// smaller of the two TTLs, counted from just before it sent the change or a later renewal.
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

// Touch is a renewal through the log. Every member applies it, so no confirm round is needed.
// Token 0 means any token. It returns ErrNotFound.
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
// Principal and Secret of to. The TTL starts over, and the lease gets a new token and secret: the
// old ones and the request ID become invalid. It returns ErrNotFound if there is no lease with that
// ID and token, or if it is delayed.
//
// The holder must stop before it requests the hand-over. If it does not learn the outcome, it may
// look up the lease: if the lease still has the old token, the hand-over has not happened yet, but
// may still happen.
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

// Resume transfers a lease to another process of its owner that has the secret. The TTL starts
// over, and the lease gets a new token: the old one and the request ID become invalid. It returns
// ErrNotFound, including if the secret is wrong or the lease has none.
//
// The previous process may continue until its next renewal, when it learns of the change: only the
// token distinguishes the two.
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

// succeed begins the next incarnation of a lease, with a new token. The caller has subtracted the
// lease from bytes. A late repetition of the grant must not find the lease, and give the new token
// to the old holder.
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
