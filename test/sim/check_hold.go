package sim

import (
	"cmp"
	"slices"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// checkBeliefs checks L4: two holders never believe at the same time that they hold the same thing.
func (f *facts) checkBeliefs() {
	if !f.h.InBound {
		return
	}
	for _, pair := range f.conflicts() {
		a, b := pair[0], pair[1]
		f.violate(b.From, "L4", "%s is held by client %d (lease %d, token %d) from %v until %v, and by "+
			"client %d (lease %d, token %d) from %v until %v", a.name(), a.Client, a.Lease, a.Token,
			a.From, a.Until, b.Client, b.Lease, b.Token, b.From, b.Until)
	}
}

// sure returns the instant at which a belief stops counting. A process that resumes a lease
// displaces the former holder, which detects this at its next renewal. Until then only the token
// distinguishes the two, so the former holder's belief is not a violation. In a hand-over, the
// former holder stops before the new one starts.
func (f *facts) sure(b *Belief) Time {
	if l := f.byToken(b.Lease, b.Token); l != nil && l.succeeded != nil &&
		l.succeeded.began == fsm.LeaseResumed {
		return min(b.Until, l.until)
	}
	return b.Until
}

// conflicts returns the pairs of overlapping beliefs about the same thing, earlier belief first.
func (f *facts) conflicts() [][2]*Belief {
	type thing struct {
		kind beliefKind
		what string
	}
	things := make(map[thing][]*Belief)
	var order []thing
	for _, b := range f.h.Beliefs {
		if b.From >= f.sure(b) || b.Kind == beliefPermit { // checkHolders checks permits
			continue
		}
		t := thing{b.Kind, b.What}
		if things[t] == nil {
			order = append(order, t)
		}
		things[t] = append(things[t], b)
	}
	var out [][2]*Belief
	for _, t := range order {
		beliefs := things[t]
		slices.SortStableFunc(beliefs, func(a, b *Belief) int { return cmp.Compare(a.From, b.From) })
		last := beliefs[0]
		for _, b := range beliefs[1:] {
			same := b.Client == last.Client && b.Token == last.Token
			if b.From < f.sure(last) && !same {
				out = append(out, [2]*Belief{last, b})
			}
			if f.sure(b) > f.sure(last) {
				last = b
			}
		}
	}
	return out
}

// checkTokens checks L5: in the log, every grant and draw returns a larger token than the one
// before. A client only receives tokens larger than those returned before its request.
func (f *facts) checkTokens() {
	last := lease.Token(0)
	seen := make(map[lease.Token]lease.ID)
	for _, e := range f.h.Log {
		before := last
		for i := range e.Granted {
			g := &e.Granted[i]
			if seen[g.Token] == g.ID {
				continue // a repeated grant (T3)
			}
			seen[g.Token] = g.ID
			if g.Token <= last {
				f.violate(e.At, "L5", "entry %d grants lease %d with token %d, after token %d",
					e.Index, g.ID, g.Token, last)
			}
			last = max(last, g.Token)
		}
		for _, token := range drawnIn(e) {
			if _, twice := seen[token]; twice || token <= before {
				f.violate(e.At, "L5", "entry %d draws token %d, after token %d", e.Index, token, last)
			}
			seen[token] = 0
			last = max(last, token)
		}
	}
	f.checkReportedTokens()
	f.checkNames()
}

// checkReportedTokens checks L5 for the tokens that clients received.
func (f *facts) checkReportedTokens() {
	type reported struct {
		at    Time
		token lease.Token
	}
	var all []reported
	byToken := make(map[lease.Token]given)
	for _, op := range f.h.Ops {
		for _, g := range newTokens(op) {
			if c, ok := op.Command.(*fsm.Grant); !ok || c.Terms.RequestID == "" ||
				g.id == c.Terms.ID {
				all = append(all, reported{op.End, g.token})
			}
			if other, twice := byToken[g.token]; twice && (other != g || g.id == 0) {
				f.violate(op.End, "L5", "%v and %v have one token %d", other, g, g.token)
			}
			byToken[g.token] = g
		}
	}
	slices.SortStableFunc(all, func(a, b reported) int { return cmp.Compare(a.at, b.at) })
	highest := make([]lease.Token, len(all)+1)
	for i := range all {
		highest[i+1] = max(highest[i], all[i].token)
	}
	for _, op := range f.h.Ops {
		n, _ := slices.BinarySearchFunc(all, op.Start, func(t reported, at Time) int {
			return cmp.Compare(t.at, at)
		})
		for _, g := range newTokens(op) {
			if g.token <= highest[n] && !f.retried(op, g) {
				f.violate(op.End, "L5", "%v was given to client %d with token %d, and before the "+
					"request was sent at %v token %d had been told", g, op.Client, g.token,
					op.Start, highest[n])
			}
		}
	}
}

func (f *facts) byToken(id lease.ID, token lease.Token) *incarnation {
	for _, l := range f.byID[id] {
		if l.token == token {
			return l
		}
	}
	return nil
}

// checkNames reports live leases that share a name in the log.
func (f *facts) checkNames() {
	held := make(map[string]lease.Info)
	end := func(e *Entry) {
		for i := range e.Ended {
			l := &e.Ended[i]
			if l.Delayed && !l.Gone {
				continue // the lease keeps the name during its lock delay
			}
			if h, ok := held[l.Name]; ok && h.ID == l.ID && h.Token == l.Token {
				delete(held, l.Name)
			}
		}
	}
	for _, e := range f.h.Log {
		end(e)
		for i := range e.Granted {
			g := &e.Granted[i]
			if g.Name == "" {
				continue
			}
			if h, ok := held[g.Name]; ok && h.ID != g.ID && !f.endedWithin(e, h.ID) {
				f.violate(e.At, "L4", "entry %d grants the name %q to lease %d, and lease %d has it",
					e.Index, g.Name, g.ID, h.ID)
			}
			held[g.Name] = *g
		}
		end(e) // granted and ended in one entry
	}
}

func (f *facts) endedWithin(e *Entry, id lease.ID) bool {
	return slices.ContainsFunc(e.Ended, func(d Ended) bool {
		return d.ID == id && (d.Gone || !d.Delayed)
	})
}

// checkEnds checks L6 for keys: no key outlives its lease.
func (f *facts) checkEnds() {
	for _, key := range f.keys {
		versions := f.history[key]
		for i, v := range versions {
			if v.deleted || v.lease == 0 {
				continue
			}
			if i+1 < len(versions) {
				continue
			}
			if f.incarnationAt(v.lease, len(f.h.Log)-1) == nil {
				f.violate(f.h.End, "L6", "key %s of revision %d is attached to lease %d, which is gone%s",
					key, v.mod, v.lease, f.past(v.lease))
			}
		}
	}
}
