package replica

import "leasehold.dev/lease"

// Renewals is a batch of renewals. The renewals covered by one promise, usually the entire batch,
// are answered together: Take returns the Renewals once, in Output.Together, with their TTLs. Each
// of the others is answered separately, earlier or later. Its answer is a Renewal with the same
// Owner and with its index as Place. So a slow lease does not delay the others (T15).
type Renewals struct {
	IDs []lease.ID
	// Tokens is nil or contains, for each lease, the holder's token or 0 for any token.
	Tokens []lease.Token
	// TTLs has one element for each lease. The caller must not read it until Take has returned the
	// Renewals. At that time, the elements for leases that were answered together are set, and the
	// others are 0.
	TTLs []lease.TTL
	// Kept is the number of elements set in TTLs.
	Kept int
	// Owner is set by the caller to identify the request.
	Owner any
	GroupRenewals

	tokens []lease.Token // tokens of the leases whose TTL was promised
	// changes is the lessor's change count from before the promise. If the count is still the same,
	// the leases have not changed.
	changes uint64
	born    uint64 // tick at which it arrived
	// from is the member that forwarded the batch, and sent is that member's request. They are 0
	// and nil if the batch came from a client of this member.
	from uint64
	sent []Ask
}

// Size returns the number of requests in a Renewals.
func (b *Renewals) Size() int { return max(1, len(b.IDs)+len(b.Renew)+len(b.Leave)) }

// RenewAll is like Renew, for a batch. The batch belongs to the replica until all of it has been
// answered.
func (r *Replica) RenewAll(b *Renewals) {
	b.born = r.ticks
	if r.lead != nil {
		r.lead.renewAll(b)
		return
	}
	r.out.noGroups(b)
	for i := range b.IDs {
		r.relay.asks.renew(b.single(i))
	}
}

// noGroups gives the answer of a member that has no groups because it does not lead.
func (o *output) noGroups(b *Renewals) {
	b.Keeper = 0
	if b.asks() && b.Renewed == nil {
		b.over()
		o.Groups = append(o.Groups, b)
	}
}

// renewAll handles a RenewAll at the leader, for a client of this member or another one.
func (l *leadership) renewAll(b *Renewals) {
	if !l.m.primary { // an entry of this term is about to be applied
		l.early = append(l.early, b)
		return
	}
	b.tokens, b.changes = make([]lease.Token, len(b.IDs)), l.m.lessor.Changes()
	var token lease.Token
	l.keepers.renew(&b.GroupRenewals, l.m.now)
	if b.End {
		return
	}
	if b.Keeper != 0 {
		b.Joined = make([]lease.GroupID, len(b.IDs))
	}
	fetched := 0
	for i, id := range b.IDs {
		// for a batch of one, prefetching would only look the lease up twice
		if i == fetched && len(b.IDs) > 1 {
			n, _ := l.m.lessor.Fetch(b.IDs[i:])
			fetched += n
		}
		if b.Tokens != nil {
			token = b.Tokens[i]
		}
		if l.gate.pending(id) {
			l.renew(b.single(i))
			continue
		}
		renewed, err := l.m.lessor.Renew(id, token)
		if err != nil || renewed.Clear {
			l.renew(b.single(i)) // renewing twice is harmless, and renew handles the special case
			continue
		}
		b.TTLs[i], b.tokens[i] = renewed.TTL, renewed.Token
		b.Kept++
		if b.Keeper != 0 && b.Access == l.keepers.access && !l.gate.holds(id) {
			b.Joined[i] = l.keepers.join(b.Keeper, id, renewed)
		}
	}
	l.rounds.next.together = append(l.rounds.next.together, b)
}

// single returns renewal i of the batch, to be handled separately.
func (b *Renewals) single(i int) Renewal {
	n := Renewal{
		ID: b.IDs[i], Access: b.Access, Owner: b.Owner, Place: i, born: b.born, from: b.from,
	}
	if b.Tokens != nil {
		n.Token = b.Tokens[i]
	}
	if b.from != 0 {
		n.seq = b.sent[i].Seq
	}
	return n
}

// settleAll is like settle, for renewals that were promised together.
func (l *leadership) settleAll(b *Renewals) {
	if l.m.lessor.Changes() != b.changes {
		for i, promised := range b.TTLs {
			if promised != 0 {
				l.recheck(b, i)
			}
		}
	}
	for i, g := range b.Joined {
		b.Joined[i] = l.keepers.joined(b.IDs[i], g)
	}
	b.Rounds = l.keepers.rounds(b.Keeper)
	if b.asks() {
		l.keepers.settle(&b.GroupRenewals)
	}
	if b.from != 0 {
		l.m.send(l.remotes.renewedAll(b))
		return
	}
	if b.asks() {
		l.m.out.Groups = append(l.m.out.Groups, b)
	}
	if b.Kept > 0 {
		l.m.out.Together = append(l.m.out.Together, b)
	}
}

// recheck checks lease i again. If the lease has changed, its renewal is handled separately.
func (l *leadership) recheck(b *Renewals, i int) {
	ttl, token, _ := l.m.lessor.Standing(b.IDs[i])
	if token == b.tokens[i] {
		b.TTLs[i] = ttl
		return
	}
	b.TTLs[i] = 0
	b.Kept--
	l.settle(b.single(i))
}

// split returns the promised renewals as single renewals, to be handled separately.
func (b *Renewals) split() []Renewal {
	out := make([]Renewal, 0, b.Kept)
	for i, promised := range b.TTLs {
		if promised != 0 {
			out = append(out, b.single(i))
		}
	}
	return out
}
