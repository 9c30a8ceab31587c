package lease

import "crypto/subtle"

// held finds the lease that is alive under a token.
func (l *Lessor) held(id ID, token Token) (slot uint32, ok bool) {
	slot, ok = l.alive(id)
	return slot, ok && l.table.record(slot).token == token
}

// ChangeTTL gives a lease another TTL, which runs anew. It returns a *TTLError, or
// ErrNotFound if there is no lease of that ID and token, or it is delayed.
//
// On a primary the lease ends no earlier than it would have. A later primary knows the new
// TTL only. So only the holder may ask for this, and it is bound from the moment before it
// sends: until it knows the outcome it counts every promise, earlier ones too, by the smaller
// of the two TTLs, from the moment before it sent this or, if that was later, the renewal.
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

// Touch is a renewal through the log: every member knows of it, so nothing has to be
// confirmed. Token 0 means the token of the lease, whichever it is. It returns ErrNotFound.
func (l *Lessor) Touch(id ID, token Token) (Info, error) {
	slot, ok := l.alive(id)
	if !ok || token != 0 && l.table.record(slot).token != token {
		return Info{}, ErrNotFound
	}
	return l.touch(slot), nil
}

// touch lets a lease's TTL run anew.
func (l *Lessor) touch(slot uint32) Info {
	l.anew(slot)
	if l.tracker != nil {
		l.tracker.touch(slot)
	}
	return l.table.info(slot)
}

// HandOver gives a lease, with its name and keys, to another owner. Of to only the Owner, the
// Principal and the Secret count. The TTL runs anew, and the token and the secret are new: the old
// ones are dead, and so is the request id. It returns ErrNotFound if there is no lease of that ID
// and token, or it is delayed.
//
// The holder stops before it asks. If it does not learn the outcome, it may look the lease
// up: if the lease still has its token, nothing has happened yet, and still may.
func (l *Lessor) HandOver(id ID, token Token, to Terms) (Info, error) {
	slot, ok := l.held(id, token)
	if !ok {
		return Info{}, ErrNotFound
	}
	l.table.bytes -= l.table.bytesOf(slot)
	x := l.table.amend(slot)
	x.owner, x.principal = to.Owner, to.Principal
	y := x.some()
	y.secret = to.Secret
	x.setRare(y)
	return l.succeed(slot, x), nil
}

// Resume gives a lease to another process of its owner, which knows the secret.
// The TTL runs anew, and the token is new: the old one is dead, and so is the
// request id. It returns ErrNotFound, also if the secret is wrong or the lease
// has none.
//
// The process that held the lease may go on until it learns of that, at its
// next renewal: only the token tells the two apart.
func (l *Lessor) Resume(id ID, s Secret) (Info, error) {
	slot, ok := l.alive(id)
	if !ok || s == (Secret{}) || !s.equal(l.table.extra(slot).some().secret) {
		return Info{}, ErrNotFound
	}
	l.table.bytes -= l.table.bytesOf(slot)
	return l.succeed(slot, l.table.amend(slot)), nil
}

// equal takes the same time wherever two secrets differ, which is nobody's business.
func (s Secret) equal(t Secret) bool { return subtle.ConstantTimeCompare(s[:], t[:]) == 1 }

// succeed begins the next incarnation of a lease, which does not count for bytes now, under a new
// token. A grant that is repeated late must not find it, and give the new token to the old
// holder.
func (l *Lessor) succeed(slot uint32, x *extra) Info {
	x.requestID = ""
	l.table.bytes += l.table.bytesOf(slot)
	l.anew(slot)
	l.table.change(slot).token = l.nextToken()
	if l.tracker != nil {
		l.tracker.restart(slot, false)
	}
	return l.table.info(slot)
}
