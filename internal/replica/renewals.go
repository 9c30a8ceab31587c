package replica

import "leasehold.dev/lease"

// Renewals asks of many leases what Renewal asks of one. Those that can be kept by one
// promise, mostly all of them, are answered together: Take returns the Renewals once, in
// Output.Together, with their TTLs. Each of the others is answered by itself before or
// after that, as a Renewal with the same Owner, whose Place says which it is. So a lease that
// takes long delays no other (T15).
type Renewals struct {
	IDs []lease.ID
	// Tokens is nil, or has for each lease that which its holder knows, 0 for any. Neither
	// it nor IDs may ever be changed: they may be on their way to another member.
	Tokens []lease.Token
	// TTLs has a place for each lease. The caller must not look at it before Take has
	// returned it: then those are set that were answered together, and the others are 0.
	TTLs []lease.TTL
	// Kept is how many those are.
	Kept int
	// Owner is the caller's, to find what waits.
	Owner any
	GroupRenewals

	tokens []lease.Token // of the leases that were promised their TTLs
	// changes are those of the lessor before the promise: while there are no others, what
	// was true of the leases then is.
	changes uint64
	born    uint64 // the tick at which it came
	// from is the member that relayed it, and first the number of the first renewal there;
	// 0 if it came from a client of this one.
	from, first uint64
}

// Size is how many things a Renewals asks for.
func (b *Renewals) Size() int { return max(1, len(b.IDs)+len(b.Renew)+len(b.Leave)) }

// RenewAll is Renew for many. They are the replica's until all are answered.
func (r *Replica) RenewAll(b *Renewals) {
	b.born = r.ticks
	if r.lead != nil {
		r.lead.renewAll(b)
		return
	}
	r.out.noGroups(b)
	r.relay.asks.renewAll(b)
}

// noGroups answers that a member has no groups, since it does not lead.
func (o *output) noGroups(b *Renewals) {
	b.Keeper = 0
	if b.asks() && b.Renewed == nil {
		b.over()
		o.Groups = append(o.Groups, b)
	}
}

// renewAll is RenewAll at the leader, for a client of this member or of another one.
func (l *leadership) renewAll(b *Renewals) {
	if !l.m.primary { // an entry of this term is about to be applied
		l.early = append(l.early, b)
		return
	}
	b.tokens, b.changes = make([]lease.Token, len(b.IDs)), l.m.lessor.Changes()
	var token lease.Token
	l.keepers.renew(&b.GroupRenewals)
	if b.End {
		return
	}
	if b.Keeper != 0 {
		b.Joined = make([]lease.GroupID, len(b.IDs))
	}
	fetched := 0
	for i, id := range b.IDs {
		if i == fetched && len(b.IDs) > 1 { // one alone would be looked for twice
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
			l.renew(b.single(i)) // once more, which changes nothing but says what to do
			continue
		}
		b.TTLs[i], b.tokens[i] = renewed.TTL, renewed.Token
		b.Kept++
		if b.Keeper != 0 && b.Access == l.keepers.access && !l.gate.holds(id) {
			b.Joined[i] = l.keepers.join(b.Keeper, id, renewed)
		}
	}
	l.rounds.Next.together = append(l.rounds.Next.together, b)
}

// single returns one of the renewals, to go its own way.
func (b *Renewals) single(i int) Renewal {
	n := Renewal{
		ID: b.IDs[i], Owner: b.Owner, Place: i, born: b.born, from: b.from, seq: b.first + uint64(i),
	}
	if b.Tokens != nil {
		n.Token = b.Tokens[i]
	}
	return n
}

// settleAll is settle for those that were promised together.
func (l *leadership) settleAll(b *Renewals) {
	if l.m.lessor.Changes() != b.changes {
		for i, promised := range b.TTLs {
			if promised != 0 {
				l.lookAgain(b, i)
			}
		}
	}
	for i, g := range b.Joined {
		b.Joined[i] = l.keepers.joined(b.IDs[i], g)
	}
	b.Rounds = l.keepers.rounds(b.Keeper)
	if b.asks() {
		l.keepers.settle(&b.GroupRenewals)
		l.m.out.Groups = append(l.m.out.Groups, b)
	}
	switch {
	case b.Kept == 0:
	case b.from != 0:
		l.remotes.renewedAll(b)
	default:
		l.m.out.Together = append(l.m.out.Together, b)
	}
}

// lookAgain takes the second look at one of the leases. If it is not as it was, its
// renewal goes its own way.
func (l *leadership) lookAgain(b *Renewals, i int) {
	ttl, token, _ := l.m.lessor.Standing(b.IDs[i])
	if token == b.tokens[i] {
		b.TTLs[i] = ttl
		return
	}
	b.TTLs[i] = 0
	b.Kept--
	l.settle(b.single(i))
}

// split returns the renewals of all promises, which go their own ways.
func (b *Renewals) split() []Renewal {
	out := make([]Renewal, 0, b.Kept)
	for i, promised := range b.TTLs {
		if promised != 0 {
			out = append(out, b.single(i))
		}
	}
	return out
}
